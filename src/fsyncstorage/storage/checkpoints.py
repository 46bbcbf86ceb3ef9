"""Index files written while commits go on, so that a restart scans little.

Whenever half of `index-checkpoint` bytes were appended, a thread writes the
index as it is at that moment.  It holds the storage's lock only for moments,
so commits and readers go on.  The data up to there are made durable before the
new index gets its name: so an index never has more than the disk.

A pack replaces the data file and the index.  It cancels a checkpoint that is
under way, because its positions are those of the old file.  `_naming` is held
while an index gets its name, and while none may get one.

Left to others: the format (index), which index is used (recovery).
"""

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from typing import Any

from .. import datafile
from ..commit.wakeable import WakeableThread
from ..errors import WritingStopped
from ..format import index

logger = logging.getLogger(__name__)

# A large index is written less often: after this many times its own size was
# appended.
TIMES_ITS_SIZE = 4


class Checkpoints:

    def __init__(self, journal: Any, every: int) -> None:
        self._journal = journal
        self._every = every
        self.path = journal.name + '.index'
        self.path_of_packed = journal.name + '.pack.index'
        self.written = 0
        self._size = 0             # of the last index file
        self._written_to(0)
        #: The snapshot under way.  It is told before the index changes.
        self.snapshot: index.Snapshot | None = None
        self._naming = threading.Lock()
        self._one_at_a_time = threading.Lock()
        self._closing = False
        self._thread = WakeableThread(
            f'checkpoints of {journal.name}', self._write_if_due,
            journal.sequencer.look_at_sync)

    def start(self, position: int) -> None:
        """Begin: the index that was found is complete up to this position."""
        if position > self._position:  # else it was not found: one is written
            with contextlib.suppress(FileNotFoundError):
                self._size = os.path.getsize(self.path)
            self._written_to(position)
        self._thread.start()

    def wake(self) -> None:
        """The next index is due."""
        self._thread.wake()

    def _written_to(self, position: int) -> None:
        """An index up to here was written, or failed: note when the next is
        due.

        It is due after half of the bytes, because the other half may be
        appended while it is written.
        """
        self._position = position
        self.due = position + self.step

    @property
    def step(self) -> int:
        """How many bytes are appended between two indexes."""
        return max(self._every // 2, TIMES_ITS_SIZE * self._size)

    # Writing

    def write(self) -> bool:
        """Write an index of what is appended now; false if cancelled."""
        journal = self._journal
        with self._one_at_a_time:
            if self._closing:
                return False
            with journal.lock:
                file = journal.file
                snapshot = self.snapshot = index.Snapshot(
                    journal.positions, journal.end)
            try:
                return self._write(snapshot, file)
            finally:
                with journal.lock:
                    self.snapshot = None

    def _write(self, snapshot: index.Snapshot,
               file: datafile.DataFile) -> bool:
        journal, position = self._journal, snapshot.position
        # (After an interrupt the index may have more than the pipeline.)
        journal.sequencer.pipeline.refuse_when_stopped()
        temporary = self.path + '.index_tmp'
        journal.sequencer.sync_to(position)
        index.save(temporary, snapshot, file, journal.lock)
        with self._naming:
            journal.sequencer.pipeline.refuse_when_stopped()
            if snapshot is not self.snapshot:
                datafile.remove_if_there(temporary)
                return False
            if journal.replica is not None:
                journal.replica.keep_up_to(position)
            self._give_name(temporary)
            self._written_to(position)
            return True

    def _give_name(self, temporary: str) -> None:
        datafile.disk.replace(temporary, self.path)
        datafile.disk.sync_directory(os.path.dirname(self.path))
        self._size = os.path.getsize(self.path)
        self.written += 1

    # Packs

    @contextlib.contextmanager
    def replacing(self, end: int) -> Iterator[None]:
        """A context in which the data file is replaced, after its index.

        The new index is made durable first, because the old index beside a
        shorter new file would look like lost data.  The new index beside the
        old file is recognized as not belonging to it.  It is complete but for
        what was copied last, and the new file ends at `end`.
        """
        with self._naming:
            self._written_to(0)
            self._give_name(self.path_of_packed)
            try:
                yield
            finally:
                self.snapshot = None  # so its index gets no name any more
            self._written_to(end)

    def _write_if_due(self) -> None:
        if self._journal.end >= self.due:  # else it was written already
            self.write_or_warn()

    def write_or_warn(self) -> bool:
        """Write an index.  A failure only makes the next start take longer."""
        try:
            return self.write()
        except (OSError, WritingStopped) as error:
            logger.warning(
                '%s: no index could be written (%s); the next start scans'
                ' more of the data', self._journal.name, error)
            # Try again when the next one would be due.
            self._written_to(self._journal.end)
            return False

    def close(self) -> None:
        """Stop the thread.  From now on, write nothing."""
        with self._one_at_a_time:
            self._closing = True
        self._thread.close()
