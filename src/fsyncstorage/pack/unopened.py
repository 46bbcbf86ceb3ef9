"""The pack of a file that no storage has open: that of a following node.

A thread makes the new file (bulk), while the caller goes on to append to the
data file.  At the swap, `made` copies the rest, and hands out the new file if
it is the one that the node which writes has made.  If there is no such file
(NotMade), the pack can begin anew: it needs only the old file.

The caller has the locks of the data file, only appends to it, and notes
durably what a start must know (generation).  One thread calls the methods
here, except for `cancel`, which any thread may call.
(docs/internals/pack.rst, "A node that follows")
"""

import contextlib
import dataclasses
import logging
import os
import threading
import typing
from collections.abc import Callable

from ZODB.blob import FilesystemHelper
from ZODB.fsIndex import fsIndex
from ZODB.serialize import referencesf

from .. import datafile
from . import naming
from . import packedblobs
from .agreed import VERSION
from .agreed import Becoming
from .agreed import Begin
from .bulk import Bulk
from .copying import Copier
from .plan import Job
from .plan import NothingToDo
from .progress import Cancelled
from .progress import PackWatch

logger = logging.getLogger(__name__)


class NotMade(Exception):
    """There is no file here that may take the place of the old one."""


class OtherVersion(NotMade):
    """Another version packs: to pack again would not help."""


class Made(typing.NamedTuple):
    """The new file, open and locked, complete and durable."""

    file: datafile.DataFile
    index: fsIndex
    becoming: Becoming


@dataclasses.dataclass(frozen=True)
class BlobDirectory:
    """The blob directory of the node, with what packedblobs needs of a
    storage."""

    blob_dir: str
    fshelper: FilesystemHelper
    pack_keep_old: bool
    #: No lock is needed: the thread that replaces the file also makes the
    #: directories.
    _lock: contextlib.AbstractContextManager[object] = contextlib.nullcontext()


class UnopenedPack:
    """The pack begins at once.

    `size()` returns up to where the file has whole transactions with their
    final status; `begin.end` is not behind that position.
    """

    def __init__(self, path: str, begin: Begin, size: Callable[[], int],
                 own_process: bool = True, rate: int | None = None,
                 blobs: BlobDirectory | None = None) -> None:
        self._blobs = blobs
        self._path = os.path.abspath(path)
        self._begin = begin
        self._size = size
        self._own_process = own_process
        self._rate = rate
        #: Knows how far the pack is (`figures`).
        self.watch = PackWatch(path, lambda: None, size())
        self._bulk: Bulk | None = None
        # The thread sets one of these two.
        self._copier: Copier | None = None
        self._failure: NotMade | None = None
        self._is_made = False
        self._thread = threading.Thread(
            target=self._work, name=f'pack of {path}', daemon=True)
        if begin.version == VERSION:
            self._thread.start()
        else:
            self._failure = OtherVersion(
                f'another version packs: {VERSION.decode()} here,'
                f' {begin.version!r} there')

    def cancel(self) -> None:
        """Let the pack end soon."""
        self.watch.cancel()

    @property
    def is_copied(self) -> bool:
        """Only what was appended in the meantime is left to copy."""
        return self._copier is not None and self._failure is None

    def _work(self) -> None:
        """Runs in the thread."""
        try:
            self._copier = self._copied()
        except BaseException as error:  # nobody else would learn of it
            self._fail(error)

    def _copied(self) -> Copier:
        path, begin = self._path, self._begin
        blob_dir = None if self._blobs is None else self._blobs.blob_dir
        naming.refuse_what_is_in_the_way(path, blob_dir, keep_old=False)
        old = datafile.open_existing(path, read_only=True)
        bulk = self._bulk = Bulk(path, blob_dir, old, self._size, self.watch)
        return bulk.copied(
            Job(begin.stop, begin.end, begin.collects_garbage, self._rate,
                sums=True),
            referencesf, self._own_process)

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds`; return whether the thread has ended."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def catch_up(self) -> None:
        """Copy what was appended in the meantime, to leave little for `made`.

        Called now and then.  While the thread works, this does nothing.
        """
        if self.is_copied and not self._thread.is_alive():
            try:
                self._copy_to(self._size())
            except Exception as error:
                self._fail(error)

    def made(self, end: int, becoming: Becoming) -> Made:
        """The new file, made from all of the old one before `end`.

        This waits for the thread.  NotMade: there is no new file, or not the
        wanted one.
        """
        if self._thread.ident is not None:
            self._thread.join()
        if self._failure is None:
            try:
                self._copy_to(end)
                new = self._checked(becoming)
                self._is_made = True
                return new
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

    def replace(self, made: Made, keep_old: bool) -> None:
        """Give the new file its name, durably.

        After a crash in this, the next start does it.
        """
        naming.replace(self._path, keep_old)
        made.file.name = self._path
        assert self._bulk is not None
        if self._blobs is not None and self._bulk.removed is not None:
            packedblobs.take_away(
                self._blobs, self._path, self._bulk.removed)
        self._release()
        self.watch.over(made.becoming.size)

    def close(self) -> None:
        """End the pack, and remove its files.

        A new file that was handed out and has no name yet stays: it may be
        needed.
        """
        self.cancel()
        if self._thread.ident is not None:
            self._thread.join()
        if self._is_made:
            self._release()
        else:
            self._remove()

    def _remove(self) -> None:
        if self._bulk is not None:
            self._bulk.leave_nothing()
        self._release()

    def _release(self) -> None:
        if self._bulk is not None:
            self._bulk.close(but_new=self._is_made)
            self._bulk = None


def _failure(path: str, error: BaseException) -> NotMade:
    match error:
        case NotMade():
            return error
        case NothingToDo():
            return NotMade(f'there was nothing to free here: {error}')
        case Cancelled():
            return NotMade('the pack was cancelled')
    logger.warning('%s: the pack of this node failed: %r', path, error)
    failure = NotMade(f'the pack failed: {type(error).__name__}: {error}')
    # (Its traceback would keep files open.)
    failure.__cause__ = error.with_traceback(None)
    return failure
