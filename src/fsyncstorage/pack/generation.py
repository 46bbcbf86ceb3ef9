"""Which of two files a node has, if a crash happened while one file took the
place of the other.

Before a node lets its new file take the place of the old one, it notes beside
them, durably, what the file *becomes*: a size and a checksum.  It removes this
note only when it has noted that the file is the new one.  A start that finds
the note asks here which of the files has which name.  Whether the other nodes
have agreed to the new file is in the log.  So nothing is changed here except
by `naming.replace`.

    Data.fs is     beside a new file   without one
    the old one    READY               OLD
    the new one    NEW                 NEW
    not there      READY               NEITHER
    another one    NEITHER             NEITHER

(Data.fs is not there if a power cut has left a rename half done.)

READY: if the swap was agreed, `naming.replace` gives the new file its name.
OLD: if it was agreed, the file must be packed again, or copied
(quorum.following.repacking).
NEW: it was agreed; what is behind the noted size in Data.fs was appended
later.  NEITHER: someone has put another file there, or one of the files is
damaged: nothing may be done.
"""

import enum
import os
from collections.abc import Callable

from .. import datafile
from . import checksum
from . import naming
from .agreed import Becoming


class Found(enum.Enum):
    OLD, READY, NEW, NEITHER = 'old', 'ready', 'new', 'neither'


def look(path: str, becoming: Becoming,
         is_old: Callable[[datafile.DataFile], bool]) -> Found:
    """Which of the two files has which name?

    `is_old` tells whether a file is the old one, by what was kept about it.
    """
    is_missing = not os.path.lexists(path)
    if not is_missing and not _is_old(path, is_old):
        return Found.NEW if begins_with(path, becoming) else Found.NEITHER
    if begins_with(path + naming.PACKED, becoming, whole=True):
        return Found.READY
    return Found.NEITHER if is_missing else Found.OLD


def _is_old(path: str,
            is_old: Callable[[datafile.DataFile], bool]) -> bool:
    if not os.path.isfile(path):    # a pipe would hang
        return False
    with datafile.open_existing(path, read_only=True) as file:
        return is_old(file)


def begins_with(path: str, becoming: Becoming, whole: bool = False) -> bool:
    """Does the file at `path` begin with these bytes?

    `whole`: and does it end there?
    """
    if not os.path.isfile(path):    # a pipe would hang
        return False
    with datafile.open_existing(path, read_only=True) as file:
        if whole and file.size() != becoming.size:
            return False
        return (checksum.of_first(file.fileno(), becoming.size)
                == becoming.checksum)
