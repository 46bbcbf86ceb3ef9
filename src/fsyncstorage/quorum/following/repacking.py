"""The pack of a node that follows: it packs its own file while it follows.

While the state names a pack, a thread makes the new file (pack.bulk), by a
process of low priority, and the caller goes on to append to the old one.  At
the swap, `made` copies the rest, and returns the file if it became the one
that the log names.  If not, the file is packed once more, and the caller asks
again: that needs nothing but the file and what the state says of the pack.

No storage has the file open: the caller has its locks, only appends to it, and
notes durably what a start must know (pack.generation).  One thread calls.
"""

import errno
import logging
import threading
import time
import typing
import zlib
from collections.abc import Callable

from ZODB.fsIndex import fsIndex
from ZODB.serialize import referencesf

from ... import datafile
from ...pack import naming
from ...pack import packedblobs
from ...pack.agreed import VERSION
from ...pack.agreed import Becoming
from ...pack.bulk import Bulk
from ...pack.copying import Copier
from ...pack.plan import Job
from ...pack.plan import NothingToDo
from ...pack.process import Gone
from ...pack.progress import Cancelled
from ...pack.progress import PackWatch
from ..history.fold import Pack
from ..history.fold import State
from ..log.notes import NO_PART
from ..log.reading import ANEW
from ..log.reading import Refused

logger = logging.getLogger(__name__)

#: Errors of a disk that is full.
NO_ROOM = errno.ENOSPC, errno.EDQUOT
#: A pack that has failed for want of room is retried after a pause, which is
#: `PAUSES` times as long as the pack took.
PAUSES = 10


class Options(typing.NamedTuple):
    """How a node packs and scrubs: `pack-process`, `pack-rate`,
    `pack-keep-old` and `scrub-rate`."""

    own_process: bool = True
    rate: int | None = None
    keep_old: bool = True
    scrub_rate: int | None = None


USUAL = Options()


class Late(Exception):
    """The log has replaced the file, and the packed one is not made yet."""


class NotMade(Exception):
    """There is no file here that may take the place of the old one."""

    def __init__(self, why: str, may_pass: bool = False) -> None:
        """`may_pass`: another pack of the same file may make it."""
        super().__init__(why)
        self.may_pass = may_pass


class Made(typing.NamedTuple):
    """The new file, open and locked, complete and durable."""

    file: datafile.DataFile
    index: fsIndex
    becoming: Becoming


class Repacking:

    def __init__(self, path: str, size: Callable[[], int], options: Options,
                 blobs: packedblobs.BlobDirectory | None) -> None:
        """`path` is absolute, and `size()` the position up to which the file
        is whole, with the final status of each transaction."""
        self._blobs = blobs
        self._path = path
        self._size = size
        self._options = options
        #: The pack that the state names, and the one that is running for it.
        self._wanted: Pack | None = None
        self._pack: OwnPack | None = None
        #: While the swap waits: when a pack was begun once more; why the disk
        #: has failed it, and when to retry.
        self._begun_again: float | None = None
        self.trouble: str | None = None
        self._again_at = 0.0

    def goes_by(self, state: State) -> None:
        """Begin, or end, the pack that this state names."""
        if state.pack != self._wanted:
            self.close()
            self._begun_again, self.trouble, self._again_at = None, None, 0.0
            if state.pack is not None and state.pack.version == VERSION:
                self._begin(state.pack, self._options.rate)
            self._wanted = state.pack  # last: see `said`

    def _begin(self, pack: Pack, rate: int | None) -> None:
        job = Job(pack.time, pack.end, pack.collects, rate, sums=True)
        self._pack = OwnPack(
            pack.id, self._path, job, self._size, self._options.own_process,
            self._blobs)

    def wait(self, seconds: float) -> None:
        """Wait at most so long for the new file."""
        if self._pack is not None:
            self._pack.wait(seconds)

    @property
    def said(self) -> tuple[int, bytes]:
        """For the note of this node (log.notes): the pulse, and the part."""
        pack, wanted = self._pack, self._wanted
        if pack is not None:
            return pack.pulse, pack.part
        return 0, b'' if wanted is None else wanted.id + NO_PART

    def catch_up(self) -> None:
        """Call it now and then, so that the swap has little to copy."""
        if self._pack is not None:
            self._pack.catch_up()

    def made(self, state: State, becoming: Becoming) -> Made:
        """The file that takes the place of this one, which ends where `state`
        does.

        Raise Late if it is not made yet: call it again; Refused.
        """
        assert state.pack is not None
        if state.pack.version != VERSION:  # to pack again would not help
            raise self._refused(state, (
                f'another version packs: {VERSION.decode()} here,'
                f' {state.pack.version!r} there'))
        if self._pack is None and time.monotonic() >= self._again_at:
            self._begun_again = time.monotonic()
            self._begin(state.pack, None)
        pack = self._pack
        if pack is None or not pack.wait(0):
            raise Late
        try:
            return pack.made(state.end, becoming)
        except NotMade as failure:
            self._has_failed(state, failure)
            raise Late from None

    def _has_failed(self, state: State, failure: NotMade) -> None:
        """Pack again; at once, if that was begun before the swap."""
        self._end()
        begun, now = self._begun_again, time.monotonic()
        if begun is None:
            logger.warning(
                '%s: the log replaces it by a packed file, and this node'
                ' has none to replace it by (%s): it is packed now',
                self._path, failure)
        elif failure.may_pass or isinstance(failure.__cause__, OSError):
            self.trouble = str(failure.__cause__ or failure)
            self._again_at = now + PAUSES * (now - begun)
        else:
            raise self._refused(state, failure)

    def _refused(self, state: State, failure: object) -> Refused:
        return Refused(
            f'{self._path}: the log replaces this file, of generation'
            f' {state.generation}, by a packed one, and this node cannot make'
            f' that ({failure}). The file is what the log had before; {ANEW}')

    def replace(self, made: Made) -> None:
        """Give the new file the name, durably: this ends the pack.

        After a crash in this, the next start does it.
        """
        assert self._pack is not None
        naming.replace(self._path, self._options.keep_old)
        made.file.name = self._path
        self._pack.is_over(made)
        self._pack = self._wanted = self.trouble = None

    def close(self) -> None:
        """End the pack that is under way, if there is one."""
        self._wanted = None
        self._end()

    def _end(self) -> None:
        pack, self._pack = self._pack, None
        if pack is not None:
            pack.close()


class OwnPack:
    """One pack of the file, which begins at once, in a thread."""

    def __init__(self, id: bytes, path: str, job: Job,
                 size: Callable[[], int], own_process: bool,
                 blobs: packedblobs.BlobDirectory | None) -> None:
        self._id = id
        self._path = path
        self._size = size
        self._blobs = blobs
        self.watch = PackWatch(path, lambda: None, size())
        self._bulk: Bulk | None = None
        # The thread sets one of these two.
        self._copier: Copier | None = None
        self._failure: NotMade | None = None
        self._made: Made | None = None
        self._thread = threading.Thread(
            target=self._work, args=(job, own_process),
            name=f'pack of {path}', daemon=True)
        self._thread.start()

    def _work(self, job: Job, own_process: bool) -> None:
        """Runs in the thread."""
        try:
            blob_dir = None if self._blobs is None else self._blobs.blob_dir
            naming.refuse_what_is_in_the_way(
                self._path, blob_dir, keep_old=False)
            old = datafile.open_existing(self._path, read_only=True)
            self._bulk = Bulk(
                self._path, blob_dir, old, self._size, self.watch)
            self._copier = self._bulk.copied(job, referencesf, own_process)
        except BaseException as error:  # nobody else would learn of it
            self._fail(error)

    @property
    def pulse(self) -> int:
        return zlib.crc32(repr(self.watch.progress).encode())

    @property
    def part(self) -> bytes:
        failure, copier = self._failure, self._copier
        if failure is not None:
            return b'' if failure.may_pass else self._id + NO_PART
        return b'' if copier is None else self._id + copier.part

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds`; return whether the thread has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def catch_up(self) -> None:
        """Copy what was appended in the meantime, to leave little for `made`.

        While the thread works, this does nothing.
        """
        if self._failure is None and not self._thread.is_alive():
            try:
                self._copy_to(self._size())
            except Exception as error:
                self._fail(error)

    def made(self, end: int, becoming: Becoming) -> Made:
        """The new file, made from all of the old one before `end`.

        The thread has ended.  NotMade: there is no new file, or not the wanted
        one.  After an error of the caller it is asked for again.
        """
        if self._made is not None and self._made.becoming == becoming:
            return self._made
        if self._failure is None:
            try:
                self._copy_to(end)
                self._made = self._checked(becoming)
                return self._made
            except Exception as error:
                self._fail(error)
        assert self._failure is not None
        raise self._failure

    def _fail(self, error: BaseException) -> None:
        """Note the failure, and remove the files of the pack.

        Their room may be needed for a copy of another node's file.
        """
        self._failure = _failure(self._path, error)
        self._remove()

    def _copy_to(self, end: int) -> None:
        assert self._copier is not None and self._bulk is not None
        self._bulk.copy_rest(self._copier, end)

    def _checked(self, wanted: Becoming) -> Made:
        copier, bulk = self._copier, self._bulk
        assert copier is not None and bulk is not None
        assert copier.checksum is not None
        found = Becoming(copier.written_to, copier.checksum.of_all())
        if found != wanted:
            raise NotMade(
                f'it became another file: {found.size:,} bytes'
                f' ({found.checksum.hex()}), and {wanted.size:,} bytes there'
                f' ({wanted.checksum.hex()})')
        naming.complete(self._path, bulk.new, found.size)
        if bulk.removed is not None:
            packedblobs.say_whose(bulk.removed, bulk.new, found.size)
        return Made(bulk.new, copier.index, found)

    def is_over(self, made: Made) -> None:
        """The new file has its name."""
        assert self._bulk is not None
        if self._blobs is not None and self._bulk.removed is not None:
            packedblobs.take_away(
                self._blobs, self._path, self._bulk.removed, links=False)
        self._release(but_new=True)
        self.watch.over(made.becoming.size)

    def close(self) -> None:
        """End the pack, and remove its files.

        A new file that was handed out and has no name yet stays: it may be
        needed.
        """
        self.watch.cancel()
        self._thread.join()
        if self._made is not None:
            self._release()
        else:
            self._remove()

    def _remove(self) -> None:
        if self._bulk is not None:
            self._bulk.leave_nothing()
        self._release()

    def _release(self, but_new: bool = False) -> None:
        if self._bulk is not None:
            self._bulk.close(but_new)
            self._bulk = None


def _failure(path: str, error: BaseException) -> NotMade:
    match error:
        case NotMade():
            return error
        case NothingToDo():
            return NotMade(f'there was nothing to free here: {error}')
        case Cancelled():
            return NotMade('the pack was cancelled', may_pass=True)
    logger.warning('%s: the pack of this node failed: %r', path, error)
    failure = NotMade(
        f'the pack failed: {type(error).__name__}: {error}',
        may_pass=isinstance(error, Gone) or (
            isinstance(error, OSError) and error.errno in NO_ROOM))
    # (Its traceback would keep files open.)
    failure.__cause__ = error.with_traceback(None)
    return failure
