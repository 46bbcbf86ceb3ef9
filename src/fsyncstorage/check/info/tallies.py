"""Figures by name: by class, by day, by user, by path.

Names come from the file, so their number and their length have bounds.  What
has no room any more counts under `OTHERS`, so that totals stay right.
"""

from ...format.classes import MOST_NAMES
from ...format.classes import OTHERS

# Bytes of a user or a path.
LONGEST_NAME = 200

NONE = '(none)'
NOT_REACHED = '(not reached from the root)'


class Tally:
    """[transactions, records, bytes] by a name, which is bytes or a number."""

    def __init__(self):
        self.rows = {}

    def add(self, name, records, size):
        row = self.rows.get(name)
        if row is None:
            if len(self.rows) >= MOST_NAMES:
                name = OTHERS
            row = self.rows.setdefault(name, [0, 0, 0])
        row[0] += 1
        row[1] += records
        row[2] += size


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
