"""Reads a file by positions, through one large window.

For a scan: the next bytes are mostly in the window already.  Each read names
its position, so that other users of the file do not matter, and a read
elsewhere does not move the window.
"""

import os
import zlib
from functools import partial


class Window:
    """`pread(length, position)` reads; `end` is where the file ends for us,
    whatever others append meanwhile.
    """

    SIZE = 1 << 18
    SMALL_SIZE = 1 << 12

    def __init__(self, pread, end):
        self.pread = pread
        self.end = end
        self.forget()

    @classmethod
    def of_file(cls, number):
        """A window of an open file, by its descriptor number."""
        return cls(partial(os.pread, number), os.fstat(number).st_size)

    @classmethod
    def of_bytes(cls, data):
        return cls(
            lambda length, position: data[position:position + length],
            len(data))

    def forget(self):
        """Drop what was read ahead: others may have written since."""
        self._buffer = b''
        self._base = 0

    def scout(self):
        """A new small window of the same file, to look ahead or again."""
        scout = Window(self.pread, self.end)
        scout.SIZE = self.SMALL_SIZE
        return scout

    def cover(self, position, length):
        """A buffer that has these bytes, and their place in it.

        EOFError if the file ends before.
        """
        offset = position - self._base
        if offset < 0 or offset + length > len(self._buffer):
            self._buffer = self._read(position, max(length, self.SIZE))
            self._base = position
            offset = 0
            if len(self._buffer) < length:
                raise EOFError
        return self._buffer, offset

    def read(self, position, length):
        """These bytes; fewer at the end of the file.

        It uses the window if they are in it, and does not move it.
        """
        offset = position - self._base
        if 0 <= offset and offset + length <= len(self._buffer):
            return self._buffer[offset:offset + length]
        return self._read(position, length)

    def pieces(self, position, end):
        """Yield the bytes up to `end`, as views that share the window."""
        while position < end:
            buffer, offset = self.cover(position, 1)
            piece = memoryview(buffer)[offset:offset + end - position]
            yield piece
            position += len(piece)

    def crc(self, position, end, crc):
        for piece in self.pieces(position, end):
            crc = zlib.crc32(piece, crc)
        return crc

    def _read(self, position, length):
        """Repeat: a read of the system may be shorter than asked for."""
        length = min(length, self.end - position)
        data = self.pread(length, position) if length > 0 else b''
        while data and len(data) < length:
            more = self.pread(length - len(data), position + len(data))
            if not more:
                break
            data += more
        return data
