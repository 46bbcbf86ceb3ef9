"""What is known of each object of a file: arrays, indexed by its number.

Objects are numbered in the order in which they first appear in the file.  A
B-tree leads from oids to numbers, so oids may be anywhere in 64 bits.  An
object takes 32 bytes in the arrays, about 30 in the tree, 16 in the graph, and
4 in the document.  With the spare room of arrays that grow, this is 85 bytes,
and 4 for each reference.  So 10 million objects with one reference each take
about 900 MB.

These are arrays and not a database in a temporary file.  Each record needs one
object, in any order, and a look-up in such a database would take as long as
all else that is done for a record.
"""

from array import array

from BTrees.QQBTree import QQBTree


class Objects:

    def __init__(self):
        self._numbers = QQBTree()
        self._get = self._numbers.get
        #: Where the data of the current revision are; 0 if there are none.
        self.positions = array('Q')
        #: Bytes of these data; 0 if they are older than `since` (survey).
        self.sizes = array('Q')
        #: The number of their class.
        self.classes = array('I')
        #: How many revisions count.
        self.revisions = array('I')
        #: Bytes of the data of all revisions that count.
        self.history = array('Q')

    def __len__(self):
        return len(self.positions)

    def number(self, oid):
        """The number of an object; None if there is no such object."""
        return self._get(int.from_bytes(oid, 'big'))

    def numbers(self, oids):
        """The numbers of those objects that are there."""
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
        """{number: oid} for these numbers."""
        wanted = set(numbers)
        found = {}
        for oid, number in self._numbers.items():
            if len(found) == len(wanted):
                break
            if number in wanted:
                found[number] = oid.to_bytes(8, 'big')
        return found
