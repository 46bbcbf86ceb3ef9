"""What a vote compares: what was stored and read, with what is appended (I6).

Conflicts are resolved, or left to the client of a server (told.ForAClient).
What a transaction undoes is worked out again if anything was appended since.

A transaction that conflicts with one that is not published yet lets go of its
objects, and the conflict is raised when the other one is published: see
`_give_way`.

Left to others: what is stored (commits), the records of an undo (undo), who
resolves a conflict (conflicts).
"""

import contextlib
import functools
import os
import shutil
from collections.abc import Callable
from collections.abc import Iterable
from typing import Any

from ZODB.blob import BlobStorageMixin
from ZODB.FileStorage.format import DATA_HDR_LEN
from ZODB.POSException import ConflictError
from ZODB.POSException import POSKeyError
from ZODB.POSException import ReadConflictError
from ZODB.POSException import UndoError
from ZODB.utils import mktemp

from .. import datafile
from ..errors import ConflictsLeft
from ..errors import Unpublished
from ..errors import Unresolved
from ..format.classes import is_of_blob
from ..format.view import View
from ..format.view import pread_cached
from ..format.view import read_header
from ..format.view import serial_at
from . import undo
from .conflicts import LONGEST_WAIT
from .conflicts import Conflicts
from .conflicts import leave
from .journal import Journal
from .statistics import Counts
from .transaction import NewRecord
from .transaction import Restored
from .transaction import Transaction

_REPLACED = ('a pack has ended since it was called, and may have removed what'
             ' it would restore')
_NO_FILE = ('the file of the blob that this would restore is not there any'
            ' more: a pack may have taken it away just now')


class Checks:

    def __init__(self, storage: Any, journal: Journal, conflicts: Conflicts,
                 counts: Counts, let_go: Callable[[Transaction], object]
                 ) -> None:
        """`storage` resolves conflicts and has the files of blobs; `let_go`
        frees all that a transaction holds."""
        self._storage = storage
        self._journal = journal
        self._conflicts = conflicts
        self._counts = counts
        self._let_go = let_go

    def check(self, under_way: Transaction) -> None:
        """Compare what it stores and has read with what is appended; or work
        out again what it undoes."""
        if under_way.is_spilled:
            under_way.come_back()
        view = self._journal.appended
        if under_way.known_to is view:
            return  # nothing was appended since
        if under_way.undone:
            self.undo_again(under_way, view)
        else:
            self._compare(under_way, view)
        under_way.known_to = view

    def is_plain(self, under_way: Transaction) -> bool:
        """Would the vote neither conflict nor wait for the disk, as far as can
        be seen without waiting?"""
        view = self._journal.view
        return not (under_way.read or under_way.undone
                    or under_way.is_spilled) and all(
            record.length and record.restored is None
            and _is_of_base(view, record) for record in under_way.records)

    def _compare(self, under_way: Transaction, view: View) -> None:
        known_to = under_way.known_to
        for record in under_way.records:
            position = view.index.get(record.oid, 0)
            if (position != record.previous or known_to is None
                    or known_to.file is not view.file):
                self._compare_record(under_way, record, view, position)
        client = under_way.client
        if client is not None and client.conflicts:
            raise ConflictsLeft(client.conflicts)
        for oid, serial in under_way.read.items():
            self._refuse_unless_current(under_way, oid, serial, view)

    def _compare_record(self, under_way: Transaction, record: NewRecord,
                        view: View, position: int) -> None:
        if record.restored is not None:
            self._point_to_same(under_way, record, record.restored)
        elif not record.stored:
            self._refuse_deletion(under_way, record, view, position)
        elif position:
            committed = serial_at(view.file, position, record.oid)
            if committed == record.oldserial:
                # One object for all of them.
                record.base = record.oldserial = committed
            elif committed != record.base and not self._merge(
                    under_way, record, committed):
                return  # the client has to resolve it
        record.previous = position

    def _point_to_same(self, under_way: Transaction, record: NewRecord,
                       restored: Restored) -> None:
        """Let a restored record point to the same data in the transaction that
        it names."""
        if restored.tid is not None:
            data = under_way.read_data(record.data) if record.stored else None
            try:
                position = self._storage.position_of_same(
                    restored.tid, record.oid, data)
            except UndoError:
                position = 0  # a pack may have removed it: it has its own
            under_way.points_to(record, position)

    def _merge(self, under_way: Transaction, record: NewRecord,
               committed: bytes) -> bool:
        """Resolve a conflict; or leave it to the client."""
        stored = under_way.read_data(
            record.data if record.original is None else record.original)
        try:
            data = self._resolve(
                under_way, record.oid, committed, record.oldserial, stored)
        except ConflictError as error:
            self._give_way(under_way, committed)
            self._count_conflict(under_way)
            if under_way.client is None:
                raise
            under_way.client.leave(record.oid, stored, error)
            return False
        under_way.resolve(record, data)
        under_way.resolved.append(record.oid)
        record.base = committed
        return True

    def _resolve(self, under_way: Transaction, oid: bytes, *of_it: bytes
                 ) -> bytes:
        """Call `tryToResolveConflict`; but, in a server, not for long for one
        transaction, because others may wait for objects that it has."""
        client, conflicts = under_way.client, self._conflicts
        if client is not None and not client.resolve:
            raise Unresolved
        if not conflicts.of_clients:
            return self._by_storage(oid, *of_it)
        if under_way.resolving > LONGEST_WAIT:
            leave(oid, *of_it)
        conflicts.spent.seconds = 0.0
        try:
            return self._by_storage(oid, *of_it)
        finally:
            under_way.resolving += conflicts.spent.seconds

    def _by_storage(self, oid: bytes, *of_it: bytes) -> bytes:
        data: bytes = self._storage.tryToResolveConflict(oid, *of_it)
        return data

    def _count_conflict(self, under_way: Transaction) -> None:
        # The server counts the conflicts of its clients, once a vote has
        # failed: the vote may be repeated, and a client may resolve conflicts.
        if under_way.client is None:
            self._counts.conflict()

    def _refuse_deletion(self, under_way: Transaction, record: NewRecord,
                         view: View, position: int) -> None:
        oid = record.oid
        if not position:
            # It was deleted, perhaps by a transaction that is not published.
            self._give_way_to_all(under_way)
            raise POSKeyError(oid)
        committed = read_header(view.file, position, oid)[1]
        if committed != record.oldserial:
            self._give_way(under_way, committed)
            self._count_conflict(under_way)
            raise ConflictError(
                oid=oid, serials=(committed, record.oldserial))

    def _refuse_unless_current(self, under_way: Transaction, oid: bytes,
                               serial: bytes, view: View) -> None:
        position = view.index.get(oid, 0)
        if position:
            _, tid, _, _, _, length = read_header(view.file, position, oid)
            if tid == serial and length:
                return  # the usual case
        try:
            committed = view.get_tid(oid)
        except POSKeyError:  # deleted, perhaps by an unpublished transaction
            self._give_way_to_all(under_way)
            raise
        if committed != serial:
            self._give_way(under_way, committed)
            self._count_conflict(under_way)
            raise ReadConflictError(oid=oid, serials=(committed, serial))

    # It must fail

    def _give_way_to_all(self, under_way: Transaction) -> None:
        """It fails, and nobody knows because of which transaction.

        Once only: while others commit, there is always one that is appended
        and not published, and the vote would be put aside for ever."""
        if not under_way.gave_way:
            under_way.gave_way = True
            self._give_way(under_way, self._journal.appended.tid)

    def _give_way(self, under_way: Transaction, tid: bytes) -> None:
        """This transaction conflicts with the transaction of this tid (I6).

        If that one is not published, a retry would not see it, and conflict
        again.  So wait until it is; but first let go of everything, because a
        transaction that must fail should delay nobody.  An event loop that
        owns the publishing, and the threads that vote for it, do not wait.
        """
        journal = self._journal
        # A restored record may have any tid.
        tid = min(tid, journal.appended.tid)
        if tid > journal.view.tid:
            if journal.sequencer.owned and under_way.client is not None:
                raise Unpublished(tid)
            self._let_go(under_way)
            journal.sequencer.wait_for(tid)

    # Undo

    def undo_again(self, under_way: Transaction, view: View) -> None:
        if under_way.undone_in not in (None, view.file):
            raise UndoError(_REPLACED)
        under_way.forget_undoing()
        for tid in under_way.undone:
            self.undo(under_way, tid, view)

    def undo(self, under_way: Transaction, tid: bytes,
             view: View) -> list[bytes]:
        """Add the records that undo a transaction; return their oids."""
        try:
            records = undo.records(
                view, under_way, undo.find_transaction(view, tid, True),
                functools.partial(self._resolve, under_way))
            self._copy_blobs(under_way, view, records)
        except (UndoError, ConflictError):
            self._give_way_to_all(under_way)
            raise
        for record in records:
            under_way.add_undoing(record)
        return list(dict.fromkeys(record.oid for record in records))

    def _copy_blobs(self, under_way: Transaction, view: View,
                    records: Iterable[NewRecord]) -> None:
        """Copy the blob file of each record that points back to a blob's
        record, which needs a file of its own; all of them, or none."""
        storage = self._storage
        with contextlib.ExitStack() as copies:
            paths = {}
            for record in records:
                if not record.back:
                    continue
                try:
                    data, serial = view.load_back(record.oid, record.back)
                except POSKeyError:
                    continue  # the creation was undone
                if under_way.blobs is None:
                    if is_of_blob(data):
                        storage.refuse_blob()
                elif storage.is_blob_record(data):
                    path = paths[record.oid] = mktemp(
                        dir=storage.fshelper.temp_dir)
                    copies.callback(datafile.remove_if_there, path)
                    self._copy_blob_file(record.oid, serial, path)
            for oid, path in paths.items():
                assert under_way.blobs is not None
                under_way.blobs.take(path, oid, None)

    def _copy_blob_file(self, oid: bytes, serial: bytes, path: str) -> None:
        try:
            source = BlobStorageMixin.loadBlob(self._storage, oid, serial)
        except POSKeyError:
            raise UndoError(_NO_FILE, oid) from None
        try:
            shutil.copyfile(source, path)
        except FileNotFoundError:
            if os.path.exists(source):
                raise
            raise UndoError(_NO_FILE, oid) from None


def _is_of_base(view: View, record: NewRecord) -> bool:
    """Is the revision that it replaces the current one?  False if that cannot
    be seen without waiting."""
    position = view.index.get(record.oid, 0)
    serial = record.oldserial
    if not position or view.file.serials.get(position) == serial:
        return True
    descriptor = view.file.descriptor
    try:
        return pread_cached(
            descriptor.number, DATA_HDR_LEN, position
        ).startswith(record.oid + serial)
    except (OSError, ValueError):
        return False
