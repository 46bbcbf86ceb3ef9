"""What callers ask about the packs of a storage: how far a pack is, to cancel
it, and what a pack would free.

A forecast is made while others commit, and can be made during a pack.  Only
one forecast is made at a time.
"""

import contextlib
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

from ZODB.FileStorage.format import CorruptedError
from ZODB.serialize import referencesf

from .. import datafile
from ..format import scan
from ..processes.starting import NotStarted
from . import packedblobs
from . import packing
from . import process
from . import work
from .plan import Job
from .process import Process
from .progress import FORECAST
from .progress import NOTHING
from .progress import PACKED
from .progress import PackWatch
from .progress import Untimely


class Packs:

    def __init__(self, storage: Any) -> None:
        self._storage = storage
        self._forecast: PackWatch | None = None
        self._last: PackWatch | None = None
        #: The last one that has succeeded.
        self._succeeded: PackWatch | None = None

    def ended(self, watch: PackWatch) -> None:
        """Called by a pack, however it ends."""
        watch.ended = time.monotonic()
        self._last = watch
        if watch.outcome in (PACKED, NOTHING):
            self._succeeded = watch

    @property
    def succeeded_ago(self) -> float | None:
        """Seconds since the last successful pack; None: there was none since
        the storage was opened."""
        watch = self._succeeded
        return None if watch is None else watch.ended_ago

    def status(self) -> dict[str, Any]:
        """Figures of the current pack, of the current forecast, and of the
        last pack since the storage was opened; each may be None.

        There are only numbers and texts, because a server sends them to its
        clients.
        """
        pack, forecast = self._storage.pack_watch, self._forecast
        last = self._last
        return {'pack': pack and pack.figures(),
                'forecast': forecast and forecast.figures(),
                'last': last and {
                    'outcome': last.outcome, 'before': last.before,
                    'after': last.after, 'seconds': last.seconds,
                    'ago': last.ended_ago}}

    def cancel(self) -> None:
        """Cancel the pack that is under way; it leaves all as it was."""
        watch = self._storage.pack_watch
        if watch is None:
            raise Untimely('No pack is under way')
        watch.cancel()

    def wake(self) -> None:
        """Let the pack and the forecast check whether they must end.

        Called when the storage is closed.
        """
        watch = self._storage.pack_watch
        if watch is not None:
            watch.wake()
        self.wake_forecast()

    def wake_forecast(self) -> None:
        """Let the forecast check whether it must end.

        Called when its `refuse()` raises.
        """
        watch = self._forecast
        if watch is not None:
            watch.wake()

    def forecast(self, t: float, refuse: Callable[[], object] = lambda: None
                 ) -> dict[str, Any]:
        """What a pack to this time would free, and what it would need.

        `refuse()` is called now and then, and after `wake_forecast`.  If it
        raises an exception, the forecast ends with it.
        """
        storage = self._storage
        stop = packing.stop_of(storage, t)

        def refuse_both() -> None:
            refuse()
            storage._refuse_when_stopped()

        watch = PackWatch(storage._file_name, refuse_both, kind=FORECAST)
        with storage._lock:
            if self._forecast is not None:
                raise Untimely('A forecast is under way already')
            self._forecast = watch
        try:
            with tempfile.TemporaryFile() as listed:
                found = self._foreseen(stop, watch, listed.fileno())
                listed.seek(0)
                return {**found, **self._blobs(listed),
                        'free': work.free_bytes(storage._home)}
        except (scan.Damage, process.Damaged) as damage:
            raise CorruptedError(
                f'{storage._file_name}: {damage}. fsync-check shows what is'
                ' damaged') from None
        finally:
            self._forecast = None

    def _blobs(self, listed: Any) -> dict[str, Any]:
        """Count and bytes; each None if the storage has no blob directory."""
        if not self._storage.blob_dir:
            return {'blobs': None, 'blob_bytes': None}
        count = size = 0
        for path in packedblobs.paths(self._storage, listed):
            with contextlib.suppress(FileNotFoundError):  # packed just now
                size += os.stat(path).st_size
                count += 1
        return {'blobs': count, 'blob_bytes': size}

    def _foreseen(self, stop: bytes, watch: PackWatch,
                  listed: int) -> dict[str, Any]:
        """By a child process, or by this one if none can be started.

        `listed` is a file without a name, for the list of blobs.
        """
        storage = self._storage
        removed = datafile.DataFile(
            'list of blobs', 0, lambda path, flags: os.dup(listed)
        ) if storage.blob_dir else None
        old, end = self._opened()
        with removed or contextlib.nullcontext(), old:
            job = Job(stop, end, storage._pack_gc, storage.pack_rate)
            files = work.Files(old, removed)
            if storage.pack_process and process.is_possible(referencesf):
                with contextlib.suppress(NotStarted), contextlib.closing(
                        Process(job, files, watch)) as child:
                    return child.forecast()
            return work.foreseen(job, files, watch.tell)

    def _opened(self) -> tuple[datafile.DataFile, int]:
        """The data file, opened once more, and where it ends."""
        while True:
            view = self._storage.journal.view
            old: datafile.DataFile = self._storage.reopened()
            if os.path.samestat(os.fstat(old.fileno()),
                                os.fstat(view.file.fileno())):
                return old, view.end
            old.close()  # a pack has replaced it just now
