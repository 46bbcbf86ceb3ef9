"""A pack that survives a power cut at any moment.

Most of it is done by a child process, or by this one where that is not
possible (bulk).  Here is the part of the storage:

- everything is copied and synced while others commit, until a small rest is
  left; the append lock is taken once, for that rest (I2);
- the new file takes the name of the old one (swap).  Until then nothing is
  changed, and what the last pack kept stays, too;
- old data and blobs are removed only when the new name is durable
  (packedblobs);
- a pack that fails, or whose storage is closed, leaves no files.  After a pack
  that was killed, the next opening removes its files (leftovers);
- where several nodes have the file, they agree on what is packed and on when
  the file is replaced (agreed).
"""

import contextlib
import errno
import logging
import math
import threading
import time
import typing
from collections.abc import Iterator
from typing import Any

from ZODB.FileStorage.FileStorage import FileStorageError
from ZODB.FileStorage.FileStorage import RedundantPackWarning
from ZODB.FileStorage.format import CorruptedError
from ZODB.fsIndex import fsIndex
from ZODB.POSException import ReadOnlyError
from ZODB.TimeStamp import TimeStamp
from ZODB.utils import z64

from .. import datafile
from ..format import scan
from ..format.window import Window
from . import naming
from . import packedblobs
from . import process
from . import swap
from . import work
from .agreed import Agreement
from .bulk import MOST_ROUNDS
from .bulk import Bulk
from .copying import Copier
from .plan import Job
from .plan import NothingToDo
from .plan import References
from .progress import NOTHING
from .progress import Cancelled
from .progress import Untimely
from .progress import Watch
from .work import NoRoom

logger = logging.getLogger(__name__)

# SMALL_REST: the bytes that may be left to write and sync under the append
# lock.  (A megabyte of small transactions takes 50 ms.)  TINY_REST: with fewer
# bytes than this, another round of copying is not worth while.
SMALL_REST, TINY_REST = 1 << 20, 1 << 14
# Seconds that a pack time may be ahead of the clock, or of the last commit.
FUTURE = 12 * 3600
# How many of the MOST_ROUNDS of copying may leave a rest that is not smaller.
# One may do so by chance, because of a large transaction.  But if this many
# do, committers are faster than the copying, and must wait for the append
# lock.
MOST_IN_VAIN = 3


def pack(storage: Any, t: float, referencesf: References, gc: bool) -> None:
    """`IStorage.pack` for a FsyncStorage."""
    if storage.isReadOnly():
        raise ReadOnlyError()
    stop = stop_of(storage, t)
    if not storage._index:
        return  # nothing to do in an empty storage
    agreement = Agreement(storage.pack_hooks)
    if agreement.is_wanted and storage.packer is not copy_what_is_needed:
        raise FileStorageError(
            'a packer of your own cannot pack a file that other machines have,'
            ' too: they would not make the same file. Nothing was changed')
    watch = Watch(storage._file_name, storage._refuse_when_stopped,
                  storage.getSize())
    try:
        with storage._lock:
            if storage.is_packing:
                raise Untimely('Already packing')
            storage.pack_watch = watch
            storage.is_packing = True
        logger.info('%s: a pack to %s UTC begins; the file has %s bytes',
                    storage._file_name, TimeStamp(stop),
                    f'{watch.before:,}')
        naming.refuse_what_is_in_the_way(
            storage._file_name, storage.blob_dir)
        _let_undos_end(storage)
        # After a pack everything is durable, under every policy, even if there
        # was nothing to free.
        storage._sequencer.sync_to(storage.getSize())
        with _advice_on_room(storage._file_name):
            packed = _packed(storage, referencesf, stop, gc, agreement)
            if packed is None:
                watch.outcome = NOTHING
                return
            with swap.freed_later(storage._file_name + '.old'):
                try:
                    blobs = swap.swap(storage, agreement, *packed)
                finally:
                    storage.move_on()
        agreement.swapped()
        # If much was committed during the pack.
        storage.journal.checkpoints.wake()
        watch.over(packed[0])
        _say_what_stays_of_blobs(storage, watch.gone_blobs)
        if not storage.pack_keep_old:
            datafile.remove_if_there(storage._file_name + '.old')
        if blobs is not None:
            with blobs:
                packedblobs.take_away(storage, blobs)
    except Cancelled:
        logger.info('%s: the pack was cancelled', storage._file_name)
        raise
    finally:
        agreement.given_up()
        with storage._lock:
            if storage.pack_watch is watch:  # else another pack is under way
                storage.move_on()  # an interrupt may have come before
                storage.packs.ended(watch)
                storage.pack_watch = None
                storage.is_packing = storage.is_swapping = False


def _say_what_stays_of_blobs(storage: Any, gone: int) -> None:
    if gone and not storage.blob_dir:
        logger.warning(
            '%s: %s blobs are not kept, and the pack leaves their files where'
            ' they are, because it was given no blob directory (a BlobStorage'
            ' around the storage removes them); fsync-check --blobs lists'
            ' files without a record', storage._file_name, f'{gone:,}')


def _packed(storage: Any, referencesf: References, stop: bytes, gc: bool,
            agreement: Agreement) -> 'Packed | None':
    with swap.nobody_else_has_the_file(storage):
        # The user's own packer may truncate a file of this name.
        datafile.remove_if_there(storage._file_name + '.pack')
    packer = storage.packer
    try:
        if packer is copy_what_is_needed:
            return copy_what_is_needed(
                storage, referencesf, stop, gc, agreement)
        return _packed_by(packer, storage, referencesf, stop, gc)
    except (NothingToDo, RedundantPackWarning) as reason:
        logger.info('%s: nothing is packed: %s', storage._file_name, reason)
        return None


def stop_of(storage: Any, t: float) -> bytes:
    """The tid of the pack time.

    A time that is far in the future is a mistake, such as a negative number of
    days.  It would free what was to be kept.
    """
    latest = max(time.time(), TimeStamp(storage.lastTransaction()).timeTime())
    if t > latest + FUTURE:
        raise FileStorageError(
            f'the pack time is {(t - latest) / 3600:.0f} hours in the future')
    stop = TimeStamp(*time.gmtime(t)[:5] + (t % 60,)).raw()
    if stop == z64:
        raise FileStorageError('Invalid pack time')
    return stop


@contextlib.contextmanager
def _advice_on_room(path: str) -> Iterator[None]:
    try:
        yield
    except NoRoom as refused:
        raise OSError(
            errno.ENOSPC, f'a pack needs {refused.needed:,} bytes for the new'
            f' file and its index, and {refused.free:,} are free; the'
            f' {path}.old of the last pack stays until the new file is'
            ' complete. Nothing was changed', path) from None
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise OSError(
            error.errno, f'{error.strerror}: a pack needs room for the new'
            f' file beside {path} and the {path}.old of the last pack, which'
            ' stays until the new file is complete') from error


def _let_undos_end(storage: Any) -> None:
    """Wait for an undo that was voted before undos were refused.

    The pack must see what such an undo points back to.
    """
    with storage.nobody_has_the_place():
        pass
    storage._sequencer.drain()


class Packed(typing.NamedTuple):
    """What our packer returns.  (Other packers return only the first two.)"""

    end: int
    index: fsIndex
    #: An index up to this position is written and durable; None: none is.
    index_to: int | None = None
    #: Of the new file; None if not wanted.
    checksum: bytes | None = None


def copy_what_is_needed(storage: Any, referencesf: References, stop: bytes,
                        gc: bool, agreement: Agreement) -> Packed:
    """The packer of FsyncStorage.

    When it returns, Data.fs.pack is complete, and the append lock is held.
    """
    old = storage.reopened()
    with swap.nobody_else_has_the_file(storage):
        bulk = Bulk(storage._file_name, storage.blob_dir, old,
                    storage.getSize, storage.pack_watch)
    with contextlib.closing(bulk):
        try:
            return _Packing(storage, bulk, agreement).pack(
                referencesf, stop, gc)
        except (scan.Damage, process.Damaged) as damage:
            bulk.leave_nothing()
            raise CorruptedError(
                f'{storage._file_name}: {damage}. The pack was given up, and'
                ' nothing was changed; fsync-check shows what is damaged'
            ) from None
        except BaseException:
            bulk.leave_nothing()
            raise


def _packed_by(packer: Any, storage: Any, referencesf: References, stop: bytes,
               gc: bool) -> Packed | None:
    """What a packer of the user's own makes (the key `packer`).

    It knows nothing of what is on its way to the disk.  So it runs with
    commits stopped: everything is settled, and the append lock is held, from
    before it begins until the files are swapped.
    """
    storage.is_swapping = True
    storage.hold_still()
    logger.warning(
        '%s: commits wait until the packer of the key "packer" has ended',
        storage._file_name)
    found = packer(_WithAnotherLock(storage), referencesf, stop, gc)
    storage.pack_watch.go_on()  # it may be cancelled by now
    return None if found is None else Packed(*found)


class _WithAnotherLock:
    """A storage for a packer that takes the append lock itself, and returns
    with it: that lock is another one, under each of its names."""

    def __init__(self, storage: Any) -> None:
        lock = threading.Lock()
        vars(self).update(
            _storage=storage,
            _commit_lock=lock,
            # The names that packers from before ZODB 3.10 know.
            _commit_lock_acquire=lock.acquire,
            _commit_lock_release=lock.release)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)['_storage'], name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(vars(self)['_storage'], name, value)

    def __len__(self) -> int:
        return len(vars(self)['_storage'])


class _Packing:

    def __init__(self, storage: Any, bulk: Bulk,
                 agreement: Agreement) -> None:
        self._storage = storage
        self._bulk = bulk
        self._agreement = agreement
        self._watch: Watch = storage.pack_watch

    def pack(self, referencesf: References, stop: bytes,
             gc: bool) -> Packed:
        storage = self._storage
        end = self._end(self._agreement.begins(stop, gc, referencesf))
        job = Job(stop, end, gc, storage.pack_rate,
                  work.share_on_disk(self._bulk.old),
                  self._agreement.is_wanted)
        copier = self._bulk.copied(job, referencesf, storage.pack_process)
        self._hold_still_for_a_small_rest(copier)
        try:
            self._copy_rest(copier)
            self._watch.go_on()  # the swap would not know what to remove
        except BaseException:
            storage.move_on()
            raise
        checksum = copier.checksum
        return Packed(copier.written_to, copier.index, self._bulk.index_to,
                      None if checksum is None else checksum.of_all())

    def _end(self, told: int | None) -> int:
        """The position up to which the pack reads before it decides.

        `told` is this position if the other nodes have agreed on it.
        """
        storage = self._storage
        if told is not None:
            # What is before it must have its final status, and be published.
            storage._sequencer.drain()
        view = storage.journal.view
        if told in (None, view.end):
            return view.end
        window = Window(self._bulk.pread, view.end)
        if (told > window.end
                or scan.transaction_before(window, told) is None):
            raise FileStorageError(
                f'{storage._file_name}: a pack was told to end at {told},'
                ' where no transaction ends. Nothing was changed')
        return told

    def _hold_still_for_a_small_rest(self, copier: Copier) -> None:
        """Copy and sync while others commit, until only a small rest is left
        that does not get much smaller; then take the append lock.

        If a large transaction was appended until then, the lock is released,
        and that transaction is copied first.
        """
        rest: float = math.inf
        in_vain = 0
        for _ in range(MOST_ROUNDS):
            self._copy_while_others_commit(copier)
            before, rest = rest, self._rest(copier)
            if TINY_REST <= rest < before / 2:
                continue
            if rest < SMALL_REST:
                self._hold_still()
                rest = self._rest(copier)
                if rest < SMALL_REST:
                    return
                self._storage.move_on()
                self._storage.is_swapping = False
            elif rest >= before:
                in_vain += 1
                if in_vain == MOST_IN_VAIN:
                    break
        self._hold_still()

    def _hold_still(self) -> None:
        # From now on, an event loop that commits itself would have to wait.
        self._storage.is_swapping = True
        self._storage.hold_still()

    def _rest(self, copier: Copier) -> int:
        """Bytes that are still to be copied.

        If they become more in the new file, they do not count as a small rest.
        """
        window = Window(self._bulk.pread, self._storage.getSize())
        rest = window.end - copier.copied_to
        if rest < SMALL_REST and copier.grows(window):
            return SMALL_REST
        return rest

    def _copy_while_others_commit(self, copier: Copier) -> None:
        """Copy what was committed, and sync it."""
        storage = self._storage
        self._copy_rest(copier)
        self._bulk.pacer.sync(copier.written_to)
        # Sync the old file, too: under `none`, the swap would have to do it.
        storage._sequencer.sync_to(copier.copied_to)

    def _copy_rest(self, copier: Copier) -> None:
        self._bulk.copy_rest(copier, self._storage.getSize())
