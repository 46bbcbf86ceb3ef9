"""How the file that a pack has written replaces the old one.

The order, under the append lock, with everything drained:

1. the new file is durable, and so is its index, as `.pack.index`, which says
   how long the file is; both have the owner, the group and the mode of the
   old file;
2. the old file gets a second name, `.old`;
3. the index of the new file gets its name, durably.  From here on it proves
   that the new file is whole;
4. the new file gets its name, durably.

So at every moment there is a whole Data.fs.

Without hard links, step 2 is a durable rename in step 4, and then there is a
moment without a Data.fs.  A process that is killed at that moment leaves the
new file as `.pack`, and an index that proves that it is whole: the next
opening finishes the swap, as it does if a power cut left half of a rename.
"""

import contextlib
import io
import logging
import os
import stat
from collections.abc import Iterator
from typing import Any

import zc.lockfile
from ZODB.FileStorage.FileStorage import FileStorageError
from ZODB.fsIndex import fsIndex

from .. import datafile
from ..errors import DiskError
from ..format import index
from . import packedblobs

logger = logging.getLogger(__name__)


def refuse_what_is_in_the_way(storage: Any) -> None:
    """Refuse names that could not be replaced later."""
    old = storage._file_name + '.old'
    if os.path.isdir(old) and not os.path.islink(old):
        raise IsADirectoryError(
            f'{old} is a directory; a pack keeps the old file there. Nothing'
            ' was changed')
    blobs = f'{storage.blob_dir}.old'
    if (storage.blob_dir and os.path.lexists(blobs)
            and (os.path.islink(blobs) or not os.path.isdir(blobs))):
        raise NotADirectoryError(
            f'{blobs} is no directory; a pack keeps old blobs there. Nothing'
            ' was changed')


@contextlib.contextmanager
def nobody_else_has_the_file(storage: Any) -> Iterator[None]:
    """A context in which the storage is not closed.

    A pack goes on for a while when its storage is closed.  Then the file may
    be open elsewhere, and be packed there, under the same names.
    """
    with storage._swapping:
        storage._refuse_when_stopped()
        yield


@contextlib.contextmanager
def freed_later(path: str) -> Iterator[None]:
    """A context in which a file that is removed keeps its blocks.

    To free those of a large file takes the system seconds, and commits wait
    for the swap.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # there is none, or no descriptor
            # (No other file behind a link, and no waiting for a pipe.)
            stack.callback(os.close, os.open(
                path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK))
        yield


def give_owner(storage: Any, file: datafile.DataFile) -> bool:
    """Let a new file belong to the owner and the group of the old one.

    Return False if this process may not do that.
    """
    wanted, found = os.fstat(storage._file.fileno()), os.fstat(file.fileno())
    if (wanted.st_uid, wanted.st_gid) != (found.st_uid, found.st_gid):
        try:
            os.fchown(file.fileno(), wanted.st_uid, wanted.st_gid)
        except OSError:
            return False
    return True


def _make_like_the_old_one(storage: Any, file: datafile.DataFile) -> None:
    """Its owner, its group, and who may read and write it.

    Where the group is another one, that gets nothing: the old mode was not
    meant for it.
    """
    old = os.fstat(storage._file.fileno())
    mode = stat.S_IMODE(old.st_mode)
    if not give_owner(storage, file):
        mode &= ~stat.S_IRWXG
        logger.warning(
            '%s: a pack may not give the new file the owner and the group of'
            ' the old one (%d:%d): it has those of this process, and its'
            ' group may not read it', file.name, old.st_uid, old.st_gid)
    if mode != stat.S_IMODE(os.fstat(file.fileno()).st_mode):
        os.fchmod(file.fileno(), mode)


def swap(storage: Any, end: int, new_index: fsIndex,
         index_to: int | None = None) -> io.BufferedReader | None:
    """Replace the old file by the packed file.

    An index up to `index_to` is written and durable; None: there is none yet.

    The append lock is held, and everything is drained, unless a packer of the
    user's own has taken the lock.  Return the open list of the blobs that can
    be taken away, or None: later, its name may be that of another list.
    """
    with nobody_else_has_the_file(storage):
        path, file = storage._file_name, None
        try:
            _settle(storage)
            storage._sequencer.sync_to(storage.getSize())
            file = datafile.open_existing(path + '.pack')
            _make_like_the_old_one(storage, file)
            file.lock()  # as the old file is, before it has its name
            file.sync()
            storage._reserve.prepare(file, end)
            path_of_index = storage._checkpoints.path_of_packed
            if index_to is None:
                index_to = end
                index.save_unchanging(path_of_index, end, new_index, file)
            with datafile.open_existing(path_of_index) as index_file:
                _make_like_the_old_one(storage, index_file)
            index.say_whole(path_of_index, end)
            to_rename = not _link_old(path) and storage.pack_keep_old
            if to_rename:
                logger.warning(
                    '%s: this file system has no hard links, so a pack is a'
                    ' little less safe: in its last step there is no file of'
                    ' this name for a moment; after a crash in it, the next'
                    ' start finishes the swap', path)
            with storage._checkpoints.replacing(index_to):
                _replace(storage, file, new_index, end, to_rename)
        except BaseException:
            if storage._file is not file:
                _clean(storage, file)
            raise
        if not storage.blob_dir:
            return None
        return open(os.path.join(storage.blob_dir, packedblobs.LIST), 'rb')


def _settle(storage: Any) -> None:
    """Wait until all is settled; refuse what was copied without its status.

    That comes of a packer of the user's own that has not taken the append lock
    of the storage that it was given (foreign)."""
    sequencer = storage._sequencer
    with sequencer.mutex:
        unfinished = sequencer.pipeline.last_without_status()
    if unfinished is None:
        sequencer.drain()
        if not sequencer.pipeline.queue:
            return
    raise FileStorageError(
        f'{storage._file_name}: transactions are on their way to the disk,'
        ' which the packer has not waited for. The pack was given up, and'
        ' nothing was changed')


def _clean(storage: Any, file: datafile.DataFile | None) -> None:
    path = storage._file_name
    if file is not None:
        file.close()
    if os.path.lexists(path):  # else the next opening needs all of it
        datafile.remove_if_there(path + '.pack')
        datafile.remove_if_there(storage._checkpoints.path_of_packed)
        if storage.blob_dir:
            datafile.remove_if_there(
                os.path.join(storage.blob_dir, packedblobs.LIST))
        if datafile.is_same(path + '.old', path):  # not a backup
            datafile.remove_if_there(path + '.old')


def _link_old(path: str) -> bool:
    """Return False if the file system has no hard links.

    The sync for the name of the index makes this name durable, too, before the
    new file gets its own.  A file that is not to be kept gets it for the swap
    only: after a rename that is not atomic, a power cut could leave the name
    with neither file.
    """
    old = path + '.old'
    datafile.remove_if_there(old)
    return datafile.link_if_possible(path, old)


def _replace(storage: Any, file: datafile.DataFile, new_index: fsIndex,
             end: int, to_rename: bool) -> None:
    path = storage._file_name
    try:
        _give_name(path, to_rename)
        file.name = path
        storage.replace_file(file, new_index, end)
        storage._spare.sync_directory(storage._home)
    except BaseException as error:
        if (isinstance(error, OSError) and storage._file is not file
                and os.path.lexists(path)):
            raise  # nothing was renamed but the index
        # Which file has the name now, and after a power cut?
        storage._sequencer.stop_writing(
            f'a pack failed while it replaced the file ({error!r})')
        raise


def _give_name(path: str, to_rename: bool) -> None:
    """Rename the new file; and first the old one, if it has one name only."""
    try:
        if to_rename:
            datafile.disk.replace(path, path + '.old')
            # A power cut may leave half of one rename, not of both.
            datafile.disk.sync_directory(os.path.dirname(path))
        datafile.disk.replace(path + '.pack', path)
    except BaseException:
        if not os.path.lexists(path):
            datafile.disk.replace(path + '.old', path)
            _make_name_durable(path)
        raise


def _make_name_durable(path: str) -> None:
    """Sync the name of the old file, which stays.

    Else the opening after a power cut would finish the swap, and lose what is
    committed from now on.
    """
    try:
        datafile.disk.sync_directory(os.path.dirname(path))
    except OSError as error:
        raise DiskError(
            f'{path} has its name back, but perhaps not durably: {error}'
        ) from error


def finish_interrupted(path: str) -> None:
    """Finish a swap that was killed before the new file had its name."""
    if os.path.lexists(path) or not os.path.exists(path + '.pack'):
        return
    with contextlib.closing(zc.lockfile.LockFile(path + '.lock')):
        if not os.path.lexists(path) and packed_is_whole(path):
            datafile.disk.replace(path + '.pack', path)
            datafile.disk.sync_directory(
                os.path.dirname(os.path.abspath(path)))
            logger.warning(
                '%s was missing: a crash had interrupted the last step of a'
                ' pack, which was finished now', path)


def packed_is_whole(path: str) -> bool:
    """Does the index belong to all of the new file?

    The index gets its name when the new file is durable.  It may know only the
    first part of the file, but it says how long all of it is.
    """
    try:
        loaded = index.load(path + '.index')
        file = datafile.open_existing(path + '.pack', read_only=True)
    except (FileNotFoundError, index.Damaged):
        return False
    with file:
        return (loaded.whole == file.size()
                and loaded.fingerprint == index.fingerprint(
                    file, loaded.position))
