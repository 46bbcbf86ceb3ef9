"""Makes a Data.fs and its blobs again, as they were at some point.

All is read, verified and written under names that end in `.part`; then it is
synced, and gets its names: first the blobs, then the Data.fs.  So a Data.fs is
there only when all is there.  Nothing is ever overwritten.

It begins at the last pack before the wanted point whose base is there.  Where
a pack has none yet, the file is packed here in the same way, and compared with
what the pack says.
"""

import contextlib
import os
import shutil
import types
from collections.abc import Callable
from collections.abc import Iterator
from typing import NamedTuple

from ZODB.blob import LAYOUT_MARKER
from ZODB.blob import FilesystemHelper
from ZODB.POSException import POSKeyError
from ZODB.serialize import referencesf

from .. import datafile
from ..format import scan
from ..format.seal import UnknownVersion
from ..format.window import Window
from ..pack import packedblobs
from ..pack.bulk import Bulk
from ..pack.plan import Job
from ..pack.plan import NothingToDo
from ..pack.progress import PackWatch
from . import content
from . import points
from .ahead import read_ahead
from .bodies import ListedBlob
from .head import END
from .head import PACK
from .head import Damaged
from .head import Head
from .timeline import IN_LOG
from .timeline import Chain
from .timeline import History

PART_OF = '.part'


class NotRestored(Exception):
    """It cannot be done; one line, and what to do."""


class Restored(NamedTuple):
    #: The last one.
    tid: bytes
    size: int
    blobs: int
    size_of_blobs: int
    #: Blobs that were missing already when they should be shipped.
    missing: int


def restore(history: History, path: str, blob_dir: str | None,
            target: bytes | None = None,
            tell: Callable[[int], object] = lambda position: None) -> Restored:
    """Restore up to the last transaction, or up to the target, which is a tid;
    NotRestored, Damaged.  `tell` is called with the position that is
    reached."""
    with contextlib.ExitStack() as undo:
        made = _Restore(history, path, blob_dir, target, tell, undo)
        found = made.run()
        undo.pop_all()  # it has its names
    made.remove_what_is_left()
    return found


class _Restore:

    def __init__(self, history: History, path: str, blob_dir: str | None,
                 target: bytes | None, tell: Callable[[int], object],
                 undo: contextlib.ExitStack) -> None:
        self._history = history
        self._path = os.path.abspath(path)
        self._blob_dir = blob_dir and os.path.abspath(blob_dir)
        self._target = target
        self._tell = tell
        _refuse_what_is_there(self._path, self._blob_dir)
        self._part = self._path + PART_OF
        self._file = datafile.DataFile(
            self._part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
        undo.callback(datafile.remove_if_there, self._part)
        undo.enter_context(self._file)
        self._blobs: FilesystemHelper | None = None
        if self._blob_dir:
            self._blobs = FilesystemHelper(self._blob_dir + PART_OF, 'bushy')
            undo.callback(shutil.rmtree, self._blob_dir + PART_OF,
                          ignore_errors=True)
            self._blobs.create()
        #: Where the file ends, and the tid of what ends there.
        self._end = 0
        self._tid = b''
        #: The last tid of the last segment that is sound, with its blobs.
        self._sound = b''
        self._count = self._size_of_blobs = self._missing = 0

    def run(self) -> Restored:
        try:
            for head, sequence, key in self._segments():
                self._walk(head, key)
                if head.has_blobs:
                    self._restore_blobs(sequence, head)
                self._sound = head.tid
                self._tell(self._end)
                if self._target is not None and head.tid >= self._target:
                    break
        except Damaged as error:
            raise Damaged(self._with_a_way_out(str(error))) from None
        if not self._tid:
            raise NotRestored(
                'nothing was shipped yet' if self._target is None else
                'nothing in this timeline is so old')
        self._give_names()
        return Restored(self._tid, self._end, self._count,
                        self._size_of_blobs, self._missing)

    def _segments(self) -> Iterator[tuple[Head, int, str]]:
        """Each of them, and the base, when its bytes are in the file."""
        history = self._history
        first = history.start(self._target)
        chain = Chain(history, first)
        for (sequence, entry), data in read_ahead(
                history.entries(first), lambda item: item[1].size,
                lambda item: content.got(history.store, item[1].key)):
            head, pieces = content.opened(
                history.store, history.database, entry.key, data, IN_LOG)
            chain.add(head, sequence, entry.key)
            if head.kind == END:
                continue
            if head.kind == PACK:
                self._refuse_what_is_lost(head, sequence == first)
                if sequence != first:
                    self._pack_again(head, entry.key)
                    continue
                head, pieces = history.base(sequence, head)
            at = head.start
            for piece in pieces:
                self._file.write_at(piece, at)
                at += len(piece)
            yield head, sequence, entry.key

    def _refuse_what_is_lost(self, pack: Head, is_first: bool) -> None:
        if self._target is None:
            return
        if is_first and self._target < pack.tid:
            raise NotRestored(f'what is older than {points.named(pack.tid)}'
                              ' was removed from this timeline')
        if pack.tid < self._target < pack.time:
            raise NotRestored(
                f'what was between {points.named(pack.tid)} and'
                f' {points.named(pack.time)} was packed before it was shipped:'
                f' --to {pack.tid.hex()} or {pack.time.hex()}')

    # A pack without a base

    def _pack_again(self, pack: Head, key: str) -> None:
        """Let the packed file take the place of what is before the pack."""
        for collects_garbage in True, False:
            if self._is_packed_again(pack, collects_garbage):
                self._end = pack.end
                return
        raise Damaged(
            f'{key}: the base behind this pack is not there yet, and to pack'
            ' the file here makes another one')

    def _is_packed_again(self, pack: Head, collects_garbage: bool) -> bool:
        bulk = Bulk(
            self._part, self._blob_dir and self._blob_dir + PART_OF,
            datafile.open_existing(self._part, read_only=True),
            lambda: self._end, PackWatch(self._part, lambda: None))
        try:
            copier = bulk.copied(
                Job(pack.time, self._end, collects_garbage), referencesf,
                own_process=False)
            bulk.copy_rest(copier, self._end)
            copier.flush()
            number = bulk.new.fileno()

            def read(at: int, length: int) -> bytes:
                return os.pread(number, length, at)

            if (bulk.new.size() != pack.end
                    or content.sum_of(read, pack.end) != pack.plain):
                return False
            for at in range(0, pack.end, content.PART):
                self._file.write_at(
                    read(at, min(content.PART, pack.end - at)), at)
            self._file.truncate(pack.end)
            if bulk.removed is not None:
                self._remove_blobs(bulk.removed)
            return True
        except (NothingToDo, POSKeyError, ValueError, scan.Damage):
            return False
        finally:
            bulk.leave_nothing()
            bulk.close()

    def _remove_blobs(self, listed: datafile.DataFile) -> None:
        """Those that the pack leaves out."""
        with listed.reader() as lines:
            for path in packedblobs.paths(
                    types.SimpleNamespace(fshelper=self._blobs), lines):
                self._count -= 1
                self._size_of_blobs -= os.stat(path).st_size
                os.remove(path)

    def _walk(self, head: Head, key: str) -> None:
        """Verify the transactions of a segment, up to the target."""
        window = Window(
            lambda length, at: os.pread(self._file.fileno(), length, at),
            head.end)
        at, found = head.start or scan.FIRST, None
        try:
            while at < head.end:
                found = scan.read_transaction(window, at, found)
                if not self._tid < found.tid <= head.tid:
                    raise Damaged(f'{key}: a tid in it does not rise')
                if self._target is not None and found.tid > self._target:
                    return
                at = self._end = found.end
                self._tid = found.tid
        except (scan.Damage, UnknownVersion) as error:
            raise Damaged(f'{key}: {error}') from None

    def _with_a_way_out(self, error: str) -> str:
        if not self._sound:
            return error
        return (f'{error}. All is sound up to {points.named(self._sound)}:'
                f' --to {self._sound.hex()} restores that')

    # Blobs

    def _restore_blobs(self, sequence: int, head: Head) -> None:
        blobs = [blob for blob in self._history.blob_list(sequence, head)
                 if blob.tid <= self._tid]
        self._missing += sum(blob.size is None for blob in blobs)
        there = [blob for blob in blobs if blob.size is not None]
        if not there:
            return
        if self._blobs is None:
            raise NotRestored('there are blobs: name a directory for them')
        for blob in there:
            self._blobs.getPathForOID(blob.oid, create=True)
        for blob, size in read_ahead(
                there, lambda blob: min(blob.size or 0, content.PART),
                self._restore_blob):
            self._count += 1
            self._size_of_blobs += size

    def _restore_blob(self, blob: ListedBlob) -> int:
        assert self._blobs is not None
        pieces = self._history.blob(blob)
        with datafile.open_new(self._blobs.getBlobFilename(
                blob.oid, blob.tid), 0o400) as file:
            at = 0
            for piece in pieces:
                file.write_at(piece, at)
                at += len(piece)
            file.sync()
        return at

    # The end

    def _give_names(self) -> None:
        self._file.truncate(self._end)
        self._file.sync()
        if self._blob_dir:
            part = self._blob_dir + PART_OF
            datafile.sync_path(os.path.join(part, LAYOUT_MARKER))
            for directory, _, _ in os.walk(part):
                datafile.disk.sync_directory(directory)
            with contextlib.suppress(FileNotFoundError):
                datafile.disk.remove_directory(self._blob_dir)
            datafile.disk.replace(part, self._blob_dir)
            datafile.disk.sync_directory(os.path.dirname(self._blob_dir))
        try:
            datafile.disk.link(self._part, self._path)
        except FileExistsError:
            raise NotRestored(f'{self._path} is there now; what was restored'
                              ' is not given its name') from None
        datafile.disk.sync_directory(os.path.dirname(self._path))

    def remove_what_is_left(self) -> None:
        self._file.close()
        datafile.remove_if_there(self._part)


def _refuse_what_is_there(path: str, blob_dir: str | None) -> None:
    names = [path, path + PART_OF, path + '.index']
    if blob_dir:
        names.append(blob_dir + PART_OF)
        with contextlib.suppress(FileNotFoundError):
            if os.listdir(blob_dir):
                names.append(blob_dir)
    for name in names:
        if os.path.lexists(name):
            raise NotRestored(f'{name} is there, and a restore overwrites'
                              ' nothing: move it, or name another place')
