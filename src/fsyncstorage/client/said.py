"""The messages of a transaction to its server, kept until its vote is
answered: they may have to be sent again, to another node (repeating).

The first messages are kept in memory, and share their bytes with what is kept
for the cache (written).  The others are in a file without a name, each after
its length.  The file has no buffer: if the disk does not take something, that
is an error of `add`, and not of a later call.  A fork shares the file, and
adds nothing.
"""

import contextlib
import os
import pickle
import tempfile
from collections.abc import Callable
from collections.abc import Iterator
from typing import IO
from typing import Any

from .process import Process

# Bytes of messages.
IN_MEMORY = 4 << 20

# Bytes of a blob in one message to the server.
MESSAGE_SIZE = 1 << 16

# Bytes of the length of a message in the file.
_LENGTH = 8

#: A method and its arguments; or a function that yields several of these, and
#: is called each time, because they are too large to be held in memory.
One = tuple[str, tuple[Any, ...]]
Message = One | Callable[[], Iterator[One]]


class Said:

    _file: IO[bytes] | None = None

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._room = IN_MEMORY
        #: Of the file.
        self._end = 0
        self._process = Process('transaction')

    def add(self, message: Message, size: int) -> None:
        self._room -= size
        if self._room >= 0:
            self._messages.append(message)
            return
        self._process.check()
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        end = self._write(len(data).to_bytes(_LENGTH, 'big'), self._end)
        self._end = self._write(data, end)

    def _write(self, data: bytes, position: int) -> int:
        assert self._file is not None
        left = memoryview(data)
        while left:
            written = os.pwrite(self._file.fileno(), left, position)
            position, left = position + written, left[written:]
        return position

    def __iter__(self) -> Iterator[Message]:
        """Yield all messages; OSError if they cannot be read.

        Nothing may be added during that time.
        """
        yield from self._messages
        position = 0
        while position < self._end:
            length = int.from_bytes(self._read(_LENGTH, position), 'big')
            yield pickle.loads(self._read(length, position + _LENGTH))
            position += _LENGTH + length

    def _read(self, length: int, position: int) -> bytes:
        assert self._file is not None
        found = bytearray()
        while len(found) < length:
            piece = os.pread(self._file.fileno(), length - len(found),
                             position + len(found))
            if not piece:
                raise OSError('a temporary file was cut off')
            found += piece
        return bytes(found)

    def close(self) -> None:
        """May be repeated."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()


def blob_messages(path: str, oid: bytes, serial: bytes, data: bytes,
                  transaction: int) -> Iterator[One]:
    """Yield the messages that store a blob."""
    yield 'storeBlobStart', ()
    with open(path, 'rb') as file:
        while piece := file.read(MESSAGE_SIZE):
            yield 'storeBlobChunk', (piece,)
    yield 'storeBlobEnd', (oid, serial, data, transaction)
