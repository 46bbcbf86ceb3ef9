"""How a storage begins to serve from the file that a pack has written.

Under the append lock, with everything drained, the new file and its index
become durable, and get their names.  The steps, and what a crash leaves, are
in `naming`.  Where several nodes have the file, they agree (agreed) after step
1: the new file is complete then, and nothing is renamed yet.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from .. import datafile
from . import naming
from . import packedblobs
from .agreed import Agreement
from .bulk import Bulk
from .copying import Copier


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


def swap(storage: Any, agreement: Agreement, bulk: Bulk,
         copier: Copier) -> None:
    """Replace the old file by the packed one.

    The append lock is held, and everything is settled.
    """
    with nobody_else_has_the_file(storage):
        path, end = storage._file_name, copier.written_to
        storage._sequencer.sync_to(storage.getSize())
        naming.complete(path, bulk.new, end)
        storage.journal.reserve.prepare(bulk.new, end)
        if bulk.removed is not None:
            packedblobs.say_whose(bulk.removed, bulk.new, end)
        try:
            checksum = copier.checksum
            agreement.swaps(
                end, None if checksum is None else checksum.of_all())
            naming.link_old(path)
            with storage.journal.checkpoints.replacing(end):
                _replace(storage, bulk, copier)
        except BaseException as error:
            if agreement.is_final and not bulk.is_named:
                # What is appended to the old file would be lost.
                storage._sequencer.stop_writing(
                    'a pack failed when other nodes may have replaced their'
                    f' files ({error!r})')
            elif datafile.is_same(path + naming.OLD, path):  # not a backup
                datafile.remove_if_there(path + naming.OLD)
            raise


def _replace(storage: Any, bulk: Bulk, copier: Copier) -> None:
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
