"""Figures by name: by class, by day, by user, by path.

Names come from the file, so their number and their length are bounded.  Names
for which there is no room count under `OTHERS`, so that totals stay right.

Of classes, the first ones are kept, since each object keeps the number of its
class.  Of other names, the largest ones are kept: when there are twice as many
as may be kept, the smaller half is left out.  A name that was left out and
appears again may lack as many bytes as the largest name had that was left out.
This amount is added to its weight, so a name that has more bytes than this in
all is never missing.  (This is the algorithm "space-saving", with many names
at a time.)
"""

from ...format.classes import MOST_NAMES
from ...format.classes import OTHERS

# Most bytes of a user or a path.
LONGEST_NAME = 200

NONE = '(none)'
NOT_REACHED = '(not reached from the root)'
UNKNOWN = '(unknown)'


class Tally:
    """For each name: [transactions, records, bytes, bytes it may lack].

    A name is bytes or a number.
    """

    def __init__(self):
        self.rows = {}
        #: The most bytes that a row may lack.
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
    """The most bytes that a name can have."""
    _, row = item
    return row[2] + row[3]


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
