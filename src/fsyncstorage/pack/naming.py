"""How the packed file gets the name of the old one, step by step.

1. The new file is durable, and so is its index, `.pack.index`, which says how
   long the new file is.  Both have the owner, the group and the mode of the
   old file.
2. The old file gets a second name, `.old`.
3. The index of the new file gets its name, durably.
4. The new file gets its name, durably.

So at every moment there is a whole Data.fs.

Without hard links, step 2 is skipped: the old file cannot be kept.

Left to others: what a storage must do at the same time (packing), and the pack
of a node that follows (quorum.following.repacking).
"""

import errno
import logging
import os
import stat

from .. import datafile
from ..format import index

logger = logging.getLogger(__name__)

#: Suffixes to the path of the data file: new file, its index, old file.
PACKED, INDEX_OF_PACKED, OLD = '.pack', '.pack.index', '.old'
INDEX = '.index'


def refuse_what_is_in_the_way(path: str, blob_dir: str | None,
                              keep_old: bool) -> None:
    """Refuse to pack if a name could not be given later."""
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
    if keep_old:
        # (The new file, which has this name later, is not made yet.)
        datafile.remove_if_there(path + PACKED)
        if not datafile.link_if_possible(path, path + PACKED):
            raise OSError(
                errno.ENOTSUP, 'this file system has no hard links, so a pack'
                ' cannot keep the old file: set pack-keep-old to false.'
                ' Nothing was changed', path)
        datafile.remove_if_there(path + PACKED)


def make_like(old: datafile.DataFile, file: datafile.DataFile) -> None:
    """Give `file` the owner, the group and the mode of the old file.

    If its group has to be another one, that group gets no rights: the old mode
    was not meant for it.
    """
    wanted, found = os.fstat(old.fileno()), os.fstat(file.fileno())
    mode = stat.S_IMODE(wanted.st_mode)
    if (wanted.st_uid, wanted.st_gid) != (found.st_uid, found.st_gid):
        try:
            os.fchown(file.fileno(), wanted.st_uid, wanted.st_gid)
        except OSError:
            mode &= ~stat.S_IRWXG
            logger.warning(
                '%s: a pack may not give the new file the owner and the group'
                ' of the old one (%d:%d): it has those of this process, and'
                ' its group may not read it',
                file.name, wanted.st_uid, wanted.st_gid)
    os.fchmod(file.fileno(), mode)


def complete(path: str, new: datafile.DataFile, end: int) -> None:
    """Step 1, when the new file is written, and an index of it.

    The new file is locked, as the old one is, before it has its name.
    """
    new.lock()
    new.sync()
    index.say_whole(path + INDEX_OF_PACKED, end)


def link_old(path: str) -> None:
    """Step 2.

    The sync for the name of the index makes this name durable, too, before the
    new file gets its own.  A file that is not to be kept has this name only
    during the swap.  It needs it then: where a rename is not atomic, a power
    cut could leave neither file under the name of the data file.
    """
    datafile.remove_if_there(path + OLD)
    datafile.link_if_possible(path, path + OLD)


def replace(path: str, keep_old: bool) -> None:
    """Do steps 2 to 4 for a file that nobody writes to.

    This can be repeated after a crash at any line.
    """
    path = os.path.abspath(path)
    home = os.path.dirname(path)
    if os.path.lexists(path):
        link_old(path)
    if os.path.lexists(path + INDEX_OF_PACKED):
        datafile.disk.replace(path + INDEX_OF_PACKED, path + INDEX)
        datafile.disk.sync_directory(home)
    datafile.disk.replace(path + PACKED, path)
    datafile.disk.sync_directory(home)
    if not keep_old:
        datafile.remove_if_there(path + OLD)
