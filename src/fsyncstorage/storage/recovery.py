"""Decides at open what to keep of a file, what to cut off, or to refuse it.

From the last trusted index on, every transaction is read strictly.  At the
first one that is not sound:

- If something proves that it was durable, the file is damaged: refuse it, and
  change nothing.  A proof is one of these: a sound seal behind the damage,
  made after a sync that covered the damage; without seals, a finished
  transaction behind the damage, since its status was written after a sync of
  all before it; or an index that has more than what is before the damage, if
  all its entries before the damage are in the file.  (A transaction that is
  not later than the one before the damage proves nothing: the disk had it
  there before this file was made.)
- Otherwise it is the torn tail of a crash: nothing there was acknowledged
  under a policy that promises something.  The tail is cut off, and kept in a
  file beside the data file, as stock does.

Before anything is decided, the file is synced, and a tail is dropped from the
page cache: after a failed sync the cache may show what the disk does not have.

Left to others: reading transactions (scan), and which index is trusted
(opening).
"""

import logging
import os
import typing

from ZODB._compat import FILESTORAGE_MAGIC
from ZODB.FileStorage.FileStorage import CorruptedTransactionError
from ZODB.fsIndex import fsIndex
from ZODB.utils import cp
from ZODB.utils import z64

from .. import datafile
from ..format import headers
from ..format import scan
from ..format import seal
from ..format.index import Loaded
from ..format.window import Window

logger = logging.getLogger(__name__)


class DamagedFile(CorruptedTransactionError):
    """Data that was durable is damaged.  Nothing was changed."""


class Recovered(typing.NamedTuple):
    index: fsIndex
    end: int
    tid: bytes


def refuse_lost_file(path: str, blob_dir: str | None) -> None:
    """Refuse a missing data file if files that belong to it are there.

    Stock would begin a new file: then an empty database would take over the
    index, the blobs and the backup of the old one.
    """
    try:
        with open(path, 'rb') as file:
            if not is_torn_creation(file.read(len(FILESTORAGE_MAGIC) + 1)):
                return
        state = 'is empty'
    except FileNotFoundError:
        state = 'is missing'
    beside = [name for name in (path + '.old', path + '.index')
              if os.path.exists(name)]
    if blob_dir and _has_blobs(blob_dir):
        beside.append(blob_dir)
    if beside:
        raise DamagedFile(
            f'{path} {state}, but there is {" and ".join(beside)}: a database'
            f' was here. {_what_to_do(path)}; to begin a new one, move these'
            ' away first')


def _what_to_do(path: str) -> str:
    words = 'Restore a backup'
    if os.path.exists(path + '.old'):
        words = ('If a crash interrupted the last step of a pack, rename'
                 f' {path}.old to {path}; but if its date is older than the'
                 ' last commit, an earlier pack has kept it, and it lacks all'
                 ' later commits. Else restore a backup')
    return words


def refuse_shortened(file: datafile.DataFile, loaded: Loaded) -> None:
    """Refuse a data file that is shorter than its own index says was durable.
    """
    if is_shortened(file, loaded):
        raise DamagedFile(
            f'{file.name} ends at {file.size()}, but {file.name}.index has'
            f' {len(loaded.index)} objects in {loaded.durable} bytes, and all'
            ' of them were on disk when it was written: the file was cut off.'
            ' Nothing was changed. Restore a backup; if an older one was put'
            ' here on purpose, remove the index')


def is_shortened(file: datafile.DataFile, loaded: Loaded) -> bool:
    """Is the file shorter than its own index says was durable?"""
    size = file.size()
    return loaded.durable > size and fits(loaded.index, file, size)


def fits(index: fsIndex, file: datafile.DataFile, end: int) -> bool:
    """Is everything before `end` where this index has it?"""
    number = file.fileno()
    return all(
        position + len(oid) > end
        or os.pread(number, len(oid), position) == oid
        for oid, position in index.iteritems())


def is_torn_creation(content: bytes) -> bool:
    """Is this what a power cut left of a new file: a part of the magic, or
    zeros in place of it?"""
    return (len(content) <= len(FILESTORAGE_MAGIC)
            and content != FILESTORAGE_MAGIC
            and FILESTORAGE_MAGIC.startswith(content.rstrip(b'\0')))


def _has_blobs(blob_dir: str) -> bool:
    try:
        names = os.listdir(blob_dir)
    except FileNotFoundError:
        return False
    return any(name.startswith('0x') for name in names)


def recover(file: datafile.DataFile, known: Recovered, read_only: bool,
            promised: bool, loaded: Loaded | None = None) -> Recovered:
    """Read on from what is `known`, and cut off a torn tail.

    `promised`: unsealed transactions were written in such a way that a
    finished one proves that all before it was durable.  `loaded`: an index of
    ours.  If it contradicts the file, then it belongs to another file, or this
    file is damaged.
    """
    if not read_only:
        file.sync()
        if file.size() > known.end:
            file.drop_cache(known.end)
    refused = None
    while True:
        window = Window.of_file(file.fileno())
        known, damage = read_on(window, known)
        if damage is None:
            return known
        proof = (_proof_behind(window, known.tid, damage, promised)
                 or proof_by_index(file, damage.position, loaded))
        if proof is None:
            break
        if not read_only or damage.args == refused:
            raise _refusal(file, damage, proof)
        # Another process may be writing, and may have finished the
        # transaction since it was read: read again.
        refused = damage.args
    if not read_only:
        _cut(file, known, window, damage)
    return known


def read_on(window: Window,
            known: Recovered) -> tuple[Recovered, scan.Damage | None]:
    """Index the sound transactions; stop at the first Damage."""
    index, position, tid = known
    damage = before = None
    while position < window.end:
        try:
            transaction = scan.read_transaction(window, position, before)
        except scan.Damage as found:
            damage = found
            break
        if transaction.tid <= tid:
            if transaction.seal == seal.SOUND:
                damage = _of_another_file(transaction, tid)
                break
            # As in stock: unusual, but no reason to refuse the file.
            logger.warning('the transaction ids do not rise at %d', position)
        for record in transaction.records:
            index[record.oid] = record.position
        position, tid = transaction.end, transaction.tid
        # Without its tid: that tids do not rise is no damage here.
        before = transaction._replace(tid=z64)
    return Recovered(index, position, tid), damage


def _of_another_file(transaction: scan.Transaction, tid: bytes) -> scan.Damage:
    """The Damage of a sealed transaction that is not later than the one before
    it: this package never writes such a transaction.

    A block that was not written before a power cut may show what the disk had
    there earlier: a whole transaction, if the file that a pack replaced had
    one in the same place.
    """
    return scan.Damage(
        transaction.position, transaction.tid, scan.DAMAGED,
        f'its tid does not rise: {tid.hex()} is before it', transaction)


def proof_by_index(file: datafile.DataFile, position: int,
                   loaded: Loaded | None) -> str | None:
    """The proof by an index that this position was durable: if the index
    belongs to this file, it says what was."""
    if loaded is None or loaded.durable <= position:
        return None
    index = loaded.index
    if (min(index.itervalues(), default=position) < position
            and fits(index, file, position)):
        return 'its index'
    return None


def _proof_behind(window: Window, tid: bytes, damage: scan.Damage,
                  promised: bool) -> str | None:
    """The proof by a transaction that was written when the damaged place was
    durable, and is later than this tid."""
    # Bytes in the records of an unfinished transaction prove nothing: a client
    # may have stored them.
    whole = damage.transaction
    start = (damage.position if whole is None or damage.kind != scan.UNFINISHED
             else whole.end)
    for position, found in headers.find_sound_seals(
            window, start, refuse=True):
        if (found.durable > damage.position
                and window.read(position, len(tid)) > tid):
            return f'the transaction at {position}'
    if promised and damage.kind != scan.UNFINISHED:
        finished = _finished_without_seal(window, tid, damage.position + 1)
        if finished is not None:
            return f'the transaction at {finished}'
    return None


def _finished_without_seal(window: Window, tid: bytes,
                           position: int) -> int | None:
    """The position of a finished transaction without a seal, or None."""
    while (begin := scan.find_transaction(window, position)) is not None:
        try:
            found = scan.read_transaction(window, begin)
        except scan.Damage as damage:
            # Bytes inside a transaction are not another transaction.
            whole = damage.transaction
            position = begin + 1 if whole is None else whole.end
            continue
        if (found.seal in (seal.ABSENT, seal.MOVED) and found.records
                and found.tid > tid):
            return begin
        position = found.end
    return None


def _refusal(file: datafile.DataFile, damage: scan.Damage,
             proof: str) -> DamagedFile:
    return DamagedFile(
        f'{file.name}: {damage}. It was on disk already when {proof} was'
        ' written, so this is no torn tail but damage. Nothing was changed.'
        ' Run fsync-check to see all of it; then restore a backup, or save'
        ' what is sound with fsync-check --salvage. (If the index is of'
        ' another file, remove it)')


def _cut(file: datafile.DataFile, known: Recovered, window: Window,
         damage: scan.Damage) -> None:
    """Copy the tail to another file, and cut it off."""
    size = window.end - known.end
    copy = keep_tail(file, known.end, window.end,
                     'ends in a torn transaction, which a crash has left')
    transactions = sum(
        1 for _ in headers.find_sound_seals(window, known.end))
    logger.warning(
        '%s: cut off %d bytes (%d complete transaction headers) behind the'
        ' last sound transaction (tid %s), from position %d%s: %s. They are'
        ' kept in %s', file.name, size, transactions, known.tid.hex(),
        known.end, f', tid {damage.tid.hex()}' if damage.tid else '',
        damage.reason, copy)
    file.truncate(known.end)
    file.sync()


def keep_tail(file: datafile.DataFile, position: int, end: int,
              why: str) -> str:
    """Copy the bytes behind a position, before they are cut off, to a file
    beside this one; return its path."""
    number = 0
    while os.path.lexists(path := f'{file.name}.tr{number}'):
        number += 1
    size = end - position
    try:
        with file.reader() as reader, datafile.open_new(path) as tail:
            reader.seek(position)
            cp(reader, tail, size)
            tail.sync()
        datafile.disk.sync_directory(os.path.dirname(path))
    except OSError as error:  # the next start tries again
        datafile.remove_if_there(path)
        raise OSError(
            error.errno,
            f'{file.name} {why}. The last {size} bytes could not be kept in'
            f' {path} before they are cut off: {error.strerror}. Nothing was'
            ' changed. Mend that (free some space, for example), then open it'
            ' again'
        ) from error
    return path
