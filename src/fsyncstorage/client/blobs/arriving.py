"""A blob that is read as a file while it is downloaded.

It reads the part, and looks again and again at how much of it is there,
whatever thread or process downloads it.  When nobody has the part locked, the
download is over.  If not all of it is there, the reader opens the blob anew:
it waits for all of it, or gets the error.
"""

import io
import os
import time

from .part import Part

#: Seconds between two looks.
PAUSE = 0.003


class ArrivingFile(io.RawIOBase):
    """It promises that its end is that of the blob.

    It has no descriptor: a program that sends files by descriptor would take
    the bytes that are there for the whole blob.
    """

    def __init__(self, path, open_anew):
        """FileNotFoundError: nobody says how much of it is there."""
        self._open_anew = open_anew
        self._position = 0
        self._source = Part(path, create=False)
        said = self._source.said()
        if said is None:
            self._source.close()
            raise FileNotFoundError(path)
        #: The size of the whole blob, and how much of it is there.
        self.size, self._there = said

    def readable(self):
        return True

    seekable = readable

    def seek(self, offset, whence=os.SEEK_SET):
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position,
                os.SEEK_END: self.size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer):
        """Read of the bytes that are there; wait if there are none."""
        buffer = memoryview(buffer).cast('B')
        if self.closed:
            raise ValueError('the file is closed')
        if self._position >= self.size:
            return 0
        while self._source.closed or self._there <= self._position:
            if self._is_over():
                self._source.close()
                self._source = self._open_anew()
                self._there = self.size
            elif self._there <= self._position:
                time.sleep(PAUSE)
        # Behind what is there, the part has zeros.
        data = os.pread(
            self._source.fileno(),
            min(len(buffer), self._there - self._position), self._position)
        buffer[:len(data)] = data
        self._position += len(data)
        return len(data)

    def _is_over(self):
        """Look how much is there; return whether no more comes."""
        if self._source.closed:  # in the child of a fork
            return True
        nobody_downloads = self._source.lock()
        if self._source.length == self.size:  # it is complete
            self._there = self.size
        else:
            _, self._there = self._source.said() or (self.size, 0)
        return nobody_downloads and self._there < self.size

    def close(self):
        if not self.closed:
            self._source.close()
        super().close()
