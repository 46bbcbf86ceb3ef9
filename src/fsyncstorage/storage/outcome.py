"""What became of a commit whose answer was lost.

A client names its transaction by a *commit id*, 16 random bytes, and the seal
of the transaction has it in the file.  So the question is answered by the file
alone: also after a crash, and on another node that has the same file.

    COMMITTED       the transaction is published, with this tid
    NOT_COMMITTED   it is not there, and never will be
    UNKNOWN         the file cannot tell; the reason is in words

First the commit id is *barred*: from then on, a finish of its transaction
appends nothing, and one that has appended it before is waited for.  Then one
walk goes back over headers and seals, from the published end to `since`.
docs/internals/commit.rst says when the answer is UNKNOWN, and why.

`name` puts a commit id beside the metadata of a transaction, because a wrapper
(zlib, encryption) passes on these and no other argument of a begin.

Left to others: that nobody begins a transaction with the commit id once more
(the caller).
"""

import itertools
import os
import typing
from typing import Any

from ZODB.POSException import StorageTransactionError
from ZODB.utils import z64

from ..format.headers import headers_before
from ..format.scan import FIRST
from ..format.seal import NO_ID
from ..format.view import View
from ..format.view import check_serial
from .transaction import Metadata

COMMITTED = 'committed'
NOT_COMMITTED = 'not committed'
UNKNOWN = 'unknown'

#: The walk goes over so many transactions at most.
MOST_TRANSACTIONS = 1_000_000

_PACKED = 'a pack may have removed it'
_NOT_THERE = 'the transaction after which it began is not there'
_WITHOUT_ID = 'a transaction that has no commit id was written since then'

_BESIDE = 'commit_id'


class Outcome(typing.NamedTuple):

    word: str
    #: Of a transaction that is committed.
    tid: bytes | None = None
    #: Why it is unknown.
    reason: str = ''


def name(metadata: Metadata, id: bytes) -> None:
    """Give a transaction this commit id, before it begins."""
    _refuse_id(id)
    setattr(metadata, _BESIDE, id)


def id_for(metadata: Metadata, tid: bytes | None) -> bytes:
    """The commit id of a transaction that begins, with a given tid or not."""
    id: bytes | None = getattr(metadata, _BESIDE, None)
    if tid is not None:
        # It may be a copy, and there may be a second one of it: the id must
        # not be in either.
        if id is not None:
            raise StorageTransactionError(
                'a transaction whose id is given cannot have a commit id')
        return NO_ID
    if id is None:
        # Nobody asks for it.  Random bytes take less than a microsecond, and
        # cannot be drawn again: not by a fork, nor after a restart.
        return os.urandom(len(NO_ID))
    _refuse_id(id)
    return id


def _refuse_id(id: object) -> None:
    if id.__class__ is not bytes or len(id) != len(NO_ID) or id == NO_ID:
        raise ValueError(
            f'a commit id is {len(NO_ID)} bytes, and not all of them are zero:'
            f' not {id!r:.80}')


# Barred

def bar(storage: Any, id: bytes) -> None:
    """As the storage's method."""
    _refuse_id(id)
    storage.journal.refuse_when_closed()
    with storage._commit_lock:
        for under_way in list(storage._begun.values()):
            if under_way.commit_id == id:
                under_way.barred = True
    # If it was appended before that, it is among these.
    storage._sequencer.drain()


# The walk

def of(storage: Any, id: bytes, since: bytes, most: int | None) -> Outcome:
    """As the storage's method `outcome`."""
    check_serial(since)
    bar(storage, id)
    with storage._sequencer.mutex:
        view = storage._sequencer.pipeline.visible
    found = _in_file(view, id, since, most or MOST_TRANSACTIONS)
    if found.word == NOT_COMMITTED:
        reason = _may_still_come(storage)
        if reason:
            return Outcome(UNKNOWN, reason=reason)
    return found


def _may_still_come(storage: Any) -> str:
    """Why the next opening may find a transaction that is not there now."""
    if storage.isReadOnly():
        return 'the storage is read-only, and another process may write'
    if storage.replica is not None or (
            0 <= storage.journal.cut_off_at >= storage._sequencer.durable.end):
        # Another node may lead, and have it; or what was cut off could be
        # there again after a power cut.
        storage._sequencer.sync_again()
    # The disk may have what could not be cut off, or was not synced.
    return storage._sequencer.pipeline.stopped or ''


def _in_file(view: View, id: bytes, since: bytes, most: int) -> Outcome:
    """The outcome by the transactions that the view shows."""
    end, doubt = view.end, ''
    for found in itertools.islice(
            headers_before(view.window(), view.end), most):
        own_id = found.commit_id
        if own_id == id:
            return Outcome(COMMITTED, found.tid)
        if found.status == b'p':
            doubt = _PACKED
        if found.tid == since:
            return Outcome(UNKNOWN if doubt else NOT_COMMITTED, reason=doubt)
        if found.tid < since:
            return Outcome(UNKNOWN, reason=_NOT_THERE)
        if own_id == NO_ID:
            doubt = doubt or _WITHOUT_ID
        end = found.position
    if end > FIRST:
        doubt = f'the walk has ended at {end}, before it came to {since.hex()}'
    elif since != z64:
        doubt = _NOT_THERE
    return Outcome(UNKNOWN if doubt else NOT_COMMITTED, reason=doubt)
