"""A pack that survives a power cut at any moment.

Most of it is done by another process (work, process, child), or by this one
where that is not possible.  Here is what the storage has to do with it:

- everything is copied and synced while others commit, until a small rest is
  left; the append lock is taken once, for that rest (I2);
- the new file takes the name of the old one (swap), and until then nothing is
  changed: what the last pack kept stays, too;
- old data and blobs are removed only when that is durable (packedblobs);
- a pack that fails, or whose storage is closed, leaves nothing behind.  After
  a pack that was killed, the next opening removes its files (leftovers).
"""

import contextlib
import errno
import logging
import math
import os
import tempfile
import time
import typing
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import ZODB.serialize
from ZODB.FileStorage.FileStorage import FileStorageError
from ZODB.FileStorage.FileStorage import RedundantPackWarning
from ZODB.FileStorage.format import CorruptedError
from ZODB.fsIndex import fsIndex
from ZODB.POSException import ReadOnlyError
from ZODB.TimeStamp import TimeStamp
from ZODB.utils import z64

from .. import datafile
from ..format import index
from ..format import scan
from ..format.references import references
from ..format.scan import FIRST
from ..format.window import Pread
from ..format.window import Window
from ..processes.starting import NotStarted
from . import packedblobs
from . import process
from . import swap
from . import work
from .copying import Copier
from .foreign import StorageOfPacker
from .marking import Kept
from .output import Output
from .pacing import Pacer
from .plan import Job
from .plan import NothingToDo
from .process import Process
from .progress import NOTHING
from .progress import SWAP
from .progress import Cancelled
from .progress import Watch
from .restorable import NothingRestorable
from .restorable import Restorable
from .restorable import write_gone
from .work import NoRoom

logger = logging.getLogger(__name__)

# Bytes that may be left to write and sync under the append lock; and so few
# that it is not worth while to make them fewer.  (A megabyte of small
# transactions takes 50 ms.)
SMALL_REST, TINY_REST = 1 << 20, 1 << 14
# Bytes of the old file that the other process may leave to this one, whose
# interpreter clients use.  (What an undo becomes longer by is not counted: no
# lock is held for it.)
REST_OF_PROCESS = 1 << 18
# Seconds that a pack time may be ahead of the clock, or of the last commit.
FUTURE = 12 * 3600
# Rounds of copying; and of them, those that did not make the rest smaller: one
# large transaction, or a large index that is written anew, makes it larger for
# once.  After these, committers have to wait: they are faster.
MOST_ROUNDS, MOST_IN_VAIN = 20, 3

References = Callable[..., Any]


def pack(storage: Any, t: float, referencesf: References, gc: bool) -> None:
    """`IStorage.pack` for a FsyncStorage."""
    if storage.isReadOnly():
        raise ReadOnlyError()
    stop = stop_of(storage, t)
    if not storage._index:
        return  # nothing to do in an empty storage
    watch = Watch(storage._file_name, storage._refuse_when_stopped,
                  storage.getSize())
    try:
        with storage._lock:
            if storage.is_packing:
                raise FileStorageError('Already packing')
            storage.pack_watch = watch
            storage.is_packing = True
            storage.restorable = (
                Restorable(gc) if storage.packer is copy_what_is_needed
                else NothingRestorable())
        logger.info('%s: a pack to %s UTC begins; the file has %s bytes',
                    storage._file_name, TimeStamp(stop),
                    f'{watch.before:,}')
        # Another packer may take the locks whenever it likes.
        storage.is_swapping = storage.packer is not copy_what_is_needed
        swap.refuse_what_is_in_the_way(storage)
        _let_undos_end(storage)
        # After a pack all is durable, under every policy, and also if there
        # was nothing to free.
        storage._sequencer.sync_to(storage.getSize())
        with _advice_on_room(storage._file_name):
            packed = _packed(storage, referencesf, stop, gc)
            if packed is None:
                watch.outcome = NOTHING
                return
            with swap.freed_later(storage._file_name + '.old'):
                try:
                    blobs = swap.swap(storage, *packed)
                finally:
                    if not storage.move_on():  # the packer is another one
                        storage._commit_lock.release()
        storage._checkpoints.wake()  # if much was committed meanwhile
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
        with storage._lock:
            if storage.pack_watch is watch:  # else another pack is under way
                storage.move_on()  # an interrupt may have come before
                storage.packs.ended(watch)
                storage.pack_watch = None
                storage.is_packing = storage.is_swapping = False
                storage.restorable = None


def _say_what_stays_of_blobs(storage: Any, gone: int) -> None:
    if gone and not storage.blob_dir:
        logger.warning(
            '%s: %s blobs are not kept, and the pack leaves their files where'
            ' they are, because it was given no blob directory (a BlobStorage'
            ' around the storage removes them); fsync-check --blobs lists'
            ' files without a record', storage._file_name, f'{gone:,}')


def _packed(storage: Any, referencesf: References, stop: bytes,
            gc: bool) -> 'tuple[int, fsIndex] | Packed | None':
    with swap.nobody_else_has_the_file(storage):
        # The user's own packer may truncate a file of this name.
        datafile.remove_if_there(storage._file_name + '.pack')
    packer = storage.packer
    if packer is not copy_what_is_needed:
        storage = StorageOfPacker(storage)
    try:
        return packer(storage, referencesf, stop, gc)
    except (NothingToDo, RedundantPackWarning) as reason:
        logger.info('%s: nothing is packed: %s', storage._file_name, reason)
        return None


def stop_of(storage: Any, t: float) -> bytes:
    """The tid of the pack time.

    A time that is far ahead is an error, as of days below 0, and would free
    what was to be kept.
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
    """Wait for an undo that has not asked what may be undone (restorable).

    The pack has to see what it points back to.
    """
    with storage.append_lock_of_pack():
        pass
    storage._sequencer.drain()


class Packed(typing.NamedTuple):
    """What a packer of ours returns.  (Others: the first two.)"""

    end: int
    index: fsIndex
    #: An index up to here is written and durable.
    index_to: int


def copy_what_is_needed(storage: Any, referencesf: References, stop: bytes,
                        gc: bool) -> Packed:
    """The packer of FsyncStorage.

    Then Data.fs.pack is complete, and the append lock is held.
    """
    files = _Files(storage)
    with contextlib.closing(files):
        try:
            return _Packing(storage, files).pack(referencesf, stop, gc)
        except (scan.Damage, process.Damaged) as damage:
            files.leave_nothing()
            raise CorruptedError(
                f'{storage._file_name}: {damage}. The pack was given up, and'
                ' nothing was changed; fsync-check shows what is damaged'
            ) from None
        except BaseException:
            files.leave_nothing()
            raise


class _Files:
    """The files that a pack makes.

    They are made while nobody else has the data file open, and nobody else is
    packing: only then may files of these names be removed.
    """

    def __init__(self, storage: Any) -> None:
        self._storage = storage
        self._open: list[datafile.DataFile] = []
        self._made: list[datafile.DataFile] = []
        self.removed: datafile.DataFile | None = None
        with tempfile.TemporaryFile(dir=storage._home) as gone:
            #: For the objects that go (restorable); it has no name.
            self.gone = datafile.Descriptor(os.dup(gone.fileno()))
        with swap.nobody_else_has_the_file(storage):
            try:
                self.new = self._make(storage._file_name + '.pack')
                self.index = self._make(storage._checkpoints.path_of_packed)
                if storage.blob_dir:
                    self.removed = self._make(
                        os.path.join(storage.blob_dir, packedblobs.LIST))
            except BaseException:
                self.leave_nothing()
                raise

    def old(self) -> datafile.DataFile:
        """The old file, open once more, for the reader of a process."""
        old: datafile.DataFile = self._storage.reopened()
        self._open.append(old)
        return old

    def another_index(self) -> datafile.DataFile:
        with swap.nobody_else_has_the_file(self._storage):
            self.index = self._make(self._storage._checkpoints.path_of_packed)
            return self.index

    def _make(self, path: str) -> datafile.DataFile:
        # The old file may be for its owner alone.
        file = datafile.open_new(path, 0o600)
        self._open.append(file)
        self._made.append(file)
        swap.give_owner(self._storage, file)
        return file

    def leave_nothing(self) -> None:
        """Remove what was made.

        If the storage is closed, another process may be packing: then the
        names may be those of its files.
        """
        for file in self._made:
            datafile.remove_if_it_is(str(file.name), file)

    def close(self) -> None:
        for file in self._open:
            file.close()


def _references(referencesf: References) -> References:
    """ZODB's own takes gigabytes for a hostile record of a few bytes."""
    return (references if referencesf is ZODB.serialize.referencesf
            else referencesf)


class _Packing:

    def __init__(self, storage: Any, files: _Files) -> None:
        self._storage = storage
        self._files = files
        self._watch: Watch = storage.pack_watch
        self._pacer = Pacer(files.new)
        #: An index up to here is written and durable.
        self._index_to = 0

    def pack(self, referencesf: References, stop: bytes,
             gc: bool) -> Packed:
        storage = self._storage
        view = storage._view
        storage.restorable.begin(min(stop, view.tid))
        job = Job(stop, view.end, gc, storage.pack_rate,
                  work.share_on_disk(storage._file))
        copier = (self._by_process(job, referencesf)
                  or self._within(job, referencesf))
        self._hold_still_for_a_small_rest(copier)
        try:
            self._copy_rest(copier)
            self._watch.go_on()  # the swap would not know what to remove
        except BaseException:
            storage.move_on()
            raise
        return Packed(copier.written_to, copier.index, self._index_to)

    def _within(self, job: Job, referencesf: References) -> Copier:
        """As the process does it."""
        logger.info('%s: packing within this process',
                    self._storage._file_name)
        files = self._files
        copier = work.copied(
            job, self._pread(), files.new, self._pacer, files.removed,
            _references(referencesf), self._watch.tell, self._marked_here)
        self._watch.gone_blobs = copier.gone_blobs
        copier.flush()
        # The rest is copied at no rate: in the end, commits wait for it (I2).
        copier.write_to(
            Output(files.new, copier.written_to, self._pacer.written))
        self._write_index(files.index, copier)
        return copier

    def _marked_here(self, kept: Kept) -> None:
        write_gone(kept, self._files.gone.number, self._watch.tell)
        self._marked()

    def _marked(self) -> None:
        self._storage.restorable.learn(self._files.gone)

    def _write_index(self, file: datafile.DataFile, copier: Copier) -> None:
        index.write_unchanging(
            file, copier.written_to, copier.index, self._files.new,
            Pacer(file).written)
        self._index_to = copier.written_to

    def _by_process(self, job: Job, referencesf: References) -> Copier | None:
        """None: there is no such process."""
        storage, files = self._storage, self._files
        if not (storage.pack_process and process.is_possible(referencesf)):
            return None
        try:
            with contextlib.closing(Process(
                    job, files.old(), files.new, files.index, files.removed,
                    files.gone, self._watch)) as child:
                logger.info('%s: packing in a process of its own (%s)',
                            storage._file_name, child.pid)
                done = child.copied(self._next_end(), self._marked)
        except NotStarted as reason:
            logger.warning(
                '%s: no process could be started for the pack, which goes on'
                ' within this one (%s)', storage._file_name, reason)
            return None
        return self._copier(done)

    def _copier(self, done: process.Done) -> Copier:
        """Goes on where the process has stopped, if that can be."""
        new, of_index = self._files.new, self._files.index
        try:
            loaded = index.load_open(of_index.fileno(), str(of_index.name))
            if not (loaded.position <= done.written_to == new.size()
                    and FIRST < done.copied_to <= self._storage.getSize()):
                raise ValueError('its files do not fit what it reports')
            # What was copied after the index was written.
            for found in scan.transactions(
                    Window.of_file(new.fileno()), loaded.position):
                for record in found.records:
                    loaded.index[record.oid] = record.position
        except (index.Damaged, scan.Damage, ValueError) as wrong:
            raise process.Gone(
                f'the process that packs has not done its work: {wrong}.'
                ' Nothing was changed') from None
        self._index_to = loaded.position
        self._watch.gone_blobs = done.gone_blobs
        return Copier(
            Output(new, done.written_to, self._pacer.written),
            copied_to=done.copied_to, index=loaded.index, places=done.places)

    def _next_end(self) -> Callable[[int], int | None]:
        """How far the process copies next.

        None: the rest is small, or this process has to do it, because the
        other one is too slow.  The process asks anew when its index is
        written.
        """
        rounds, rest = 0, math.inf

        def next_end(copied_to: int) -> int | None:
            nonlocal rounds, rest
            end: int = self._storage.getSize()
            before, rest = rest, end - copied_to
            if REST_OF_PROCESS <= rest < before and rounds < MOST_ROUNDS:
                rounds += 1
                return end
            # When it has written its index, much may have been committed.
            rounds, rest = 0, math.inf
            return None

        return next_end

    def _hold_still_for_a_small_rest(self, copier: Copier) -> None:
        """Copy and sync while others commit, until only a small rest is left
        that does not get much smaller; then take the append lock.

        A large transaction may have had it until then: what that one has
        written is copied without it.
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
                rest = self._rest(copier, SMALL_REST)
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
        # An event loop that commits by itself would wait from now on.
        self._storage.is_swapping = True
        self._storage.hold_still()

    def _rest(self, copier: Copier, enough: float = math.inf) -> int:
        """Bytes that are to be written yet (Copier.rest); what is not small in
        the old file is not counted in the new one."""
        window = Window(self._pread(), self._storage.getSize())
        rest = window.end - copier.copied_to
        return rest if rest >= SMALL_REST else copier.rest(window, enough)

    def _copy_while_others_commit(self, copier: Copier) -> None:
        """A restart scans what the index does not know: if much was committed
        since it was written, it is written anew."""
        storage = self._storage
        self._copy_rest(copier)
        self._pacer.sync(copier.written_to)
        # The old file, too: else, under `none`, the swap would sync it.
        storage._sequencer.sync_to(copier.copied_to)
        if (copier.written_to - self._index_to
                > storage._checkpoints.step // 2):
            self._write_index(self._files.another_index(), copier)

    def _copy_rest(self, copier: Copier) -> None:
        end = self._storage.getSize()
        self._watch.tell(SWAP, copier.copied_to, end)
        copier.copy_later(Window(self._pread(), end))
        copier.flush()  # a full disk must fail here

    def _pread(self) -> Pread:
        descriptor = self._storage._file.descriptor
        return lambda length, position: os.pread(
            descriptor.number, length, position)
