"""How a storage begins to serve from the file that a pack has written.

Under the append lock, with everything drained, the new file and its index
become durable, and get their names.  The steps, and what a crash leaves, are
in `naming`.  Where several nodes have the file, they agree (agreed) after step
1: the new file is complete then, and nothing is renamed yet.
"""

import contextlib
import io
import logging
import os
from collections.abc import Iterator
from typing import Any

import zc.lockfile
from ZODB.fsIndex import fsIndex

from .. import datafile
from ..format import index
from . import naming
from . import packedblobs
from .agreed import Agreement
from .agreed import Becoming

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def nobody_else_has_the_file(storage: Any) -> Iterator[None]:
    """A context in which the storage cannot be closed.

    A pack goes on for a short time after its storage is closed.  By then,
    another process may have the file open, and pack it under the same names.
    """
    with storage._swapping:
        storage._refuse_when_stopped()
        yield


@contextlib.contextmanager
def freed_later(path: str) -> Iterator[None]:
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


def swap(storage: Any, agreement: Agreement, end: int, new_index: fsIndex,
         index_to: int | None = None, checksum: bytes | None = None
         ) -> io.BufferedReader | None:
    """Replace the old file by the packed file, which has this checksum.

    An index up to `index_to` is written and durable; None: there is none yet.

    The append lock is held, and everything is settled.  Return the list of the
    blobs that can be taken away, or None.  It is open, because later its name
    may belong to another list.
    """
    with nobody_else_has_the_file(storage):
        path, file = storage._file_name, None
        try:
            storage._sequencer.sync_to(storage.getSize())
            if index_to is None:
                index_to = end
                with datafile.open_existing(path + naming.PACKED) as new:
                    index.save(path + naming.INDEX_OF_PACKED,
                               index.Snapshot(new_index, end), new)
            file = naming.completed(path, storage._file, end)
            storage._reserve.prepare(file, end)
            if storage.blob_dir and checksum is not None:
                packedblobs.say_whose(
                    storage.blob_dir, Becoming(end, checksum))
            agreement.swaps(end, checksum)
            to_rename = naming.must_rename(path, storage.pack_keep_old)
            with storage._checkpoints.replacing(index_to):
                _replace(storage, file, new_index, end, to_rename)
        except BaseException as error:
            if storage._file is not file:
                if agreement.is_final:
                    _leave_to_the_next_start(storage, file, error)
                else:
                    _clean(storage, file)
            raise
        if not storage.blob_dir:
            return None
        return open(os.path.join(storage.blob_dir, packedblobs.LIST), 'rb')


def _leave_to_the_next_start(storage: Any, file: datafile.DataFile | None,
                             error: BaseException) -> None:
    """Stop writing: other nodes may have replaced their files.

    What is appended to the old file would be lost.
    """
    if file is not None:
        file.close()
    storage._sequencer.stop_writing(
        f'a pack failed when other nodes may have replaced their files'
        f' ({error!r})')


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


def _replace(storage: Any, file: datafile.DataFile, new_index: fsIndex,
             end: int, to_rename: bool) -> None:
    path = storage._file_name
    try:
        naming.give_name(path, to_rename)
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

    The index gets its name when the new file is durable.  It may cover only
    the first part of the file, but it says how long the whole file is.
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
