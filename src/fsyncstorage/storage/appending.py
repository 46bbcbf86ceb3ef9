"""The end of the file: writes there, cuts off, and appends.

The steps of a commit here run under the append lock (`_commit_lock`), in the
order of the recipes in `commits`.  Bytes that were written and not appended
are a *tail*: it is cut off after a failure, and before anything else is
written.

The sequencer calls `_sync_batch` to sync, and `_show` to let readers see what
it has published: commit.sequencer says when.  Where there is a replica
(commit.replica), a sync goes to the disk and to a log, at the same time.
"""

import functools
import os
from collections.abc import Sequence

from ZODB.POSException import StorageTransactionError

from ..commit.blobs import Placed
from ..commit.blobs import Stored
from ..commit.pipeline import Commit
from ..commit.pipeline import Point
from ..commit.replica import Replica
from ..errors import SyncFailed
from ..errors import WritingStopped
from ..format.view import View
from .checkpoints import Checkpoints
from .objectmap import ObjectMap
from .records import Records
from .transaction import STATUS_OFFSET
from .transaction import Transaction


class Appending(Records):

    _checkpoints: Checkpoints
    _unsynced_blobs: Placed
    #: The map for local reads, while it is built or used.
    _map: ObjectMap | None = None
    #: Only under a policy that is replicated.
    replica: Replica | None = None

    def _refuse_unless_later(self, tid: bytes) -> None:
        last = self._sequencer.pipeline.appended.tid
        if tid <= last:
            raise StorageTransactionError(
                f'the transaction id {tid.hex()} is not later'
                f' than {last.hex()}, the last one. (Where the ids of a'
                ' database do not rise, move its files, not its'
                ' transactions)')

    def _new_tid(self, under_way: Transaction) -> bytes:
        tid = under_way.given_tid
        if tid is None:
            tid = self._last_given = self._tids.next(self._last_given)
        else:
            self._refuse_unless_later(tid)
        return tid

    def _write(self, under_way: Transaction, tid: bytes, counts: bool) -> None:
        """Write the transaction at the end of the file."""
        file = self._file
        assert under_way.known_to is not None
        if under_way.known_to.file is not file:
            for record in under_way.records:
                record.previous = self._positions.get(record.oid, 0)
        self._has_tail = True
        under_way.write(
            file, tid, self._pos, self._sequencer.pipeline.durable.end,
            counts)

    def _leave_no_tail(self) -> None:
        """Cut off what was written and not appended."""
        if not self._has_tail or self._closed:
            return
        self._cut_back_to = self._pos
        try:
            self._file.truncate(self._pos)
        except OSError as error:
            # The rest of the tail could be taken for a transaction.
            self._sequencer.stop_writing(
                f'the file could not be cut back to {self._pos} ({error})')
        else:
            self._reserve.renew()
        self._has_tail = False

    def about_to_close(self) -> None:
        """Let votes fail that wait for a log, or resolve a conflict.

        For a server, which ends its threads before it closes the storage."""
        if self._resolver is not None:
            self._resolver.close()
        if self.replica is not None:
            self.replica.closing()

    def _prepare_blobs(self, under_way: Transaction, stored: Stored) -> None:
        """Part of the vote: do what can fail, except for the names."""
        if self.replica is not None:
            # Now also the blobs that an undo has copied since.
            self.replica.keep_blobs(stored)
        stored.prepare(under_way.policy.name != 'none')

    def _name_blobs(self, under_way: Transaction, commit: Commit) -> None:
        assert under_way.blobs is not None
        with self._lock:  # a pack removes empty directories under this lock
            keys = under_way.blob_keys = under_way.blobs.name(commit.tid)
        commit.kept = under_way.blobs.kept
        if commit.blobs is not None:
            commit.blobs.add(keys)

    def _append(self, under_way: Transaction, commit: Commit) -> None:
        """Make the transaction part of the file.

        It is in the file already, and from here on it stays there.  If an
        interrupt comes before it is in the pipeline, no reader sees it until
        the storage is opened again.

        The index is changed before the pipeline, because what is published
        must be found.  All is done under `_lock`, because a checkpoint takes
        index and position under it: what it takes must be in the pipeline, to
        be synced before the index counts.
        """
        with self._lock, self._sequencer.whole_or_stopped:
            self._has_tail = False  # else it would be cut off
            stored, under_way.blobs = under_way.blobs, None
            if self._checkpoints.snapshot is not None:
                self._checkpoints.snapshot.about_to_change(under_way.last)
            self._positions.put(
                [(record.oid, record.place) for record in under_way.records])
            if self._map is not None:
                self._map.add({
                    oid: record.place
                    for oid, record in under_way.last.items()})
            self._pos = commit.end
            self._last_given = commit.tid  # may be in the future
            if commit.blobs is None and stored:  # under `none`
                self._unsynced_blobs.add(under_way.blob_keys)
            try:
                self._sequencer.append(commit)
            except WritingStopped as error:
                raise SyncFailed(
                    f'{error}. Whether this transaction was kept is known'
                    ' then') from error
        if commit.end >= self._checkpoints.due:
            self._checkpoints.wake()

    def _write_status(self, commit: Commit) -> None:
        self._file.write_at(commit.status, commit.start + STATUS_OFFSET)

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
        if (object_map := self._map) is not None:
            object_map.is_durable(point.end)

    def _bytes(self, position: int, length: int) -> bytes:
        descriptor = self._file.descriptor  # as in DataFile
        return os.pread(descriptor.number, length, position)

    def _final_bytes(self, batch: Sequence[Commit], position: int,
                     length: int) -> bytes:
        """The bytes, with the final status of each of these commits: for some,
        it is written only after a sync."""
        data = bytearray(self._bytes(position, length))
        for commit in batch:
            at = commit.start + STATUS_OFFSET - position
            if commit.status_last and 0 <= at < len(data):
                data[at:at + 1] = commit.status
        return bytes(data)

    def _sync_all_of(self, batch: list[Commit]) -> None:
        """Sync the file and the blobs: a transaction becomes durable together
        with its blobs, under every policy."""
        if self.blob_dir:
            self._unsynced_blobs.sync()
        unfinished = []
        for commit in batch:
            if commit.status_last:
                unfinished.append(commit)
                if commit.blobs:
                    commit.blobs.sync()
        if unfinished:
            self._file.sync()
            for commit in unfinished:
                self._write_status(commit)
        self._file.sync()

    def _show(self, view: View) -> None:
        self._view = view
        if (object_map := self._map) is not None:
            object_map.show(view.end)

    def replace_map(self, new: ObjectMap | None) -> ObjectMap | None:
        """Retire the map for local reads, and use another one, or none.

        `_lock` is held.  Return the old map: its memory is freed with the last
        reference to it, which the caller should drop without the lock.
        """
        before, self._map = self._map, new
        if before is not None:
            before.retire()
        return before

    def retire_map(self) -> None:
        """From now on, clients do not read the file themselves, but ask the
        server."""
        if (object_map := self._map) is not None:
            object_map.retire()
