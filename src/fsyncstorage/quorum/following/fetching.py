"""Brings the blobs that a batch names into the blob directory of a node that
follows.

Their files are durable before the batch counts (I11): each is written under
another name, synced, and renamed; then the directories are synced.  A file
that is there already with the right contents stays, for example when a start
repeats what was done.  A file with other contents is replaced: the log is
right.

The contents come from a member that has the whole blob, as the record names
it.  If none has it, a wrong member may have shown the record.

A crash leaves files in `tmp`, which a start removes.  It may also leave files
that the log does not name; there is a list of these (newblobs).

Only the thread of the follower uses this module.
"""

import os
import tempfile
from collections.abc import Iterable

import ZODB.blob

from ... import datafile
from ...commit.blobs import UPLOAD
from ...commit.blobs import Placed
from ...errors import DiskError
from ...storage import opening
from ..files import newblobs
from ..history.fold import Why
from ..history.record import Blob
from ..history.record import Data
from ..history.record import Record
from ..history.staged import has
from ..history.staged import lengths
from ..history.staged import new_sum
from ..log.interface import Log
from ..log.interface import Unanswered
from ..log.members import each
from ..log.reading import Refused


def refuse_without(blob_dir: str | None, record: Record) -> None:
    """Refuse a record whose blobs this node cannot keep."""
    if blob_dir is None and isinstance(
            record.body, Data) and record.body.blobs:
        raise Refused(
            f'record {record.sequence} has blobs, and this node has no'
            ' blob-dir: give it one, as the others have')


class Fetching:

    def __init__(self, data_path: str, blob_dir: str) -> None:
        self._data_path = data_path
        self.blob_dir = os.path.abspath(blob_dir)
        self.helper: ZODB.blob.FilesystemHelper = opening.blob_helper(
            self.blob_dir, create=False, read_only=False)
        self._durable_names: set[str] = set()
        #: The batch that is not whole yet: its blobs, by oid and tid, and the
        #: path of their list.
        self._batch: dict[tuple[bytes, bytes], Blob] = {}
        self._list: str | None = None
        self._lists = newblobs.Lists()
        #: The files that were fetched for that batch.
        self._brought: list[str] = []

    def add(self, blobs: Iterable[Blob]) -> None:
        """A record of the batch names these blobs."""
        self._batch.update({(blob.oid, blob.tid): blob for blob in blobs})

    def give_up(self) -> None:
        """The batch will never count."""
        self._batch.clear()

    def fetch(self, log: Log, sequence: int,
              last: Iterable[Blob] = ()) -> None:
        """The batch is whole with this record, which names the last of its
        blobs: make them durable.

        After OSError, Unanswered, or a Refused for damage, call it again, or
        `take_back`.  A DiskError is final (I7).
        """
        batch = {**self._batch,
                 **{(blob.oid, blob.tid): blob for blob in last}}
        if not batch:
            return
        missing = [
            blob for (oid, tid), blob in batch.items()
            if not has(self.helper.getBlobFilename(oid, tid), blob.size,
                       blob.checksum)]
        if missing and self._list is None:
            self._list = newblobs.write(
                self._data_path, {blob.oid for blob in missing})
        for blob in missing:
            self._bring(log, blob)
        self._sync(batch)
        self._batch.clear()
        self._brought.clear()
        if self._list is not None:
            self._lists.until(sequence, self._list)
            self._list = None

    def take_back(self) -> None:
        """The record was wrong: remove what was fetched for it."""
        for path in self._brought:
            datafile.remove_if_there(path)
            datafile.disk.sync_directory(os.path.dirname(path))
        self._brought.clear()
        if self._list is not None:
            datafile.remove_if_there(self._list)
            self._list = None

    @property
    def has_lists(self) -> bool:
        """There are lists of batches after what is kept."""
        return self._lists.are_due

    def kept(self, sequence: int) -> None:
        """The state after this record is kept."""
        self._lists.kept(sequence)

    # One blob

    def _bring(self, log: Log, blob: Blob) -> None:
        lacking = 0
        try:
            for path in each(
                    log, lambda member: self._copied(log, blob, member)):
                if path is not None:
                    self._place(blob, path)
                    return
                lacking += 1
        except Unanswered:
            if lacking < log.members:
                raise
        raise Refused(
            f'no member has the blob {blob.staged.hex()}, of object'
            f' {blob.oid.hex()} in transaction {blob.tid.hex()}, as it was'
            ' staged. Replace those whose disks are damaged', Why.DAMAGED)

    def _copied(self, log: Log, blob: Blob, member: int) -> str | None:
        """A durable file with the contents; None if the member does not have
        the whole blob."""
        path: str = tempfile.mktemp(prefix=UPLOAD, dir=self.helper.temp_dir)
        is_whole = False
        try:
            with datafile.open_new(path) as file:
                if _is_copied(log, blob, member, file):
                    file.sync()
                    is_whole = True
        finally:
            if not is_whole:
                datafile.remove_if_there(path)
        return path if is_whole else None

    def _place(self, blob: Blob, path: str) -> None:
        target = self.helper.getBlobFilename(blob.oid, blob.tid)
        datafile.make_directories(
            os.path.dirname(target), self._durable_names.discard)
        ZODB.blob.set_not_writable(path)
        self._brought.append(target)
        datafile.disk.replace(path, target)

    def _sync(self, batch: Iterable[tuple[bytes, bytes]]) -> None:
        """Sync all blobs, as those that were there may not be synced."""
        try:
            Placed(
                self.helper, self._durable_names,
                b''.join(oid + tid for oid, tid in batch)
                ).sync()
        except OSError as error:
            raise DiskError(
                f'{self.blob_dir}: a sync failed ({error}): what is on the'
                ' disk is in doubt. Check it, then start this node again: it'
                ' reads from the log what is missing') from error


def _is_copied(log: Log, blob: Blob, member: int,
               file: datafile.DataFile) -> bool:
    checksum, position = new_sum(), 0
    for number, length in enumerate(lengths(blob.size)):
        chunk = log.staged(blob.staged, number, member)
        if chunk is None or len(chunk) != length:
            return False
        checksum.update(chunk)
        file.write_at(chunk, position)
        position += length
    return checksum.digest() == blob.checksum
