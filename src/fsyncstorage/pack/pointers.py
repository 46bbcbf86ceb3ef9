"""Where back pointers lead in the new file.

Before the *pack end*, only the new places (`Places`) of the kept records that
later records point back to are noted.  Behind the pack end, a record moves by
the same distance as the record before it, unless that one became longer: if it
pointed back to a record that is not kept, it has its data in full now.  So it
is enough to note the positions where the distance changes.
"""

import array
import bisect
import typing


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
