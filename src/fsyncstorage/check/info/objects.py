"""What is known of each object of a file: arrays, indexed by its number.

An object has the number of its first appearance in the file.  A B-tree leads
from oids to numbers, wherever in 64 bits the oids are.  An object takes 32
bytes in the arrays, about 30 in the tree, 16 in the graph, and 4 in the
document: with the room in which arrays grow, 85 bytes and 4 a reference, so 10
million objects with one reference each take about 900 MB.

These are arrays and not a database in a temporary file, since each record asks
for one object, in any order, and each look-up there would take as long as all
else that is done for a record.
"""

from array import array

from BTrees.QQBTree import QQBTree


class Objects:

    def __init__(self):
        self._numbers = QQBTree()
        self._get = self._numbers.get
        #: Where the data of the current revision are; 0 if there are none.
        self.positions = array('Q')
        #: Of these data; 0 if they are not asked for.
        self.sizes = array('Q')
        #: The number of their class.
        self.classes = array('I')
        # Of what is asked for:
        self.revisions = array('I')
        #: Bytes of the data of all revisions.
        self.history = array('Q')

    def __len__(self):
        return len(self.positions)

    def number(self, oid):
        """None, if there is no such object."""
        return self._get(int.from_bytes(oid, 'big'))

    def numbers(self, oids):
        """Of those that there are."""
        get, from_bytes = self._get, int.from_bytes
        return [number for number in
                [get(from_bytes(oid, 'big')) for oid in oids]
                if number is not None]

    def numbered(self, oid):
        """The number of an object, which gets one if it is new."""
        key = int.from_bytes(oid, 'big')
        number = self._get(key)
        if number is None:
            number = self._numbers[key] = len(self.positions)
            self.positions.append(0)
            self.sizes.append(0)
            self.classes.append(0)
            self.revisions.append(0)
            self.history.append(0)
        return number

    def oids(self, numbers):
        """{number: oid} of these."""
        wanted = set(numbers)
        found = {}
        for oid, number in self._numbers.items():
            if len(found) == len(wanted):
                break
            if number in wanted:
                found[number] = oid.to_bytes(8, 'big')
        return found
