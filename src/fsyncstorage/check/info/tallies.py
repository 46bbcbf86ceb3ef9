"""Figures by name: by class, by day, by user, by path.

Names come from the file, so their number and their length have bounds.  What
has no room any more counts under `OTHERS`, so that totals stay right.

Of classes, the first ones have room, since each object keeps the number of its
class.  Of other names the largest ones have it: when there are twice as many
as may be kept, the smaller half of them is left out.  A name that comes again
may lack as much as the largest had that was left out, and is weighed with
that: so a name that has more in all is never missing.  (This is the algorithm
"space-saving", with many names at a time.)
"""

from ...format import scan
from ...format.classname import ENOUGH
from ...format.classname import FRONT
from ...format.classname import class_name
from ...format.classname import plain_beginning

# Different names of one kind; for a while, twice as many.
MOST_NAMES = 20_000
# Bytes of a user or a path.
LONGEST_NAME = 200

OTHERS = '(others)'
NONE = '(none)'
NOT_REACHED = '(not reached from the root)'
UNKNOWN = '(unknown)'
UNKNOWN_CLASS = '(unknown class)'
#: The class of a record that only its storage wrapper can read.
WRAPPED = '(wrapped record)'
BLOB = 'ZODB.blob.Blob'


class Tally:
    """[transactions, records, bytes, bytes that these may lack] by a name,
    which is bytes or a number."""

    def __init__(self):
        self.rows = {}
        #: The bytes that a row may lack, at most.
        self.may_lack = 0

    def add(self, name, records, size):
        row = self.rows.get(name)
        if row is None:
            if len(self.rows) >= 2 * MOST_NAMES:
                self._leave_out_the_smaller_half()
            row = self.rows[name] = [0, 0, 0, self.may_lack]
        row[0] += 1
        row[1] += records
        row[2] += size

    def _leave_out_the_smaller_half(self):
        others = self.rows.pop(OTHERS, [0, 0, 0, 0])
        rows = sorted(self.rows.items(), key=_weight, reverse=True)
        for _, row in rows[MOST_NAMES:]:
            for each in range(3):
                others[each] += row[each]
        self.may_lack = _weight(rows[MOST_NAMES])
        self.rows = dict(rows[:MOST_NAMES])
        self.rows[OTHERS] = others


def _weight(item):
    """The bytes that a name has at most."""
    _, row = item
    return row[2] + row[3]


class Classes:
    """The classes of a file: each has a number, and figures of its records."""

    def __init__(self):
        self.names = []
        #: By number: records, and the bytes of their data.
        self.records = []
        self.bytes = []
        self._numbers = {}
        self._by_beginning = {}     # of records
        # The first: an object has it until its class is known.
        self._unknown = self.named(UNKNOWN_CLASS)
        self.wrapped = self.named(WRAPPED)
        self.blob = self.named(BLOB)
        self._others = self.named(OTHERS)

    def named(self, name):
        """The number of the class of that name."""
        number = self._numbers.get(name)
        if number is None:
            if len(self.names) >= MOST_NAMES:
                return self._others
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
            self.records.append(0)
            self.bytes.append(0)
        return number

    def of_record(self, window, position, length):
        """The number of the class of the record with data there."""
        position += scan.RECORD_HEADER
        beginning = plain_beginning(window.read(
            position, length if length < FRONT else FRONT))
        number = self._by_beginning.get(beginning)
        if number is None:
            if beginning is None:
                return self._rare(window.read(position, min(length, ENOUGH)))
            number = self.named(class_name(beginning))
            if len(self._by_beginning) < MOST_NAMES:
                self._by_beginning[beginning] = number
        return number

    def _rare(self, front):
        name = class_name(front)
        if name is not None:
            return self.named(name)
        is_wrapped = front[:1] == b'.' and front[:2] not in (b'.z', b'.h')
        return self.wrapped if is_wrapped else self._unknown


def path_of(description):
    """The first word of a description: Zope begins it with a path."""
    words = description.split(None, 1)
    return words[0][:LONGEST_NAME] if words else b''


def shown(name):
    """A user or a path as text."""
    if not name or name == OTHERS:
        return name or NONE
    text = name.decode('utf-8', 'backslashreplace')
    return text + '...' if len(name) >= LONGEST_NAME else text
