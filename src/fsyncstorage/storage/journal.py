"""The data file that a storage has open: its index, its end, and its views.

What is written goes to the end of the file.  Bytes that were written and not
appended are a *tail*: it is cut off after a failure, and before anything else
is written.  A transaction is *appended* when it is in the file, in the index
and in the pipeline (`append`).

A journal belongs to one storage.  `end` and `positions` are those of what is
appended (I6); `view` is what readers see, which is published.

Locks, in the order in which they are taken: `append_lock`, for each write to
the end of the file; `lock`, for what changes together.
docs/internals/commit.rst has all of them.

The sequencer calls `_sync_batch` to sync, and `_show` to let readers see what
it has published: commit.sequencer says when.  Where there is a replica
(commit.replica), a sync goes to the disk and to a log, at the same time.
"""

import functools
import os
import threading
from collections.abc import Callable
from collections.abc import Sequence

from ZODB.fsIndex import fsIndex
from ZODB.POSException import StorageTransactionError

from ..commit.blobs import Placed
from ..commit.pipeline import Commit
from ..commit.pipeline import Point
from ..commit.policies import Durability
from ..commit.replica import Replica
from ..commit.reserve import Reserve
from ..commit.sequencer import Sequencer
from ..datafile import DataFile
from ..errors import SyncFailed
from ..errors import WritingStopped
from ..format.view import View
from ..positions import Positions
from .checkpoints import Checkpoints
from .objectmap import ObjectMap
from .tids import Tids
from .transaction import STATUS_OFFSET
from .transaction import Transaction


class Journal:

    # The storage sets these if it may write.
    reserve: Reserve = None          # type: ignore[assignment]  # see above
    checkpoints: Checkpoints = None  # type: ignore[assignment]  # see above
    #: Blobs that are not durable, of acknowledged transactions (under `none`):
    #: they are synced before the next sync of the data.
    unsynced_blobs: Placed | None = None
    #: Only under a policy that is replicated.
    replica: Replica | None = None
    #: The map for local reads, while it is built or used.
    map: ObjectMap | None = None

    def __init__(self, name: str, file: DataFile, index: fsIndex, end: int,
                 tid: bytes, durability: Durability, checksums: bool,
                 end_dropped: Callable[[], object]) -> None:
        """The file ends at `end`; `tid` is that of its last transaction."""
        self.name = name
        self.file = file
        self.positions = Positions(index)
        self.end = end
        #: The last tid that was given, or that is in the file.
        self.last_tid = tid
        self._durability = durability
        self._checksums = checksums
        self._end_dropped = end_dropped
        self._tids = Tids()
        #: There may be a tail.
        self.has_tail = False
        #: Bytes from here on were cut off.  Until something behind this
        #: position is durable, a power cut can bring parts of them back.
        self.cut_off_at = -1
        #: Why nothing is begun or written any more, if it is to be closed.
        self.closed_because = ''
        self.view = View(file, self.positions, end, tid)
        self._renew()

    def _renew(self) -> None:
        self.lock = threading.RLock()
        self.append_lock = threading.Lock()
        self.sequencer = Sequencer(
            self.name, self.view, self._durability, self._sync_batch,
            self._show, self._end_dropped)

    def read(self, position: int, length: int) -> bytes:
        descriptor = self.file.descriptor  # as in DataFile
        return os.pread(descriptor.number, length, position)

    # Open, and closed

    def is_to_close(self, because: str = 'is closed') -> None:
        """Nothing is begun any more.  (What was appended is settled first;
        then the file is closed.)"""
        self.closed_because = because

    def refuse_when_closed(self) -> None:
        if self.closed_because:
            raise ValueError(f'{self.name} {self.closed_because}')

    def refuse_when_stopped(self) -> None:
        if self.closed_because:
            self.refuse_when_closed()
        if self.replica is not None:
            self.replica.may_write()
        if self.sequencer.pipeline.stopped:
            self.sequencer.pipeline.refuse_when_stopped()

    def end_threads(self) -> None:
        if self.checkpoints is not None:
            self.checkpoints.close()
        self.sequencer.flusher.close()

    def close(self) -> None:
        """Its threads have ended."""
        self.file.unlock()
        self.file.close()

    def forked(self, because: str) -> None:
        """Called in the child of a fork: everything belongs to the parent.

        Threads of the parent that do not exist in the child may have held the
        locks: so each lock is made anew."""
        self.is_to_close(because)
        self.view = self.appended
        self._renew()
        # As in a storage that only reads.
        self.checkpoints = None  # type: ignore[assignment]
        self.replica = None
        self.map = None  # not retired: the parent goes on with it
        self.file.abandon(because)

    # What is appended

    @property
    def appended(self) -> View:
        """What the commit machinery sees (I6)."""
        return self.sequencer.pipeline.appended  # type: ignore[return-value]

    def refuse_unless_later(self, tid: bytes) -> None:
        last = self.sequencer.pipeline.appended.tid
        if tid <= last:
            raise StorageTransactionError(
                f'the transaction id {tid.hex()} is not later'
                f' than {last.hex()}, the last one. (Where the ids of a'
                ' database do not rise, move its files, not its'
                ' transactions)')

    def new_tid(self, under_way: Transaction) -> bytes:
        """The tid of a transaction that is appended next.  Append lock."""
        tid = under_way.given_tid
        if tid is None:
            tid = self.last_tid = self._tids.next(self.last_tid)
        else:
            self.refuse_unless_later(tid)
        return tid

    def write(self, under_way: Transaction, tid: bytes, counts: bool) -> None:
        """Write the transaction at the end of the file.  Append lock."""
        file = self.file
        assert under_way.known_to is not None
        if under_way.known_to.file is not file:
            for record in under_way.records:
                record.previous = self.positions.get(record.oid, 0)
        self.has_tail = True
        under_way.write(
            file, tid, self.end, self.sequencer.pipeline.durable.end, counts)

    def write_status(self, commit: Commit) -> None:
        self.file.write_at(commit.status, commit.start + STATUS_OFFSET)

    def cut_off_tail(self) -> None:
        """Cut off what was written and not appended.  Append lock."""
        if not self.has_tail or self.closed_because:
            return
        self.cut_off_at = self.end
        self.file.serials.clear()  # some may be of what is cut off
        try:
            self.file.truncate(self.end)
        except OSError as error:
            # The rest of the tail could be taken for a transaction.
            self.sequencer.stop_writing(
                f'the file could not be cut back to {self.end} ({error})')
        else:
            self.has_tail = False
            self.reserve.renew()

    def may_look_whole(self, sealed: bool) -> bool:
        """Could a transaction that a power cut has torn be taken for whole?

        Yes if seals are expected, and it has none.  Yes if parts of an aborted
        transaction may remain at its position: the old seal with the new
        header looks like that of a transaction that stock has rewritten.
        """
        if self.sequencer.durable.end > self.cut_off_at:
            self.cut_off_at = -1
        return self._checksums and (not sealed or self.cut_off_at >= 0)

    def append(self, under_way: Transaction, commit: Commit) -> None:
        """Make the transaction part of the file.  Append lock.

        It is in the file already, and from here on it stays there.  If an
        interrupt comes before it is in the pipeline, no reader sees it until
        the storage is opened again.

        The index is changed before the pipeline, because what is published
        must be found.  All is done under `lock`, because a checkpoint takes
        index and end under it: what it takes must be in the pipeline, to be
        synced before the index counts.
        """
        entries = [(record.oid, record.position)
                   for record in under_way.records]
        with self.lock, self.sequencer.whole_or_stopped:
            self.has_tail = False  # else it would be cut off
            stored, under_way.blobs = under_way.blobs, None
            if self.checkpoints.snapshot is not None:
                self.checkpoints.snapshot.about_to_change(under_way.last)
            self.positions.put(entries)
            if self.map is not None:
                self.map.add({
                    oid: record.position
                    for oid, record in under_way.last.items()})
            self.end = commit.end
            self.last_tid = commit.tid  # may be in the future
            if commit.blobs is None and stored:  # under `none`
                assert self.unsynced_blobs is not None
                self.unsynced_blobs.add(under_way.blob_keys)
            try:
                self.sequencer.append(commit)
            except WritingStopped as error:
                raise SyncFailed(
                    f'{error}. Whether this transaction was kept is known'
                    ' then') from error
        if commit.end >= self.checkpoints.due:
            self.checkpoints.wake()

    # What is synced and shown

    def _sync_batch(self, point: Point, batch: list[Commit]) -> None:
        """The sequencer's sync: of these commits, and all before the point."""
        sync_disk = functools.partial(self._sync_all_of, batch)
        try:
            if self.replica is None:
                sync_disk()
            else:
                self.replica.sync(
                    point.end, functools.partial(self._final_bytes, batch),
                    batch, sync_disk)
        except Exception:
            # From now on, it is not known what is on disk behind the durable
            # end.
            self.retire_map()
            raise
        if (object_map := self.map) is not None:
            object_map.is_durable(point.end)

    def _final_bytes(self, batch: Sequence[Commit], position: int,
                     length: int) -> bytes:
        """The bytes, with the final status of each of these commits: for some,
        it is written only after a sync."""
        data = bytearray(self.read(position, length))
        for commit in batch:
            at = commit.start + STATUS_OFFSET - position
            if commit.status_last and 0 <= at < len(data):
                data[at:at + 1] = commit.status
        return bytes(data)

    def _sync_all_of(self, batch: list[Commit]) -> None:
        """Sync the file and the blobs: a transaction becomes durable together
        with its blobs, under every policy."""
        if self.unsynced_blobs is not None:
            self.unsynced_blobs.sync()
        unfinished = []
        for commit in batch:
            if commit.status_last:
                unfinished.append(commit)
                if commit.blobs:
                    commit.blobs.sync()
        if unfinished:
            self.file.sync()
            for commit in unfinished:
                self.write_status(commit)
        self.file.sync()

    def _show(self, view: View) -> None:
        self.view = view
        if (object_map := self.map) is not None:
            object_map.show(view.end)

    def current(self) -> View:
        """The view for a caller that asks for the current state."""
        if self.sequencer.publishing:
            self.sequencer.pass_gate()
        return self.view

    # Other files, and other readers

    def replace_file(self, file: DataFile, index: fsIndex, end: int) -> None:
        """Go on with another file that has the same current state.

        The append lock is held, and everything is settled and synced.
        Readers that are under way go on with the old file, which is closed
        after the last of them.
        """
        self.reserve.give_back()
        with self.lock:
            # Before anything is appended to the new file.
            old_map = self.replace_map(None)
            old, self.file = self.file, file
            self.positions = Positions(index)
            self.end = end
            self.cut_off_at = -1  # it was a position in the old file
            view = View(file, self.positions, end, self.view.tid)
            self.sequencer.rebase(view)
            self._show(view)
        del old_map  # only now: to free its memory takes a while
        old.unlock()
        self.reserve.move(file)

    def replace_map(self, new: ObjectMap | None) -> ObjectMap | None:
        """Retire the map for local reads, and use another one, or none.

        `lock` is held.  Return the old map: its memory is freed with the last
        reference to it, which the caller should drop without the lock.
        """
        before, self.map = self.map, new
        if before is not None:
            before.retire()
        return before

    def retire_map(self) -> None:
        """From now on, clients do not read the file themselves, but ask the
        server."""
        if (object_map := self.map) is not None:
            object_map.retire()
