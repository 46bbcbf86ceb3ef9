"""How the packed file gets the name of the old one, step by step.

1. The new file is durable, and so is its index, `.pack.index`, which says how
   long the new file is.  Both have the owner, the group and the mode of the
   old file.
2. The old file gets a second name, `.old`.
3. The index of the new file gets its name, durably.  From here on it proves
   that the new file is whole.
4. The new file gets its name, durably.

So at every moment there is a whole Data.fs.

Without hard links, step 2 is skipped, and step 4 first renames the old file,
durably.  Then there is a moment without a Data.fs.  A process that is killed
at that moment leaves the new file as `.pack`, and an index that proves that
this file is whole.  The next opening finishes the swap (swap).  It also does
so if a power cut has left half of a rename.

Left to others: what a storage must do at the same time (swap), and the pack of
a file that no storage has open (unopened).
"""

import logging
import os
import stat

from .. import datafile
from ..errors import DiskError
from ..format import index

logger = logging.getLogger(__name__)

#: Suffixes to the path of the data file: new file, its index, old file.
PACKED, INDEX_OF_PACKED, OLD = '.pack', '.pack.index', '.old'
INDEX = '.index'


def refuse_what_is_in_the_way(path: str, blob_dir: str | None) -> None:
    """Refuse to pack if a name could not be replaced later."""
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
    """Give `file` the owner, the group and the mode of the old file.

    If its group has to be another one, that group gets no rights: the old mode
    was not meant for it.
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


def completed(path: str, old: datafile.DataFile,
              end: int) -> datafile.DataFile:
    """Step 1, when the new file is written, and an index of it.

    Return the new file.  It is locked, as the old one is, before it has its
    name.
    """
    file = datafile.open_existing(path + PACKED)
    try:
        make_like(old, file)
        file.lock()
        file.sync()
        with datafile.open_existing(path + INDEX_OF_PACKED) as index_file:
            make_like(old, index_file)
        index.say_whole(path + INDEX_OF_PACKED, end)
    except BaseException:
        file.close()
        raise
    return file


def link_old(path: str) -> bool:
    """Step 2.  Return False if the file system has no hard links.

    The sync for the name of the index makes this name durable, too, before the
    new file gets its own.  A file that is not to be kept has this name only
    during the swap.  It needs it then: where a rename is not atomic, a power
    cut could leave neither file under the name of the data file.
    """
    old = path + OLD
    datafile.remove_if_there(old)
    return datafile.link_if_possible(path, old)


def must_rename(path: str, keep_old: bool) -> bool:
    """Do step 2.  Return whether step 4 must rename the old file instead."""
    to_rename = not link_old(path) and keep_old
    if to_rename:
        logger.warning(
            '%s: this file system has no hard links, so a pack is a'
            ' little less safe: in its last step there is no file of'
            ' this name for a moment; after a crash in it, the next'
            ' start finishes the swap', path)
    return to_rename


def give_name(path: str, to_rename: bool) -> None:
    """Step 4: rename the old file, if `to_rename`, and then the new one."""
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
    """Sync the name of the old file, which stays in use.

    Otherwise the opening after a power cut would finish the swap, and lose
    what is committed from now on.
    """
    try:
        datafile.disk.sync_directory(os.path.dirname(path))
    except OSError as error:
        raise DiskError(
            f'{path} has its name back, but perhaps not durably: {error}'
        ) from error


def replace(path: str, keep_old: bool) -> None:
    """Do steps 2 to 4 for a file that nobody writes to.

    This can be repeated after a crash at any line.
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
