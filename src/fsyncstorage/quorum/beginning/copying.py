"""A node is made of the files of another one, which may be running.

What a node keeps (`Data.fs.quorum`) says up to where its file is on the disk,
and the bytes before that end do not change.  So this module first reads what
was kept, then opens the file, and copies no more than that; the log has the
rest.  If a pack has put another file in its place, what was kept does not fit,
and both are read again.  Blobs of the transactions that are copied are copied;
the new node gets the others from the log.

A copy may take hours, and the log must not wait for it: `log-limit` would stop
the node that leads.  So nothing is noted while it copies: what the other node
has kept, and then what that has kept meanwhile, which is much less.

*The place is noted* then, so that the log is not trimmed past it: that which
the other node has kept by then, as another look at all blobs may take longer
than a trim.  What is left is copied under this note.  A node that trims first
appends a Trim, and then looks at the notes again.  So the copy then reads the
log for a Trim: if one is about records that the copy needs, the note has come
too late.

The copy gets its name when it is complete and durable.  So it can be
interrupted at any moment, and repeated.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator

from ZODB.blob import FilesystemHelper
from ZODB.FileStorage.FileStorage import FileStorageError

from ... import datafile
from ...storage import opening
from ..files import state as states
from ..files.state import Kept
from ..history.record import Damaged
from ..history.record import Trim
from ..leading.writer import new_identity
from ..log.interface import Log
from ..log.interface import Unanswered
from ..log.members import ends
from ..log.notes import Author
from ..log.notes import shown
from ..log.outage import Outage
from ..log.outage import Patience
from ..log.reading import Reader

#: The suffix of files that are not complete.
SUFFIX = '.copied'
#: Bytes that are copied at once.
PIECE = 1 << 20
#: Packs may change the files: how many tries, and seconds between two.
TRIES, PAUSE = 5, 0.2

Tell = Callable[[str, int], object]
#: The blob directories to copy from, and to.
Blobs = tuple[FilesystemHelper, FilesystemHelper]


def copied(source: str, path: str, log: Log, name: bytes,
           tell: Tell = lambda stage, position: None,
           blobs: Blobs | None = None) -> Kept:
    """Make a node of this name from the file `source`; return what it keeps.

    `tell` is called with the bytes, or blob files, copied so far.

    Raise StorageError if this cannot become a node of that log; Unanswered,
    OSError.  The note is removed then, and `copied` may be called again.
    """
    _refuse_a_taken_path(path)
    author = Author(name, new_identity())
    author.refuse_another(log, log.notes())
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.closing(opening.lock_name(path)))
        stack.callback(datafile.remove_if_there, path + SUFFIX)
        kept = _copy_more(source, path + SUFFIX, None, log, tell, blobs)
        kept = _copy_more(source, path + SUFFIX, kept, log, tell, blobs)
        noted = _newer(source)
        while noted.state.generation != kept.state.generation:
            # It was packed: what is copied anew needs no note, either.
            kept = _copy_more(source, path + SUFFIX, kept, log, tell, blobs)
            noted = _newer(source)
        stack.enter_context(_noted(author, log, noted))
        _refuse_if_trimmed(source, noted, log)
        kept = _copy_more(source, path + SUFFIX, kept, log, tell, blobs)
        kept = kept._replace(node=author.identity)
        _give_names(path, kept)
    return kept


def _copy_more(source: str, target: str, copied: Kept | None, log: Log,
               tell: Tell, blobs: Blobs | None) -> Kept:
    """Copy what is kept by now and was not copied yet; return what is kept.
    """
    kept, file = _opened(source)
    with contextlib.closing(file):
        _refuse_another_log(source, kept, log)
        is_packed = copied is not None and (
            copied.state.generation != kept.state.generation)
        if copied is None or is_packed:
            begin, copy = 0, datafile.open_new(target)
        else:
            begin, copy = copied.state.end, datafile.open_existing(target)
        with contextlib.closing(copy):
            _copy_piece(file, copy, begin, kept.state.end, tell)
    if blobs is not None:
        if is_packed:
            _remove_blobs(*blobs)
        _copy_blobs(*blobs, kept.tie.tid, tell)
    return kept


def _newer(source: str) -> Kept:
    """What is kept by now."""
    kept, file = _opened(source)
    file.close()
    return kept


def _refuse_a_taken_path(path: str) -> None:
    if os.path.lexists(path):
        raise FileStorageError(
            f'{path} is there already. A node that is made anew begins'
            f' without it: move it away, with {path}{states.SUFFIX}, and'
            ' remove it when the new one runs')


# What is copied

def _opened(source: str) -> tuple[Kept, datafile.DataFile]:
    """What was kept, and the file to which it belongs."""
    for tried in range(TRIES):
        time.sleep(PAUSE if tried else 0)
        try:
            kept = states.load(source)
        except Damaged as error:
            raise FileStorageError(f'{error}. Take another node') from None
        if kept is None:
            raise FileStorageError(
                f'{source} is no file of a node: there is no'
                f' {source}{states.SUFFIX}')
        file = datafile.open_existing(source, read_only=True)
        misfit = states.misfit(kept, states.reading(file), file.size())
        if misfit is None:
            return kept, file
        file.close()
    raise FileStorageError(
        f'{source} and {source}{states.SUFFIX} do not belong together:'
        f' {misfit}. If they were copied, copy {source}{states.SUFFIX} first,'
        ' and the file then')


def _refuse_another_log(source: str, kept: Kept, log: Log) -> None:
    found, place = ends(log), kept.state.place
    if found.log != kept.state.log:
        raise FileStorageError(
            f'{source} is a file of another log ({kept.state.log.hex()}, and'
            f' this one is {found.log.hex()})')
    if found.head.sequence < place.sequence:
        raise FileStorageError(
            f'{source} has seen record {place.sequence}, and the log ends at'
            f' {found.head.sequence}: it has lost its end, or was restored')
    _refuse_if_too_old(source, kept, found.first)


def _refuse_if_too_old(source: str, kept: Kept, first: int) -> None:
    needed = kept.state.place.sequence + 1
    if needed < first:
        raise FileStorageError(
            f'{source} is too old: what comes next for it is record {needed},'
            f' and what the log keeps begins at {first}. Take a newer copy, or'
            ' a node that runs')


# What the log keeps for the copy

@contextlib.contextmanager
def _noted(author: Author, log: Log, kept: Kept) -> Iterator[None]:
    """A context: the log keeps what the copy needs.  If the copy fails, its
    note is removed."""
    author.refuse_another(log, log.notes())
    try:
        author.note(log, kept.state.place)
        yield
    except BaseException as error:
        try:
            log.forget(author.name)
        except Unanswered as unanswered:
            name = shown(author.name)
            raise FileStorageError(
                f'{str(error) or "it was interrupted"}. And the note of the'
                f' node {name} stays in the log ({unanswered}), which waits'
                f' for it: fsync-quorum forget {name}') from error
        raise


def _refuse_if_trimmed(source: str, kept: Kept, log: Log) -> None:
    """The note may have come too late: a node that trims may not have seen it.
    """
    at_once = threading.Event()
    at_once.set()  # no retries
    for applied in Reader(log, kept.state).to_the_end(
            Patience(Outage('the copy waits', source), at_once)):
        if isinstance(applied.record.body, Trim):
            _refuse_if_too_old(source, kept, applied.record.body.first)


# Copies

def _copy_piece(file: datafile.DataFile, copy: datafile.DataFile, begin: int,
                end: int, tell: Tell) -> None:
    for position in range(begin, end, PIECE):
        data = os.pread(file.fileno(), min(PIECE, end - position), position)
        copy.write_at(data, position)
        tell('file', position + len(data))
    copy.sync()


def _copy_blobs(source: FilesystemHelper, target: FilesystemHelper,
                last_tid: bytes, tell: Tell) -> None:
    """Copy the blobs of transactions up to `last_tid` that are missing."""
    target.create()
    directories: dict[str, None] = {}
    for number, (oid, tid, found) in enumerate(_blob_files(source)):
        tell('blobs', number)
        path = target.getBlobFilename(oid, tid)
        if tid > last_tid or os.path.exists(path):
            continue
        directories.update(dict.fromkeys(_up_to(
            os.path.dirname(path), target.base_dir)))
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # a pack has removed it
            _copy_blob(found, path)
    for each in directories:
        datafile.disk.sync_directory(each)


def _remove_blobs(source: FilesystemHelper, target: FilesystemHelper) -> None:
    """Those that the pack of the other node has taken away."""
    for oid, tid, path in _blob_files(target):
        if not os.path.exists(source.getBlobFilename(oid, tid)):
            datafile.disk.remove(path)


def _blob_files(helper: FilesystemHelper
                ) -> Iterator[tuple[bytes, bytes, str]]:
    for oid, directory in helper.listOIDs():
        try:
            names = os.listdir(directory)
        except FileNotFoundError:
            continue
        for name in names:
            path = os.path.join(directory, name)
            with contextlib.suppress(ValueError):  # a name of something else
                _, tid = helper.splitBlobFilename(path)
                if tid is not None:
                    yield oid, tid, path


def _copy_blob(source: str, path: str) -> None:
    with datafile.open_existing(source, read_only=True) as file:
        with datafile.open_new(path + SUFFIX) as copy:
            _copy_piece(file, copy, 0, file.size(), lambda *told: None)
    os.chmod(path + SUFFIX, 0o400)
    datafile.disk.replace(path + SUFFIX, path)


def _up_to(directory: str, base: str) -> Iterator[str]:
    """This directory, and those above it, which may be new."""
    base = base.rstrip(os.sep)
    while len(directory) >= len(base):
        yield directory
        directory = os.path.dirname(directory)


# Names

def _give_names(path: str, kept: Kept) -> None:
    """First to what is kept: without the file, a start is refused, and the
    copy can be repeated."""
    with datafile.open_existing(path + SUFFIX, read_only=True) as copy:
        misfit = states.misfit(kept, states.reading(copy), copy.size())
        if misfit is not None:
            raise FileStorageError(
                f'{path}{SUFFIX} is no copy of what was kept: {misfit}. Check'
                ' the disks and the memory of both machines')
        # (Without a file that is about to come: that file is not here.)
        states.save(path, kept.state, states.reading(copy), kept.node)
    datafile.disk.replace(path + SUFFIX, path)
    datafile.disk.sync_directory(os.path.dirname(os.path.abspath(path)))
