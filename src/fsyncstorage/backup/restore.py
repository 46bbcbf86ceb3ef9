"""Makes a Data.fs and its blobs again, as they were at some point.

The copy is made under names that end in `.part`; then it is synced, and gets
its names: first the blobs, then the Data.fs.  So a Data.fs is there only when
all is there.  Nothing is ever overwritten.

It begins at the last pack before the wanted point whose base is there.
"""

import contextlib
import os
import shutil
from collections.abc import Callable
from typing import NamedTuple

from ZODB.blob import LAYOUT_MARKER
from ZODB.blob import FilesystemHelper

from .. import datafile
from . import content
from .ahead import read_ahead
from .copied import Copy
from .copied import NotRestored
from .head import Damaged
from .timeline import History

PART_OF = '.part'


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
    path, blob_dir = os.path.abspath(path), (
        blob_dir and os.path.abspath(blob_dir))
    _refuse_what_is_there(path, blob_dir)
    with contextlib.ExitStack() as undo:
        copy = _begun(history, path, blob_dir, target, undo)
        _fill(history, copy, target, tell)
        copy.file.truncate(copy.end)
        copy.file.sync()
        _give_names(path, blob_dir)
        undo.pop_all()
    copy.file.close()
    datafile.remove_if_there(path + PART_OF)
    return Restored(copy.tid, copy.end, copy.blobs, copy.size_of_blobs,
                    copy.missing)


def remove_parts(path: str, blob_dir: str | None) -> None:
    """What is left of a restore that was killed."""
    datafile.remove_if_there(path + PART_OF)
    if blob_dir:
        shutil.rmtree(blob_dir + PART_OF, ignore_errors=True)


def _begun(history: History, path: str, blob_dir: str | None,
           target: bytes | None, undo: contextlib.ExitStack) -> Copy:
    """An empty copy, under names that `undo` removes."""
    file = datafile.DataFile(
        path + PART_OF,
        os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
    undo.callback(datafile.remove_if_there, path + PART_OF)
    blobs = None
    if blob_dir:
        blobs = FilesystemHelper(blob_dir + PART_OF, 'bushy')
        undo.callback(shutil.rmtree, blob_dir + PART_OF, ignore_errors=True)
        blobs.create()
    try:
        copy = Copy(history, file, blobs, history.start(target),
                    target=target)
    except BaseException:
        file.close()
        raise
    undo.callback(lambda: copy.file.close())  # a pack replaces it
    return copy


def _fill(history: History, copy: Copy, target: bytes | None,
          tell: Callable[[int], object]) -> None:
    try:
        fill(history, copy, tell)
    except Damaged as error:
        raise copy.error(error) from None
    if not copy.tid:
        raise NotRestored(
            'nothing was shipped yet' if target is None else
            'nothing in this timeline is so old')


def fill(history: History, copy: Copy,
         tell: Callable[[int], object] = lambda position: None) -> None:
    """Add all objects of the log from its first one on, up to the target."""
    for (sequence, entry), data in read_ahead(
            history.entries(copy.first), lambda item: item[1].size,
            lambda item: content.got(history.store, item[1].key)):
        copy.add(sequence, entry.key, data)
        tell(copy.end)
        if copy.is_complete:
            return


def _give_names(path: str, blob_dir: str | None) -> None:
    if blob_dir:
        part = blob_dir + PART_OF
        datafile.sync_path(os.path.join(part, LAYOUT_MARKER))
        datafile.disk.sync_directory(part)
        with contextlib.suppress(FileNotFoundError):
            datafile.disk.remove_directory(blob_dir)
        datafile.disk.replace(part, blob_dir)
        datafile.disk.sync_directory(os.path.dirname(blob_dir))
    try:
        datafile.disk.link(path + PART_OF, path)
    except FileExistsError:
        raise NotRestored(f'{path} is there now; what was restored is not'
                          ' given its name') from None
    datafile.disk.sync_directory(os.path.dirname(path))


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
