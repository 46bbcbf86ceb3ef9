"""Appends to a file, through a buffer; or to nowhere."""

from collections.abc import Callable

from .. import datafile
from .checksum import Checksum


class Output:
    BUFFER = 1 << 18

    def __init__(self, file: datafile.DataFile, end: int = 0,
                 written: Callable[[int], object] = lambda end: None,
                 checksum: Checksum | None = None) -> None:
        self._file = file
        self._begin = end           # of the buffer, in the file
        self._buffer = bytearray()
        self._written = written     # called with the position written up to
        #: Of the bytes that are written and do not change any more.
        self.checksum = checksum
        self._final = end           # bytes before this do not change any more

    @property
    def end(self) -> int:
        return self._begin + len(self._buffer)

    def append(self, data: bytes | memoryview) -> None:
        self._buffer += data
        if len(self._buffer) >= self.BUFFER:
            self.flush()

    def fill_in(self, data: bytes, position: int) -> None:
        """Replace bytes that were appended in one call.

        After this, nothing that was appended so far changes any more.
        """
        at = position - self._begin
        if at >= 0:
            self._buffer[at:at + len(data)] = data
        else:
            self._file.write_at(data, position)
        self._final = self.end

    def flush(self) -> None:
        if self._buffer:
            self._file.write_at(self._buffer, self._begin)
            self._begin = self.end
            self._buffer = bytearray()
            self._written(self._begin)
        if self.checksum is not None:
            self.checksum.read_to(self._final)


class Nowhere(Output):
    """Only its length is known."""

    def __init__(self) -> None:
        self._begin, self._buffer, self.checksum = 0, bytearray(), None

    def fill_in(self, data: bytes, position: int) -> None:
        pass

    def flush(self) -> None:
        self._begin = self.end
        self._buffer = bytearray()
