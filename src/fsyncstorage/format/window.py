"""Reads a file by positions, through one large window.

For a scan: mostly, the next bytes are in the window already.  Each read names
its position, so other users of the file do not disturb it, and a read
elsewhere does not move the window.
"""

import os
import re
import zlib
from collections.abc import Callable
from collections.abc import Iterator
from functools import partial

from ..datafile import DataFile

# Called with a length and a position.
Pread = Callable[[int, int], bytes]


class Window:
    """`pread(length, position)` reads.  For the window, the file ends at
    `end`, even if others append to it.
    """

    SIZE = 1 << 18
    SMALL_SIZE = 1 << 12
    #: A transaction up to this size is read at once, a larger one in pieces.
    LARGEST = 1 << 20

    def __init__(self, pread: Pread, end: int) -> None:
        self.pread = pread
        self.end = end
        self.forget()

    @classmethod
    def of_file(cls, number: int) -> 'Window':
        """A window of an open file, by its descriptor number."""
        return cls(partial(os.pread, number), os.fstat(number).st_size)

    @classmethod
    def of_data_file(cls, file: DataFile, end: int) -> 'Window':
        """A window that keeps the file open, even if others close it."""
        descriptor = file.descriptor
        return cls(lambda length, position: os.pread(
            descriptor.number, length, position), end)

    def forget(self) -> None:
        """Drop what was read ahead: others may have written since."""
        self._buffer = b''
        self._base = 0

    def scout(self) -> 'Window':
        """A new small window of the same file, to look ahead or again."""
        scout = Window(self.pread, self.end)
        scout.SIZE = scout.LARGEST = self.SMALL_SIZE
        return scout

    def for_records_of(self, length: int) -> 'Window':
        """A window to look at the records of a transaction of this length, in
        their order: this one has all of it, unless it is large."""
        return self if length <= self.LARGEST else self.scout()

    def cover(self, position: int, length: int) -> tuple[bytes, int]:
        """A buffer that has these bytes, and their place in it.

        EOFError if the file ends too early.
        """
        offset = position - self._base
        if offset < 0 or offset + length > len(self._buffer):
            self._buffer = self._read(position, max(length, self.SIZE))
            self._base = position
            offset = 0
            if len(self._buffer) < length:
                raise EOFError
        return self._buffer, offset

    def look_back(self, end: int, length: int) -> None:
        """Move the window to the bytes before `end`, unless it has so many of
        them already."""
        if not self._base <= end - length <= end <= (
                self._base + len(self._buffer)):
            self._base = max(end - self.SIZE, 0)
            self._buffer = self._read(self._base, end - self._base)

    def read(self, position: int, length: int) -> bytes:
        """These bytes; fewer at the end of the file.

        It uses the window if they are in it, and does not move it.
        """
        offset = position - self._base
        if 0 <= offset and offset + length <= len(self._buffer):
            return self._buffer[offset:offset + length]
        return self._read(position, length)

    def pieces(self, position: int, end: int) -> Iterator[memoryview]:
        """Yield the bytes up to `end`, as views that share the window."""
        while position < end:
            buffer, offset = self.cover(position, 1)
            piece = memoryview(buffer)[offset:offset + end - position]
            yield piece
            position += len(piece)

    def crc(self, position: int, end: int, crc: int) -> int:
        for piece in self.pieces(position, end):
            crc = zlib.crc32(piece, crc)
        return crc

    def matches(self, pattern: re.Pattern[bytes], start: int,
                longest: int) -> Iterator[tuple[int, re.Match[bytes]]]:
        """(position, match) of a pattern in the bytes from `start` on.

        The pattern must not need more than `longest` bytes.
        """
        step = self.SMALL_SIZE
        while start < self.end:
            data = self.pread(min(step + longest, self.end - start), start)
            for match in pattern.finditer(data):
                if match.start() < step:
                    yield start + match.start(), match
            start += step
            step = min(2 * step, self.SIZE)  # a match nearby costs little

    def _read(self, position: int, length: int) -> bytes:
        """Read all: one read of the system may return fewer bytes."""
        length = min(length, self.end - position)
        data = self.pread(length, position) if length > 0 else b''
        while data and len(data) < length:
            more = self.pread(length - len(data), position + len(data))
            if not more:
                break
            data += more
        return data
