"""Where back pointers lead: to which data in the old file, and to which place
in the new one.

An undo writes a record without data, which points back to an earlier record,
and that one may point back, too.  The ends of these chains are remembered
(`Chains`), so that a long chain is not walked again and again.

Before the *pack end*, only the new places (`Places`) of the kept records that
later records point back to are noted.  Behind the pack end, a record moves by
the same distance as the record before it, unless that one became longer: if it
pointed back to a record that is not kept, it has its data in full now.  So it
is enough to note the positions where the distance changes.
"""

import array
import bisect
import typing

from ..format import scan
from ..format.window import Window


class Chains:

    def __init__(self, window: Window) -> None:
        self._window = window
        self._ends: dict[int, scan.Record] = {}

    def source(self, record: scan.Record) -> scan.Record:
        """The record that has the data of this one.

        If the creation of the object is undone, the returned record has no
        data.  scan.Damage if a pointer does not lead to a record of the
        object.
        """
        if not record.back:
            return record
        source = record
        try:
            for source in scan.backward(self._window, record):
                end = self._ends.get(source.position)
                if end is not None:
                    source = end
                    break
        except ValueError as wrong:
            raise scan.Damage(
                record.position, record.tid, scan.DAMAGED, str(wrong)
            ) from None
        self._ends[record.position] = source
        return source


class Places:

    def __init__(self, pack_end: int = 0) -> None:
        self.pack_end = pack_end
        self._moved: dict[int, int] = {}
        self._since = array.array('Q')
        self._distance = array.array('q')

    def note(self, old: int, new: int) -> None:
        """A record before the pack end is kept: it moves from old to new."""
        self._moved[old] = new

    def note_later(self, old: int, new: int) -> None:
        """Behind the pack end, what is at position `old` moves to `new`.

        What follows moves by the same distance, until the next call.
        """
        distance = old - new
        if not self._distance or self._distance[-1] != distance:
            self._since.append(old)
            self._distance.append(distance)

    def new(self, old: int) -> int:
        """The new position of a record; 0: the record is not kept."""
        if old < self.pack_end:
            return self._moved.get(old, 0)
        return old - self._distance[bisect.bisect(self._since, old) - 1]

    # From process to process, as JSON.

    def as_json(self) -> dict[str, typing.Any]:
        return {'pack_end': self.pack_end,
                'moved': list(self._moved.items()),
                'since': list(self._since), 'distance': list(self._distance)}

    @classmethod
    def from_json(cls, found: dict[str, typing.Any]) -> 'Places':
        places = cls(found['pack_end'])
        places._moved = dict(found['moved'])
        places._since = array.array('Q', found['since'])
        places._distance = array.array('q', found['distance'])
        return places
