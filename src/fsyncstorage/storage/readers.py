"""The methods of the storage for readers of objects and transactions.

A reader takes the current `View`, and needs no lock.  A reader that asks for
the current state waits while a transaction is being published (`_current`).
The look-ups themselves are in format.view.
"""

from ..format.view import CachedView
from ..format.view import Entry
from ..format.view import Filter
from ..format.view import Revision
from ..format.view import View
from ..format.view import ViewIterator
from .records import Records


class Readers(Records):

    def _current(self) -> View:
        """The view for a caller that asks for the current state."""
        if self._sequencer.publishing:
            self._sequencer.pass_gate()
        return self._view

    def lastTransaction(self) -> bytes:
        return self._current().tid

    def getSize(self) -> int:
        return self._view.end

    def load(self, oid: bytes, version: str = '') -> tuple[bytes, bytes]:
        assert not version
        return self._current().load(oid)

    def loadBefore(self, oid: bytes, tid: bytes) -> Revision | None:
        if (self._sequencer.publishing
                and not self._view.shows_all_before(tid)):
            self._sequencer.pass_gate()
        return self._view.load_before(oid, tid)

    def load_before_cached(self, oid: bytes, tid: bytes) -> Revision | None:
        """loadBefore, but only from the page cache; else BlockingIOError."""
        view = self._current()
        return CachedView(view.file, view.index, view.end, view.tid
                          ).load_before(oid, tid)

    def loadSerial(self, oid: bytes, serial: bytes) -> bytes:
        view = self._view
        if serial > view.tid:
            view = self._current()
        return view.load_serial(oid, serial)

    def getTid(self, oid: bytes) -> bytes:
        return self._current().get_tid(oid)

    def history(self, oid: bytes, size: int = 1,
                filter: Filter | None = None) -> list[Entry]:
        return self._current().history(oid, size, filter)

    def undoLog(self, first: int = 0, last: int = -20,
                filter: Filter | None = None) -> list[Entry]:
        if last < 0:
            last = first - last  # a number of transactions
        return self._current().undo_log(first, last, filter)

    def iterator(self, start: bytes | None = None,
                 stop: bytes | None = None) -> ViewIterator:
        return ViewIterator(self._current(), start, stop)

    def lastInvalidations(self, count: int) -> list[tuple[bytes, list[bytes]]]:
        return self._current().last_invalidations(count)

    def record_iternext(self, next: bytes | None = None
                        ) -> tuple[bytes, bytes, bytes, bytes | None]:
        return self._current().next_record(next)
