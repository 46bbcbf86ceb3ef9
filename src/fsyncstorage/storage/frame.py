"""The frame of a transaction: its header, with status 'c', and the length
behind it.

It is written, and synced, before any content that could be taken for another
transaction (format.lookalikes).  So wherever a power cut leaves such content,
the frame is around it, and it proves nothing of the file (recovery).  All
others are written in any order, and need no frame.

For the same reason such content is erased before its frame is cut off: of a
cut, as of any change, a power cut may keep a part.
"""

import errno
from collections.abc import Callable

from ..datafile import DataFile
from ..format import outerseals
from ..format import scan
from ..format.lookalikes import Lookalikes
from ..format.window import Window

_LENGTH = slice(8, 16)  # in a header
_LENGTH_BEHIND = 8
_FULL = errno.ENOSPC, errno.EDQUOT
_ZEROS = bytes(1 << 20)


class Frame:

    def __init__(self, file: DataFile, start: int, header: bytes,
                 sync: Callable[[], object]) -> None:
        """`header`: without texts.  `sync` makes durable what is written."""
        self._file, self._start, self._header = file, start, header
        self._sync = sync
        self._end = start + int.from_bytes(header[_LENGTH], 'big')
        self._is_durable = False
        self._lookalikes = Lookalikes(start, self._end)

    def is_to_have(self, piece: bytes) -> None:
        """Called with all content, in its order, before it is written."""
        if not self._is_durable and self._lookalikes.are_in(piece):
            self._file.write_at(self._header, self._start)
            self._file.write_at(self._header[_LENGTH], self._end)
            self._sync()
            self._is_durable = True


def erase_lookalikes(file: DataFile, position: int) -> bool:
    """Erase what looks like transactions, and leave the frames around it.

    Called before the file is cut off at this position.  If true, it has to be
    synced before that.
    """
    window, erased = Window.of_file(file.fileno()), False
    while (end := outerseals.end_of_whole(window, position)) is not None:
        begin, stop = position + scan.HEADER, end - _LENGTH_BEHIND
        seen = Lookalikes(position, stop)
        if any(seen.are_in(bytes(piece))
               for piece in window.pieces(begin, stop)):
            _erase(file, begin, stop)
            erased = True
        position = end
    return erased


def _erase(file: DataFile, begin: int, end: int) -> None:
    try:
        for position in range(begin, end, len(_ZEROS)):
            file.write_at(_ZEROS[:end - position], position)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        # Behind here nothing was written, or it would have its blocks.
