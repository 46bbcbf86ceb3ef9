"""A Data.fs and its blobs that are made again, from the objects of a log.

Each object is verified, with the seals of the transactions in it, and added
at the end; its blobs are there before, durably.  At a pack, the file is packed
here in the same way, and compared with what the pack says.  If that makes
another file, the base of the pack takes its place.

`restore` makes a copy, and gives it its names when it is complete; `follow`
goes on with one.  docs/internals/backup.rst has the order.
"""

import contextlib
import os
import types
from collections.abc import Iterable
from collections.abc import Iterator

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
from . import head as heads
from . import points
from .ahead import read_ahead
from .bodies import ListedBlob
from .head import Damaged
from .head import Head
from .timeline import IN_LOG
from .timeline import START
from .timeline import Chain
from .timeline import History
from .timeline import Tip


class NotRestored(Exception):
    """It cannot be done; one line, and what to do."""


class Copy:

    def __init__(self, history: History, file: datafile.DataFile,
                 blobs: FilesystemHelper | None, first: int,
                 tip: Tip | None = None, target: bytes | None = None) -> None:
        """`first` is the number of the object to begin with, and `tip` of what
        the file has already; None: nothing, and that object may be a pack,
        which has a base.  Behind `target`, a tid, nothing stays."""
        self._history = history
        self.file = file
        self._blobs = blobs
        self.first = first
        self._base_at = None if tip else first
        self._target = target
        self.chain = Chain(0 if tip else first, tip or START)
        #: Where the file ends, and the tid of what ends there.
        self.end = self.chain.tip.position
        self.tid = self.chain.tip.tid if tip else b''
        #: The last tid of the last segment that is sound, with its blobs.
        self.sound = b''
        self.has_ended = False
        self.blobs = self.size_of_blobs = self.missing = 0

    @property
    def is_complete(self) -> bool:
        return self._target is not None and self.sound >= self._target

    def add(self, sequence: int, key: str, data: bytes) -> None:
        """The next object of the log, of which these are the bytes."""
        history = self._history
        head, pieces = content.opened(history.store, key, data, IN_LOG)
        self.chain.add(head, sequence, key)
        if head.kind == heads.END:
            self.has_ended = True
            return
        if head.kind == heads.PACK:
            self._refuse_what_is_lost(head, sequence == self._base_at)
            if sequence != self._base_at:
                self._pack_again(sequence, head, key)
                return
            head, pieces = history.base(sequence, head)
        if head.has_blobs:
            self._restore_blobs(sequence, head)
        _write(self.file, pieces, head.start)
        self._walk(head, key)
        self.sound = head.tid

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

    def _walk(self, head: Head, key: str) -> None:
        """Verify the transactions of a segment, up to the target."""
        window = Window(self._read, head.end)
        at, found = head.start or scan.FIRST, None
        try:
            while at < head.end:
                found = scan.read_transaction(window, at, found)
                if not self.tid < found.tid <= head.tid:
                    raise Damaged(f'{key}: a tid in it does not rise')
                if self._target is not None and found.tid > self._target:
                    return
                at = self.end = found.end
                self.tid = found.tid
        except (scan.Damage, UnknownVersion) as error:
            raise Damaged(f'{key}: {error}') from None

    def _read(self, length: int, position: int) -> bytes:
        return os.pread(self.file.fileno(), length, position)

    # Blobs

    def _restore_blobs(self, sequence: int, head: Head) -> None:
        blobs = [blob for blob in self._history.blob_list(sequence, head)
                 if self._target is None or blob.tid <= self._target]
        self.missing += sum(blob.size is None for blob in blobs)
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
            if size is not None:
                self.blobs += 1
                self.size_of_blobs += size
        self._sync_names(self._path(blob) for blob in there)

    def _path(self, blob: ListedBlob) -> str:
        assert self._blobs is not None
        path: str = self._blobs.getBlobFilename(blob.oid, blob.tid)
        return path

    def _restore_blob(self, blob: ListedBlob) -> int | None:
        """Return its size; None: it was there."""
        pieces, path = self._history.blob(blob), self._path(blob)
        if _has_content(path, blob):
            datafile.sync_path(path)
            return None
        with datafile.open_new(path, 0o400) as file:
            size = _write(file, pieces, 0)
            file.sync()
        return size

    def _sync_names(self, paths: Iterable[str]) -> None:
        """Of these files, and of the directories that lead to them."""
        assert self._blobs is not None
        top = os.path.normpath(self._blobs.base_dir)
        directories = {top}
        for path in paths:
            while (path := os.path.dirname(path)) not in directories:
                directories.add(path)
        for directory in directories:
            datafile.disk.sync_directory(directory)

    # A pack

    def _pack_again(self, sequence: int, pack: Head, key: str) -> None:
        """Let the packed file take the place of what is before the pack."""
        for collects_garbage in True, False:
            with self._bulk() as bulk:
                if self._is_packed_again(bulk, pack, collects_garbage):
                    self._use(bulk)
                    return
        if sequence not in self._history.bases():
            raise Damaged(
                f'{key}: the base behind this pack is not there yet, and to'
                ' pack the file here makes another one: try again when it is')
        with self._bulk() as bulk:
            self._take_base(bulk, sequence, pack)
            self._use(bulk)

    @contextlib.contextmanager
    def _bulk(self) -> Iterator[Bulk]:
        path, end = str(self.file.name), self.end
        bulk = Bulk(
            path, self._blobs and os.path.normpath(self._blobs.base_dir),
            datafile.open_existing(path, read_only=True), lambda: end,
            PackWatch(path, lambda: None))
        try:
            yield bulk
        finally:
            if not bulk.is_named:
                bulk.leave_nothing()
            bulk.close(but_new=bulk.is_named)

    def _is_packed_again(self, bulk: Bulk, pack: Head,
                         collects_garbage: bool) -> bool:
        try:
            copier = bulk.copied(
                Job(pack.time, self.end, collects_garbage), referencesf,
                own_process=False)
            bulk.copy_rest(copier, self.end)
        except (NothingToDo, POSKeyError, ValueError, scan.Damage):
            return False
        return bulk.new.size() == pack.end and pack.plain == content.sum_of(
            content.of_file(bulk.new.fileno()), pack.end)

    def _take_base(self, bulk: Bulk, sequence: int, pack: Head) -> None:
        """In the place of the packed file, with a list of the blobs that it
        does not name."""
        base, pieces = self._history.base(sequence, pack)
        _write(bulk.new, pieces, 0)
        kept, self.missing = set(), 0  # the base says it of all
        if base.has_blobs:
            self._restore_blobs(sequence, base)
            kept = {(blob.oid, blob.tid)
                    for blob in self._history.blob_list(sequence, base)}
        if bulk.removed is not None:
            assert self._blobs is not None
            for _, directory in self._blobs.listOIDs():
                for name in os.listdir(directory):
                    blob = self._blobs.splitBlobFilename(
                        os.path.join(directory, name))
                    if blob != (None, None) and blob not in kept:
                        bulk.removed.write(
                            b'%s\n' % b''.join(blob).hex().encode())

    def _use(self, bulk: Bulk) -> None:
        """Let its file take the place of ours, and its blobs go.  (After a
        crash between, whoever opens the file for writing removes them, and
        whoever follows.)"""
        bulk.new.sync()
        if bulk.removed is not None:
            packedblobs.say_whose(bulk.removed, bulk.new, bulk.new.size())
        bulk.give_name()
        datafile.disk.sync_directory(os.path.dirname(str(bulk.new.name)))
        self.file.close()
        self.file, self.end = bulk.new, bulk.new.size()
        if bulk.removed is not None:
            self._remove_blobs(bulk.removed)
        for file in bulk.index, bulk.removed:
            if file is not None:
                datafile.remove_if_it_is(str(file.name), file)

    def _remove_blobs(self, listed: datafile.DataFile) -> None:
        with listed.reader() as lines:
            for path in packedblobs.paths(
                    types.SimpleNamespace(fshelper=self._blobs), lines):
                with contextlib.suppress(FileNotFoundError):
                    self.size_of_blobs -= os.stat(path).st_size
                    os.remove(path)
                    self.blobs -= 1

    def error(self, error: Damaged) -> Damaged:
        """It, with a way out."""
        if not self.sound:
            return error
        return Damaged(
            f'{error}. All is sound up to {points.named(self.sound)}: --to'
            f' {self.sound.hex()} restores that')


def _write(file: datafile.DataFile, pieces: Iterable[bytes], at: int) -> int:
    """Return where they end."""
    for piece in pieces:
        file.write_at(piece, at)
        at += len(piece)
    return at


def _has_content(path: str, blob: ListedBlob) -> bool:
    """Is it there, and whole?  (It has its name while it is written.)"""
    try:
        with datafile.open_existing(path, read_only=True) as file:
            return file.size() == blob.size and blob.sum == content.sum_of(
                content.of_file(file.fileno()), blob.size)
    except FileNotFoundError:
        return False
