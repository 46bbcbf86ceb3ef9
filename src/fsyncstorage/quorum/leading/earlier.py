"""What the log had before this writer led: it is read once, in slices.

Its bytes count for the limit, and blobs must not be removed before the records
that name them.  So until a record is read, nothing after it is trimmed
(trimming).  And until all are read, no blob is considered unnamed (tidying).

One member of the log may be wrong, and show records that the others do not
have.  So each record has to be linked to the one before, up to the one that
has begun the epoch of this writer.  If a record is not linked, everything is
read anew, beginning with another member.  A record that no member has whole is
read again later, and `trouble` reports it.
"""

import typing
from collections.abc import Iterable

from ..history.record import Damaged
from ..history.record import Place
from ..history.record import Record
from ..history.record import Unknown
from ..history.record import parse
from ..history.record import place_of
from ..log.interface import Log
from ..log.interface import Missing
from ..log.interface import Trimmed
from ..log.interface import Unanswered
from .held import Held
from .held import item


class _DoesNotFit(Exception):
    """A sound record that is not linked to the one before."""


class Earlier:

    def __init__(self, log: Log) -> None:
        self.held = Held()
        #: All was read, and is linked to the record of this writer's epoch.
        self.is_read = False
        #: The number of the record that is read next; 0: none was read.
        self.next = 0
        #: Why the reading does not advance, if that may need an operator.
        self.trouble: str | None = None
        self._log = log
        self._own = Place(0, b'')
        self._before: Place | None = None
        #: How often no member has shown the next record.
        self._times = 0

    def begin(self, own: Place) -> None:
        """`own`: the record that has begun the epoch of this writer."""
        self._own = own

    def go_on(self) -> None:
        """Read some more.

        Raise Unanswered, Missing: call it again.
        """
        if self.is_read:
            return
        if not self.next:
            self.next = self._log.ends().first
        own = self._own
        if self.next <= own.sequence:
            for raw, record, place in self._shown():
                if place.sequence < own.sequence:
                    self.held.add(place.sequence, item(raw, record.body))
                if place.sequence <= own.sequence:
                    self._before = place
                    self.next = place.sequence + 1
        if self.next > own.sequence:
            if self._before not in (None, own):
                self._has_failed(anew=True)
            self.is_read, self.trouble = True, None

    def _has_failed(self, anew: bool) -> typing.NoReturn:
        words = (f'record {self.next}, which was there before this node led,'
                 ' is shown by no member, or not as it was')
        self._times += 1
        if self._times >= self._log.members:  # each was the first one asked
            self.trouble = (
                f'{words}: nothing behind it is removed. Replace the members'
                ' whose disks are damaged')
        if anew:
            first = self._log.ends().first  # may raise Unanswered
            self.next, self._before = first, None
            self.held.clear()
        raise Unanswered(words)

    def _shown(self) -> list[tuple[bytes, Record, Place]]:
        """The next record, and some after it, from a member that has it."""
        members, answered, anew = self._log.members, 0, False
        for member in (*(() if self._times else (None,)), *(
                (self._times + number) % members
                for number in range(members))):
            try:
                found = self._linked(self._log.read(self.next, member))
            except Unanswered:
                continue
            except (Missing, Trimmed, _DoesNotFit):
                found, anew = [], True
            if found:
                return found
            answered += member is not None
        if anew or answered == members:
            self._has_failed(anew)
        raise Unanswered(f'record {self.next} is shown by no member')

    def _linked(self, shown: Iterable[bytes]
                ) -> list[tuple[bytes, Record, Place]]:
        found: list[tuple[bytes, Record, Place]] = []
        before = self._before
        for raw in shown:
            try:
                record = parse(raw)
            except (Damaged, Unknown):
                break
            place = place_of(raw)
            if place.sequence != self.next + len(found):
                break
            if before is not None and record.previous != before.link:
                if not found:
                    raise _DoesNotFit
                break
            found.append((raw, record, place))
            before = place
        return found
