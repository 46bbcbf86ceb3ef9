"""Which of two files a node has, if a crash happened while one file took the
place of the other.

Before a node lets its new file take the place of the old one, it notes beside
them, durably, what the file *becomes*: a size and a checksum.  It removes this
note only when it has noted that the file is the new one.  A start that finds
the note asks here which of the files has which name.  Whether the other nodes
have agreed to the new file is in the log.  So nothing is changed here except
by `finish`.

    Data.fs is     beside a new file   without one
    the old one    READY               OLD
    the new one    NEW                 NEW
    not there      READY               NEITHER
    another one    NEITHER             NEITHER

(Data.fs is not there between two renames, on a file system without hard
links.)

READY: if the swap was agreed, `finish` gives the new file its name.  OLD: if
it was agreed, the file must be packed again, or copied (unopened).  NEW: it
was agreed; what is behind the noted size in Data.fs was appended later.
NEITHER: someone has put another file there, or one of the files is damaged:
nothing may be done.
"""

import enum
import os
from collections.abc import Callable

from .. import datafile
from . import checksum
from . import naming
from .agreed import Becoming


class Data(enum.Enum):
    """What has the name of the data file."""

    OLD, NEW, MISSING, OTHER = 'old', 'new', 'missing', 'other'


class Found(enum.Enum):
    OLD, READY, NEW, NEITHER = 'old', 'ready', 'new', 'neither'


def decide(data: Data, is_packed: bool) -> Found:
    """`is_packed`: is the new file there, under its first name?"""
    match data, is_packed:
        case Data.NEW, _:
            return Found.NEW
        case (Data.OLD | Data.MISSING), True:
            return Found.READY
        case Data.OLD, False:
            return Found.OLD
    return Found.NEITHER


def look(path: str, becoming: Becoming,
         is_old: Callable[[datafile.DataFile], bool]) -> Found:
    """Which of the two files has which name?

    `is_old` tells whether a file is the old one, by what was kept about it.
    """
    data = _data(path, becoming, is_old)
    return decide(data, data is not Data.NEW and begins_with(
        path + naming.PACKED, becoming, whole=True))


def finish(path: str, keep_old: bool) -> None:
    """The new file is READY, and agreed: give it the name, durably."""
    naming.replace(path, keep_old)


def _data(path: str, becoming: Becoming,
          is_old: Callable[[datafile.DataFile], bool]) -> Data:
    if not os.path.lexists(path):
        return Data.MISSING
    if os.path.isfile(path):
        with datafile.open_existing(path, read_only=True) as file:
            if is_old(file):
                return Data.OLD
        if begins_with(path, becoming):
            return Data.NEW
    return Data.OTHER


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
