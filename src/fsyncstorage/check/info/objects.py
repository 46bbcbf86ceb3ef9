"""What is known of each object of a file: arrays, indexed by its number.

Objects are numbered in the order in which they first appear in the file.  A
B-tree leads from oids to numbers, so oids may be anywhere in 64 bits.  An
object takes 21 bytes in the arrays, and about 30 in the tree.  With the spare
room of arrays that grow, this is 60 bytes: 10 million objects take 600 MB.

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
        #: 1 if one of their revisions counts.
        self.is_counted = bytearray()

    def number(self, oid):
        """The number of an object; None if there is no such object."""
        return self._get(int.from_bytes(oid, 'big'))

    def numbered(self, oid):
        """The number of an object, which gets one if it is new."""
        key = int.from_bytes(oid, 'big')
        number = self._get(key)
        if number is None:
            number = self._numbers[key] = len(self.positions)
            self.positions.append(0)
            self.sizes.append(0)
            self.classes.append(0)
            self.is_counted.append(0)
        return number
