"""Index files written while commits go on, so that a restart scans little.

After each half of `index-checkpoint` bytes that were appended, a thread writes
the index as it was at that moment.  It takes the storage's lock only for
moments; commits and readers go on.  The data is made durable up to there
before the new index gets its name: an index never knows more than the disk.

A pack replaces the data file and the index, and cancels a checkpoint that is
under way: its positions mean the old file.  `_naming` is held while an index
gets its name, or while it must not.

Left to others: the format (index), which index is believed (recovery).
"""

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from typing import Any

from ZODB.fsIndex import fsIndex

from .. import datafile
from ..errors import WritingStopped
from ..format import index

logger = logging.getLogger(__name__)

# A large index is written less often: after so many times its own size.
TIMES_ITS_SIZE = 4


class Checkpoints:

    def __init__(self, storage: Any, every: int) -> None:
        self._storage = storage
        self._every = every
        self.path = storage._file_name + '.index'
        self._path_of_packed = storage._file_name + '.pack.index'
        self.written = 0
        self._size = 0             # of the last index file
        self._written_to(0)
        #: The one under way; whoever changes the index tells it before.
        self.snapshot: index.Snapshot | None = None
        self._naming = threading.Lock()
        self._one_at_a_time = threading.Lock()
        self._wake = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None

    def start(self, position: int) -> None:
        """The index that was found is good up to this position."""
        self._written_to(max(position, self._position))
        self._thread = threading.Thread(
            target=self._run, daemon=True,
            name=f'checkpoints of {self._storage._file_name}')
        self._thread.start()

    def wake(self) -> None:
        """The file has grown up to where the next index is due."""
        self._wake.set()

    def _written_to(self, position: int) -> None:
        """There is an index up to here, or it failed: when is the next due?

        After half of the bytes: while it is written, as much again may come.
        """
        self._position = position
        self.due = position + max(
            self._every // 2, TIMES_ITS_SIZE * self._size)

    # Writing

    def write(self) -> bool:
        """Write an index of what is appended now; false if cancelled."""
        storage = self._storage
        with self._one_at_a_time:
            if self._closing:
                return False
            with storage._lock:
                file = storage._file
                snapshot = self.snapshot = index.Snapshot(
                    storage._index, storage._pos)
            try:
                return self._write(snapshot, file)
            finally:
                with storage._lock:
                    self.snapshot = None

    def _write(self, snapshot: index.Snapshot,
               file: datafile.DataFile) -> bool:
        storage, position = self._storage, snapshot.position
        temporary = self.path + '.index_tmp'
        storage._sequencer.sync_to(position)
        index.save(temporary, position, snapshot.pieces(storage._lock),
                   index.fingerprint(file, position))
        with self._naming:
            storage._sequencer.pipeline.refuse_when_stopped()
            if snapshot is not self.snapshot:
                datafile.remove_if_there(temporary)
                return False
            self._give_name(temporary)
            self._written_to(position)
            return True

    def _give_name(self, temporary: str) -> None:
        datafile.disk.replace(temporary, self.path)
        datafile.disk.sync_directory(os.path.dirname(self.path))
        self._size = os.path.getsize(self.path)
        self.written += 1

    # Packs

    def write_for_packed(self, file: datafile.DataFile, packed_index: fsIndex,
                         end: int) -> None:
        """Write the index of a file that will replace the data file."""
        index.save_unchanging(self._path_of_packed, end, packed_index, file)

    def forget_packed(self) -> None:
        datafile.remove_if_there(self._path_of_packed)

    @contextlib.contextmanager
    def replacing(self, end: int) -> Iterator[None]:
        """In here the data file is replaced; its index goes first.

        And for good: the old index, beside a new file that is shorter, would
        say that something was lost.  The new one beside the old file is seen
        not to belong to it.
        """
        with self._naming:
            self._written_to(0)
            self._give_name(self._path_of_packed)
            try:
                yield
            finally:
                self.snapshot = None  # of an index that is not named by now
            self._written_to(end)

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()  # first: who calls from here on is heard
            if self._closing:
                return
            if self._storage._pos >= self.due:  # not called twice for one
                self.write_or_warn()

    def write_or_warn(self) -> bool:
        """Without an index all is well; only the next start takes longer."""
        try:
            return self.write()
        except (OSError, WritingStopped) as error:
            logger.warning(
                '%s: no index could be written (%s); the next start scans'
                ' more of the data', self._storage._file_name, error)
            # Not again before as much was appended as for a good one.
            self._written_to(self._storage._pos)
            return False

    def close(self) -> None:
        """Stop the thread; write nothing any more."""
        with self._one_at_a_time:
            self._closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
