"""How a file that was packed gets the name of the old one: step by step.

1. The new file is durable, and so is its index, as `.pack.index`, which says
   how long the file is; both have the owner, the group and the mode of the
   old file.
2. The old file gets a second name, `.old`.
3. The index of the new file gets its name, durably.  From here on it proves
   that the new file is whole.
4. The new file gets its name, durably.

So at every moment there is a whole Data.fs.

Without hard links, step 2 is a durable rename in step 4, and then there is a
moment without a Data.fs.  A process that is killed at that moment leaves the
new file as `.pack`, and an index that proves that it is whole: the next
opening finishes the swap (swap), as it does if a power cut left half of a
rename.

Left to others: what a storage has to do at the same time (swap), and a file
that no storage has open (unopened).
"""

import logging
import os
import stat

from .. import datafile
from ..errors import DiskError

logger = logging.getLogger(__name__)

#: Behind the path of the data file: the new file, its index, the old file.
PACKED, INDEX_OF_PACKED, OLD = '.pack', '.pack.index', '.old'
INDEX = '.index'


def refuse_what_is_in_the_way(path: str, blob_dir: str | None) -> None:
    """Refuse names that could not be replaced later."""
    old = path + OLD
    if os.path.isdir(old) and not os.path.islink(old):
        raise IsADirectoryError(
            f'{old} is a directory; a pack keeps the old file there. Nothing'
            ' was changed')
    blobs = f'{blob_dir}.old'
    if (blob_dir and os.path.lexists(blobs)
            and (os.path.islink(blobs) or not os.path.isdir(blobs))):
        raise NotADirectoryError(
            f'{blobs} is no directory; a pack keeps old blobs there. Nothing'
            ' was changed')


def give_owner(old: datafile.DataFile, file: datafile.DataFile) -> bool:
    """Let a new file belong to the owner and the group of the old one.

    Return False if this process may not do that.
    """
    wanted, found = os.fstat(old.fileno()), os.fstat(file.fileno())
    if (wanted.st_uid, wanted.st_gid) != (found.st_uid, found.st_gid):
        try:
            os.fchown(file.fileno(), wanted.st_uid, wanted.st_gid)
        except OSError:
            return False
    return True


def make_like(old: datafile.DataFile, file: datafile.DataFile) -> None:
    """Its owner, its group, and who may read and write it.

    Where the group is another one, that gets nothing: the old mode was not
    meant for it.
    """
    found = os.fstat(old.fileno())
    mode = stat.S_IMODE(found.st_mode)
    if not give_owner(old, file):
        mode &= ~stat.S_IRWXG
        logger.warning(
            '%s: a pack may not give the new file the owner and the group of'
            ' the old one (%d:%d): it has those of this process, and its'
            ' group may not read it', file.name, found.st_uid, found.st_gid)
    if mode != stat.S_IMODE(os.fstat(file.fileno()).st_mode):
        os.fchmod(file.fileno(), mode)


def link_old(path: str) -> bool:
    """Return False if the file system has no hard links.

    The sync for the name of the index makes this name durable, too, before the
    new file gets its own.  A file that is not to be kept gets it for the swap
    only: after a rename that is not atomic, a power cut could leave the name
    with neither file.
    """
    old = path + OLD
    datafile.remove_if_there(old)
    return datafile.link_if_possible(path, old)


def must_rename(path: str, keep_old: bool) -> bool:
    """Step 2; or is the old file to be renamed in step 4?"""
    to_rename = not link_old(path) and keep_old
    if to_rename:
        logger.warning(
            '%s: this file system has no hard links, so a pack is a'
            ' little less safe: in its last step there is no file of'
            ' this name for a moment; after a crash in it, the next'
            ' start finishes the swap', path)
    return to_rename


def give_name(path: str, to_rename: bool) -> None:
    """Rename the new file; and first the old one, if it has one name only."""
    try:
        if to_rename:
            datafile.disk.replace(path, path + OLD)
            # A power cut may leave half of one rename, not of both.
            datafile.disk.sync_directory(os.path.dirname(path))
        datafile.disk.replace(path + PACKED, path)
    except BaseException:
        if not os.path.lexists(path):
            datafile.disk.replace(path + OLD, path)
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


def replace(path: str, keep_old: bool) -> None:
    """Steps 2 to 4, of a file that nobody writes to.

    It can be repeated after a crash at any line.
    """
    path = os.path.abspath(path)
    home = os.path.dirname(path)
    to_rename = os.path.lexists(path) and must_rename(path, keep_old)
    if os.path.lexists(path + INDEX_OF_PACKED):
        datafile.disk.replace(path + INDEX_OF_PACKED, path + INDEX)
        datafile.disk.sync_directory(home)
    give_name(path, to_rename)
    datafile.disk.sync_directory(home)
    if not keep_old:
        datafile.remove_if_there(path + OLD)
