"""Which records undo a transaction.

To undo a transaction, each object that it changed gets a new record with the
data that the object had before: mostly a pointer back to these data.  If the
object was changed since, the later change must be kept: if the two changes can
be merged by conflict resolution, the record has the result; if not, the
transaction cannot be undone.

Everything is looked up in a `View` of what is appended, and in the transaction
that is under way, which may have undone others before.  Nothing is changed
here: the caller (checks) gets all records, or an error.
"""

import os
from collections.abc import Callable

from ZODB.POSException import ConflictError
from ZODB.POSException import MultipleUndoErrors
from ZODB.POSException import POSKeyError
from ZODB.POSException import UndoError
from ZODB.utils import z64

from ..format.headers import header_at
from ..format.headers import headers_before
from ..format.scan import FIRST
from ..format.scan import RECORD_HEADER
from ..format.view import View
from ..format.view import read_header
from .transaction import NewRecord
from .transaction import Transaction

Resolve = Callable[[bytes, bytes, bytes, bytes, bytes], bytes]


def records(view: View, under_way: Transaction, position: int,
            resolve: Resolve) -> list[NewRecord]:
    """The records that undo the transaction at this position.

    Each has its data, or points back to them; if it points to 0, the creation
    of the object is undone.

    `resolve(oid, current tid, tid, earlier data, current data)` returns data,
    or raises ConflictError.
    """
    header = header_at(view.window(), position)
    if header.status != b' ':
        raise UndoError('non-undoable transaction')
    result = []
    failures: dict[bytes, UndoError] = {}
    position, end = header.records, header.position + header.length
    while position < end:
        oid, tid, previous, _, _, size = read_header(view.file, position)
        failures.pop(oid, None)  # a later record of the object may succeed
        try:
            data, back = _undone(
                view, under_way, oid, position, tid, previous, resolve)
        except UndoError as error:
            failures[oid] = error
        else:
            record = NewRecord(oid, data, back=back)
            record.previous = view.index.get(oid, 0)
            result.append(record)
        position += RECORD_HEADER + (size or 8)
    if position > end:
        raise UndoError('non-undoable transaction')
    if failures:
        raise MultipleUndoErrors(list(failures.items()))
    return result


def _undone(view: View, under_way: Transaction, oid: bytes, position: int,
            tid: bytes, previous: int, resolve: Resolve) -> tuple[bytes, int]:
    """The data or the back pointer that undoes the record at a position."""
    current = view.index.get(oid, 0)
    if oid in under_way.last or current != position:
        current_tid, data, same = _current(view, under_way, oid, current,
                                           position)
        if not same:
            if not previous:
                raise UndoError(
                    "Can't undo an add transaction followed by"
                    ' conflicting transactions.', oid)
            return _merged(view, oid, previous, resolve,
                           (current_tid, tid), data), 0
    return b'', previous


def _current(view: View, under_way: Transaction, oid: bytes, current: int,
             position: int) -> tuple[bytes, bytes, bool]:
    """Tid and data of the current record; and are these the data of the record
    at that position?"""
    own = under_way.last.get(oid)
    if own is not None:
        # The tid is not known yet, and not needed to resolve a conflict.
        tid, back = z64, own.back
        data = under_way.read_data(own.data) if own.length else b''
    else:
        tid, data, back = view.record(oid, current)
    if back == position and not data:
        return tid, data, True
    try:
        undone, _ = view.load_back(oid, position)
        if not data:
            data, _ = view.load_back(oid, back)
    except POSKeyError:
        raise UndoError('_loadBack() failed', oid) from None
    return tid, data, undone == data


def _merged(view: View, oid: bytes, previous: int, resolve: Resolve,
            tids: tuple[bytes, bytes], data: bytes) -> bytes:
    """Merge the data from before with the changes since."""
    try:
        earlier, _ = view.load_back(oid, previous)
    except POSKeyError:
        raise UndoError('_loadBack() failed for %s', oid) from None
    try:
        return resolve(oid, *tids, earlier, data)
    except ConflictError:
        raise UndoError(
            'Some data were modified by a later transaction', oid) from None


# Positions

def find_transaction(view: View, tid: bytes, stop_at_pack: bool) -> int:
    """The position of the transaction with this tid.

    `stop_at_pack`: not one that was packed, which cannot be undone."""
    # For an invalid tid, do not search the whole file.
    end = view.end if len(tid) == 8 else FIRST
    for header in headers_before(view.window(), end):
        if header.tid == tid:
            return header.position
        if stop_at_pack and header.status == b'p':
            break
    raise UndoError('Invalid transaction id')


def find_data(view: View, position: int, oid: bytes,
              data: bytes | None) -> int:
    """The position of the object's record in the transaction at `position`.

    0 if there is no such record, or if it has other data.  (If there are
    several, it is the last one, as for readers.  A record that itself points
    back is trusted.)
    """
    header = header_at(view.window(), position)
    position, end = header.records, header.position + header.length
    found = size_found = 0
    while position < end:
        other, _, _, _, _, size = read_header(view.file, position)
        if other == oid:
            found, size_found = position, size
        position += RECORD_HEADER + (size or 8)
    if size_found and (
            data is None or size_found != len(data) or data != _read(
                view, found + RECORD_HEADER, size_found)):
        return 0
    return found


def _read(view: View, position: int, length: int) -> bytes:
    descriptor = view.file.descriptor
    return os.pread(descriptor.number, length, position)
