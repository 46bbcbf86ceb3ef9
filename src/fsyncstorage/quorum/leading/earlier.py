"""What the log had before this writer led: it is read once, in slices.

Its bytes count for the limit, and blobs must not be removed before the records
that name them.  So until a record is read, nothing after it is trimmed
(trimming).  And until all are read, no blob is considered unnamed (staging).

One member of the log may be wrong, and show records that the others do not
have.  So each record has to be linked to the one before, up to the one that
has begun the epoch of this writer.  Where that fails, the reading goes on with
the next member; `trouble` reports it when it has failed with each.
"""

import typing

from ..history.record import Damaged
from ..history.record import Place
from ..history.record import Unknown
from ..history.record import parse
from ..history.record import place_of
from ..log.interface import Log
from ..log.interface import Trimmed
from ..log.interface import Unanswered
from ..log.members import ends
from .held import Held
from .held import item


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
        #: How often the reading has failed.
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
            self.next = ends(self._log).first
        before = self.next
        try:
            for raw in self._log.read(self.next):
                self._add(raw)
        except (Damaged, Unknown):
            pass
        except Trimmed:
            # The leader before may go on with a removal that it had begun.
            self._begin_anew()
        if self.next > self._own.sequence:
            if self._before not in (None, self._own):
                self._begin_anew()
            self.is_read, self.trouble = True, None
        elif self.next == before:
            self._has_failed(before)
        else:
            self._times, self.trouble = 0, None

    def _add(self, raw: bytes) -> None:
        """Count this record, if it is the next one before the own epoch's."""
        record, place = parse(raw), place_of(raw)
        if place.sequence != self.next or place.sequence > self._own.sequence:
            return
        if self._before is not None and record.previous != self._before.link:
            self._begin_anew()
        if place.sequence < self._own.sequence:
            self.held.add(place.sequence, item(raw, record.body))
        self._before = place
        self.next += 1

    def _begin_anew(self) -> typing.NoReturn:
        """From the log's first record: what was read is gone, or a sound
        record is not linked to the one before, and which of the two is wrong
        is not known."""
        self.held.clear()
        self._before = None
        self.next, failed = 0, self.next
        self._has_failed(failed)

    def _has_failed(self, number: int) -> typing.NoReturn:
        words = (f'record {number}, which was there before this node led, is'
                 ' not shown, or not as it was')
        self._log.turn()
        self._times += 1
        if self._times >= self._log.members:
            self.trouble = (
                f'{words}: nothing behind it is removed. Replace the members'
                ' whose disks are damaged')
        raise Unanswered(words)
