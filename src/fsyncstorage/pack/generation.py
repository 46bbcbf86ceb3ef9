"""Which of two files a node has, when a crash came while one took the place of
the other.

Before a node lets its new file take the place of the old one, it keeps beside
them what the file *becomes*: a size and a checksum.  It keeps that until it
has kept that the file is the new one.  A start that finds it asks here which
of the files has which name.  Whether the other nodes have agreed to the new
one, the log says; so nothing is changed here but by `finish`.

    Data.fs is     beside a new file   without one
    the old one    READY               OLD
    the new one    NEW                 NEW
    not there      READY               NEITHER
    another one    NEITHER             NEITHER

(It is not there where a file system has no hard links, between two renames.)

READY: if the swap was agreed, `finish` gives the new file its name.  OLD: if
it was agreed, the file has to be packed again, or copied (unopened).  NEW: it
was agreed; what is behind the size in Data.fs was appended later.  NEITHER:
someone has put another file there, or one is damaged: nothing may be done.
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
    """`is_old` tells whether this is the file from before, by what was kept
    of that."""
    data = _data(path, becoming, is_old)
    return decide(data, data is not Data.NEW and begins_with(
        path + naming.PACKED, becoming, whole=True))


def finish(path: str, keep_old: bool) -> None:
    """It is READY, and agreed: give it the name, durably."""
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
    """Does a file begin as this one?  `whole`: and has it nothing else?"""
    if not os.path.isfile(path):    # a pipe would hang
        return False
    with datafile.open_existing(path, read_only=True) as file:
        if whole and file.size() != becoming.size:
            return False
        return (checksum.of_first(file.fileno(), becoming.size)
                == becoming.checksum)
