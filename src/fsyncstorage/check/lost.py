"""Which objects were lost with the damage, by class.

An object is *gone* if no record of it is left.  It is *older* if its last
record is lost, and one before it is left.  It is *unreadable* if its last
record is there, and its data cannot be read.

Left to others: what is damaged (verify), the words (commandline).
"""

import re
from collections import Counter

from ..format import scan
from ..format.classes import UNKNOWN_CLASS
from ..format.classes import class_of
from ..format.window import Window

GONE, OLDER, UNREADABLE = 'gone', 'older', 'unreadable'

# Most objects that are noted: a malicious file can seem to have one in every
# ten bytes.
MOST_OBJECTS = 100_000
# Bytes from the oid in a record's header to the position of its transaction.
_OID_TO_POSITION = 24


def records_in(window, damage):
    """Yield what still looks like a record of this damaged transaction."""
    begin = damage.position.to_bytes(8, 'big') + b'\0\0'
    # Do not read on to the end: any number of transactions may be damaged.
    damaged = Window(window.pread, damage.end)
    for at, _ in damaged.matches(
            re.compile(re.escape(begin)),
            damage.position + scan.HEADER + _OID_TO_POSITION, scan.HEADER):
        try:
            record = scan.record_at(damaged, at - _OID_TO_POSITION)
        except EOFError:
            break  # the window ends in that record
        if record.previous < damage.position and record.end < damage.end:
            yield record


class Lost:

    def __init__(self):
        #: Damaged transactions of whose records nothing can be told.
        self.untold = 0
        #: Were there more objects than are noted?
        self.has_more = False
        # oid -> where its last record was that is lost.
        self._positions = {}
        self._unreadable = set()

    def note_damage(self, window, damage):
        """A whole transaction is lost."""
        record = None
        for record in records_in(window, damage):
            self.note(record.oid, record.position)
        self.untold += record is None

    def note(self, oid, position):
        """A record is lost.  Call it with rising positions for an object."""
        if len(self._positions) < MOST_OBJECTS or oid in self._positions:
            self._positions[oid] = position
        else:
            self.has_more = True

    def note_unreadable(self, oid):
        """The data of the last record cannot be read."""
        if len(self._unreadable) < MOST_OBJECTS:
            self._unreadable.add(oid)
        else:
            self.has_more = True

    def by_class(self, verification):
        """{class: Counter of GONE, OLDER, UNREADABLE}"""
        index, found = verification.index, {}
        window = verification.window.scout()

        def note(state, position):
            name = _class_at(window, verification, position)
            found.setdefault(name, Counter())[state] += 1

        for oid, position in self._positions.items():
            at = index.get(oid)
            if at is None:
                note(GONE, position)
            elif at < position and oid not in self._unreadable:
                note(OLDER, at)
        for oid in self._unreadable:
            note(UNREADABLE, index[oid])
        return found


def _class_at(window, verification, position):
    """The class of the record at a position, as far as it can be read."""
    try:
        record = scan.record_at(window, position)
        holder = verification.holder(record) or record
    except (EOFError, scan.Damage):     # behind the end; its data are lost
        return UNKNOWN_CLASS
    return class_of(window, holder.position, holder.length)
