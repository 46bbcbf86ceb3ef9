"""Lists of objects whose blobs are about to get their files.

A blob file gets its name before its batch counts.  The batch may never come to
count, because the node crashes or has followed a wrong member.  Then the file
must be removed, because the blob directories of two nodes must be the same.
To search a whole blob directory for it would take minutes.  So a node that is
about to name files first writes a list of the objects, durably, and removes
the list when it has kept a state after their batch (state).

A start finds the lists.  For each object in them it removes the blob files
whose tid is later than what was kept, if the log does not name them.

A list is a file beside the data file.
"""

import logging
import os
import tempfile
from collections.abc import Collection
from collections.abc import Iterator

import ZODB.blob

from ... import datafile
from ...commit.blobs import uploads
from ..history.fold import State
from ..history.record import OID
from ..history.record import Data
from ..history.record import Record
from .state import SUFFIX

logger = logging.getLogger(__name__)

# The name of a list, after the name of the data file.
_BLOBS = SUFFIX + '.blobs-'


def write(data_path: str, oids: Collection[bytes]) -> str:
    """Write a new list of these objects; return its path."""
    directory, name = os.path.split(os.path.abspath(data_path))
    path = tempfile.mktemp(prefix=name + _BLOBS, dir=directory)
    try:
        with datafile.open_new(path) as file:
            file.write_at(b''.join(oids), 0)
            file.sync()
        datafile.disk.sync_directory(directory)
    except BaseException:
        datafile.remove_if_there(path)
        raise
    return path


def _paths(data_path: str) -> list[str]:
    directory, name = os.path.split(os.path.abspath(data_path))
    with os.scandir(directory) as entries:
        return [entry.path for entry in entries
                if entry.name.startswith(name + _BLOBS)
                and entry.is_file(follow_symlinks=False)]


class Lists:
    """The lists that this process has written and that are still needed."""

    def __init__(self) -> None:
        self._due: list[tuple[int, str]] = []

    @property
    def are_due(self) -> bool:
        return bool(self._due)

    def until(self, sequence: int, path: str) -> None:
        """The list is needed until a state after this record is kept."""
        self._due.append((sequence, path))

    def kept(self, sequence: int) -> None:
        """The state after this record is kept."""
        for last, path in self._due:
            if last <= sequence:
                datafile.remove_if_there(path)
        self._due = [each for each in self._due if each[0] > sequence]


class FoundLists:
    """The lists that a start finds, and what becomes of their objects.

    Call `begin`, and `look_at` for each record that the log has after what
    was kept; then `remove_files`; and `remove`, when all of it is kept.
    """

    def __init__(self, data_path: str, blob_dir: str | None) -> None:
        #: None: this node has no blob directory.
        self.blob_dir = blob_dir
        self._name = data_path
        self._paths = _paths(data_path)
        self._oids: set[bytes] = set()
        for path in self._paths:
            self._read(path)
        self.begin()

    def _read(self, path: str) -> None:
        """(If a list was not written to its end, its files did not get their
        names.)"""
        with open(path, 'rb') as file:
            while len(oid := file.read(OID)) == OID:
                self._oids.add(oid)

    def begin(self) -> None:
        """From now on the log is read from its begin."""
        #: Blobs of these objects that the log names, by oid and tid: of whole
        #: batches, and of one that is not whole yet.
        self._named: set[tuple[bytes, bytes]] = set()
        self._of_batch: set[tuple[bytes, bytes]] = set()

    def look_at(self, state: State, record: Record) -> None:
        """The log has this record, and `state` is the state after it."""
        body = record.body
        if isinstance(body, Data):
            self._of_batch |= {
                (blob.oid, blob.tid) for blob in body.blobs
                if blob.oid in self._oids}
            if state.incomplete is None:
                self._named |= self._of_batch
        if state.incomplete is None:
            self._of_batch = set()

    def remove_files(self, helper: ZODB.blob.FilesystemHelper,
                     kept: bytes) -> None:
        """Remove the blob files of these objects that are later than this tid
        and not named, and all uploads that were not finished."""
        removed = 0
        for oid in self._oids:
            gone = [path for tid, path in _later(helper, oid, kept)
                    if (oid, tid) not in self._named]
            for path in gone:
                datafile.disk.remove(path)
            if gone:
                datafile.disk.sync_directory(os.path.dirname(gone[0]))
            removed += len(gone)
        if removed:
            logger.warning(
                '%s: removed %d blob files of transactions that the log does'
                ' not have', self._name, removed)
        for path in uploads(helper.temp_dir):
            datafile.remove_if_there(path)

    def remove(self) -> None:
        """All that the log says is kept: remove the lists."""
        for path in self._paths if self.blob_dir is not None else ():
            datafile.remove_if_there(path)


def _later(helper: ZODB.blob.FilesystemHelper, oid: bytes,
           kept: bytes) -> Iterator[tuple[bytes, str]]:
    """The blob files of an object later than this tid, as tid and path."""
    directory = helper.getPathForOID(oid)
    for name in os.listdir(directory) if os.path.isdir(directory) else ():
        path = os.path.join(directory, name)
        try:
            tid = helper.splitBlobFilename(path)[1]
        except ValueError:
            continue
        if tid is not None and tid > kept:
            yield tid, path
