"""The inner names of a FileStorage that other programs use.

FsyncStorage is not a FileStorage, but keeps the names that programs read or
set.  Some are used by this package, too: `_lock`, `_commit_lock`,
`_file_name`, `_oid` (for ZODB.tests), and `_is_read_only`.  The others are
here.  Each has a test in tests/storage/test_ecosystem.py.
"""

from typing import Any

from persistent.TimeStamp import TimeStamp
from ZODB.BaseStorage import BaseStorage
from ZODB.FileStorage.format import FileStorageFormatter
from ZODB.fsIndex import fsIndex
from ZODB.POSException import POSKeyError
from ZODB.POSException import Unsupported

from .. import datafile
from . import undo
from .journal import Journal

_FILES = '', '.old', '.tmp', '.lock', '.index', '.pack', '.scrub'


class Ecosystem(FileStorageFormatter, BaseStorage):

    journal: Journal

    # For tools that look at the file, and ZODB.scripts.

    @property
    def _file(self) -> datafile.DataFile:
        return self.journal.file

    @property
    def _pos(self) -> int:
        return self.journal.end

    # For stock's BaseStorage, which sets the first two, and for upstream's
    # tests, which read `_tid`, and set `_ts` to simulate a wrong clock.

    @property
    def _tid(self) -> bytes:
        return self.journal.last_tid

    @_tid.setter
    def _tid(self, tid: bytes) -> None:
        self.journal.last_tid = tid

    @property
    def _ts(self) -> TimeStamp:
        return TimeStamp(self.journal.last_tid)

    @_ts.setter
    def _ts(self, stamp: TimeStamp) -> None:
        self.journal.last_tid = stamp.raw()

    @property
    def _transaction(self) -> Any:
        """For BaseStorage.tpc_transaction, and servers without that method."""
        begun = list(self._begun.values())
        return begun[-1].metadata if begun else None

    # For tools that look at the file, and upstream's tests, which need an
    # fsIndex.

    @property
    def _index(self) -> fsIndex:
        index = fsIndex()
        index._data = self.journal.positions._data
        return index

    # For upstream's tests and tools that follow pointers in the file.

    def _lookup_pos(self, oid: bytes) -> int:
        position = self.journal.positions.get(oid, 0)
        if not position:
            raise POSKeyError(oid)
        return position

    def _txn_find(self, tid: bytes, stop_at_pack: bool) -> int:
        return undo.find_transaction(self.journal.appended, tid, stop_at_pack)

    def _data_find(self, position: int, oid: bytes, data: bytes) -> int:
        return undo.find_data(self.journal.appended, position, oid, data)

    # BlobStorageMixin's own hook would put a blob file in place without a
    # sync, and an abort would not take it back.

    def _blob_storeblob(self, oid: bytes, serial: bytes, path: str) -> None:
        raise Unsupported('a blob file is given to storeBlob or restoreBlob')

    # Public in FileStorage, though in no interface.

    def lastTid(self, oid: bytes) -> bytes | None:
        """As getTid, but None for an object that is not there."""
        try:
            return self.getTid(oid)
        except KeyError:
            return None

    def cleanup(self) -> None:
        """Remove the files of the closed storage (tests call this)."""
        for suffix in _FILES:
            datafile.remove_if_there(self._file_name + suffix)

    def getExtensionMethods(self) -> dict[str, Any]:
        """More methods that servers offer to clients; ZEO's tests need one."""
        return {'answer_to_the_ultimate_question': None}

    def answer_to_the_ultimate_question(self) -> int:
        return 42
