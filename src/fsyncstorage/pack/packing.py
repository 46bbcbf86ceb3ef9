"""A pack that survives a power cut at any moment.

Most of it is done by a child process, or by this one where that is not
possible (bulk).  Here is the part of the storage:

- everything is copied and synced while others commit, until a small rest is
  left; the append lock is taken once, for that rest (I2);
- the *swap*: under the append lock, with everything settled, the new file and
  its index become durable, and take the names of the old ones.  (The steps,
  and what a crash leaves, are in `naming`.)  Until then nothing is changed,
  and what the last pack kept stays, too;
- old data and blobs are removed only when the new name is durable
  (packedblobs);
- a pack that fails, or whose storage is closed, leaves no files.  After a pack
  that was killed, the next opening removes its files (leftovers);
- where several nodes have the file, they agree on what is packed, and, when
  the new file is complete and nothing is renamed yet, on the swap (agreed).
"""

import contextlib
import errno
import logging
import math
import os
import time
from collections.abc import Iterator
from typing import Any

from ZODB.FileStorage.FileStorage import FileStorageError
from ZODB.FileStorage.format import CorruptedError
from ZODB.POSException import ReadOnlyError
from ZODB.TimeStamp import TimeStamp
from ZODB.utils import z64

from .. import datafile
from ..format import scan
from . import naming
from . import packedblobs
from . import process
from .agreed import Agreement
from .bulk import Bulk
from .copying import Copier
from .plan import Job
from .plan import NothingToDo
from .plan import References
from .progress import NOTHING
from .progress import Cancelled
from .progress import PackWatch
from .progress import Untimely

logger = logging.getLogger(__name__)

# SMALL_REST: the bytes that may be left to write and sync under the append
# lock.  (A megabyte of small transactions takes 50 ms.)  TINY_REST: with fewer
# bytes than this, another round of copying is not worth while.
SMALL_REST, TINY_REST = 1 << 20, 1 << 14
# Seconds that a pack time may be ahead of the clock, or of the last commit.
FUTURE = 12 * 3600
# How often the append lock is taken in vain, because more than a small rest is
# left.  Once that may be so by chance, because of a large transaction.  But
# after this many times, committers are faster than the copying, and must wait.
MOST_IN_VAIN = 3


def pack(storage: Any, t: float, referencesf: References, gc: bool) -> None:
    """`IStorage.pack` for a FsyncStorage."""
    if storage.isReadOnly():
        raise ReadOnlyError()
    stop = stop_of(storage, t)
    if not storage._index:
        return  # nothing to do in an empty storage
    agreement = Agreement(storage.pack_hooks)
    watch = PackWatch(storage._file_name, storage._refuse_when_stopped,
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
        with storage.close_waits():
            naming.refuse_what_is_in_the_way(
                storage._file_name, storage.blob_dir, storage.pack_keep_old)
        _let_undos_end(storage)
        # After a pack everything is durable, under every policy, even if there
        # was nothing to free.
        storage._sequencer.sync_to(storage.getSize())
        with _advice_on_room(storage._file_name):
            _Packing(storage, watch, agreement).pack(referencesf, stop, gc)
    except NothingToDo as reason:
        logger.info('%s: nothing is packed: %s', storage._file_name, reason)
        watch.outcome = NOTHING
    except Cancelled:
        logger.info('%s: the pack was cancelled', storage._file_name)
        raise
    except (scan.Damage, process.Damaged) as damage:
        raise CorruptedError(
            f'{storage._file_name}: {damage}. The pack was given up, and'
            ' nothing was changed; fsync-check shows what is damaged'
        ) from None
    finally:
        agreement.given_up()
        with storage._lock:
            if storage.pack_watch is watch:  # else another pack is under way
                storage.move_on()  # an interrupt may have come before
                storage.packs.ended(watch)
                storage.pack_watch = None
                storage.is_packing = False


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
    with storage.nobody_holds_the_file():
        pass
    storage._sequencer.drain()


@contextlib.contextmanager
def _freed_later(path: str) -> Iterator[None]:
    """A context in which a file that is removed keeps its blocks.

    The system needs seconds to free the blocks of a large file, and commits
    wait for the swap.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # there is none, or no descriptor
            # (No other file behind a link, and no waiting for a pipe.)
            stack.callback(os.close, os.open(
                path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK))
        yield


class _Packing:

    def __init__(self, storage: Any, watch: PackWatch,
                 agreement: Agreement) -> None:
        self._storage = storage
        self._watch = watch
        self._agreement = agreement
        old = storage.reopened()
        with storage.close_waits():
            self._bulk = Bulk(storage._file_name, storage.blob_dir, old,
                              storage.getSize, watch)

    def pack(self, referencesf: References, stop: bytes, gc: bool) -> None:
        storage, bulk = self._storage, self._bulk
        try:
            copier = self._copied(referencesf, stop, gc)
            self._agreement.ready(copier.part, self._watch.go_on)
            self._replace_the_file(copier)
            self._agreement.swapped()
            # (If much was committed meanwhile.)
            storage.journal.checkpoints.wake()
            self._watch.over(copier.written_to)
            if not storage.pack_keep_old:
                datafile.remove_if_there(storage._file_name + naming.OLD)
            if bulk.removed is not None:
                packedblobs.take_away(
                    storage, storage._file_name, bulk.removed)
        except BaseException:
            if not (bulk.is_named or self._agreement.is_final):
                bulk.leave_nothing()
            raise
        finally:
            bulk.close(but_new=storage._file is bulk.new)

    def _copied(self, referencesf: References, stop: bytes,
                gc: bool) -> Copier:
        storage = self._storage
        end = self._end(self._agreement.begins(stop, gc, referencesf))
        job = Job(
            stop, end, gc, storage.pack_rate, self._agreement.is_wanted)
        return self._bulk.copied(job, referencesf, storage.pack_process)

    def _replace_the_file(self, copier: Copier) -> None:
        storage = self._storage
        with _freed_later(storage._file_name + naming.OLD):
            try:
                self._hold_still_for_a_small_rest(copier)
                self._copy_rest(copier)
                self._watch.go_on()  # from here on, nobody can cancel it
                self._swap(copier)
            finally:
                storage.move_on()

    def _end(self, told: int | None) -> int:
        """The position up to which the pack reads before it decides.

        `told` is this position if the other nodes have agreed on it.
        """
        if told is None:
            end: int = self._storage.journal.view.end
            return end
        # What is before it must have its final status, and be published.
        self._storage._sequencer.drain()
        return told

    def _hold_still_for_a_small_rest(self, copier: Copier) -> None:
        """Copy and sync while others commit, until only a small rest is left
        that does not get much smaller; then take the append lock.

        If a large transaction was appended until then, the lock is released,
        and that transaction is copied first.
        """
        for _ in range(MOST_IN_VAIN):
            self._copy_while_others_commit(copier)
            self._storage.hold_still()
            if self._rest(copier) < SMALL_REST:
                return
            self._storage.move_on()
        self._copy_while_others_commit(copier)
        self._storage.hold_still()

    def _rest(self, copier: Copier) -> int:
        """Bytes that are still to be copied."""
        size: int = self._storage.getSize()
        return size - copier.copied_to

    def _copy_while_others_commit(self, copier: Copier) -> None:
        """Copy and sync what was committed, until little is left, or more than
        half as much as before."""
        rest: float = math.inf
        while True:
            self._copy_rest(copier)
            self._bulk.new.sync()
            # Sync the old file, too: under `none`, the swap would have to do
            # it.
            self._storage._sequencer.sync_to(copier.copied_to)
            before, rest = rest, self._rest(copier)
            if not TINY_REST <= rest < before / 2:
                return

    def _copy_rest(self, copier: Copier) -> None:
        self._bulk.copy_rest(copier, self._storage.getSize())

    # The swap

    def _swap(self, copier: Copier) -> None:
        """Replace the old file by the packed one.

        The append lock is held, and everything is settled.
        """
        storage, bulk = self._storage, self._bulk
        with storage.close_waits():
            path, end = storage._file_name, copier.written_to
            storage._sequencer.sync_to(storage.getSize())
            naming.complete(path, bulk.new, end)
            storage.journal.reserve.prepare(bulk.new, end)
            if bulk.removed is not None:
                packedblobs.say_whose(bulk.removed, bulk.new, end)
            try:
                checksum = copier.checksum
                self._agreement.swaps(
                    end, None if checksum is None else checksum.of_all())
                naming.link_old(path)
                with storage.journal.checkpoints.replacing(end):
                    self._serve_from_the_new_file(copier)
            except BaseException as error:
                if self._agreement.is_final and not bulk.is_named:
                    # What is appended to the old file would be lost.
                    storage._sequencer.stop_writing(
                        'a pack failed when other nodes may have replaced'
                        f' their files ({error!r})')
                elif datafile.is_same(path + naming.OLD, path):  # no backup
                    datafile.remove_if_there(path + naming.OLD)
                raise

    def _serve_from_the_new_file(self, copier: Copier) -> None:
        storage, bulk = self._storage, self._bulk
        try:
            bulk.give_name()
            storage.replace_file(bulk.new, copier.index, copier.written_to)
        except BaseException as error:
            if isinstance(error, OSError) and not bulk.is_named:
                raise  # nothing was renamed but the index
            # Which file has the name now, and after a power cut?
            storage._sequencer.stop_writing(
                f'a pack failed while it replaced the file ({error!r})')
            raise
