"""What a transaction says to its server, until its vote is answered: another
node may have to hear all of it again (repeating).

The first messages are kept in memory.  Their objects are those that are kept
for the cache, too (written).  The others are in a file without a name.
"""

import os
import pickle
import tempfile
from collections.abc import Callable
from collections.abc import Iterator
from typing import IO
from typing import Any

# Bytes of messages.
IN_MEMORY = 4 << 20

# Bytes of a blob in one message to the server.
MESSAGE_SIZE = 1 << 16

#: A method and its arguments; or what makes several of these, to be called
#: each time: they are too large to be held in memory.
One = tuple[str, tuple[Any, ...]]
Message = One | Callable[[], Iterator[One]]


class Said:

    _file: IO[bytes] | None = None

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._room = IN_MEMORY

    def add(self, message: Message, size: int) -> None:
        self._room -= size
        if self._room >= 0:
            self._messages.append(message)
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile()
        pickle.dump(message, self._file, pickle.HIGHEST_PROTOCOL)

    def __iter__(self) -> Iterator[Message]:
        """Nothing is added meanwhile."""
        yield from self._messages
        if self._file is not None:
            ends = self._file.seek(0, os.SEEK_END)
            self._file.seek(0)
            try:
                while self._file.tell() < ends:
                    yield pickle.load(self._file)
            finally:
                self._file.seek(ends)

    def close(self) -> None:
        """May be repeated."""
        if self._file is not None:
            self._file.close()


def blob_messages(path: str, oid: bytes, serial: bytes, data: bytes,
                  transaction: int) -> Iterator[One]:
    """Those that store a blob."""
    yield 'storeBlobStart', ()
    with open(path, 'rb') as file:
        while piece := file.read(MESSAGE_SIZE):
            yield 'storeBlobChunk', (piece,)
    yield 'storeBlobEnd', (oid, serial, data, transaction)
