"""A batch: the bytes of whole transactions, and how they become records.

`chunks` says what goes into which record, and reads nothing.  So a transaction
of any size takes the memory of one chunk, and a chunk may be read again.
"""

import typing
from collections.abc import Callable
from collections.abc import Sequence

from .record import BLOB
from .record import ROOM
from .record import Blob
from .record import Data


class Batch(typing.NamedTuple):
    begin: int
    end: int
    #: Reads bytes of the file, by position and length, with the status that
    #: each transaction finally has, whatever the file says at that moment.
    read: Callable[[int, int], bytes]
    blobs: Sequence[Blob] = ()


class Chunk(typing.NamedTuple):
    batch: Batch
    blobs: tuple[Blob, ...]
    position: int
    length: int

    def body(self) -> Data:
        batch = self.batch
        data = batch.read(self.position, self.length) if self.length else b''
        if len(data) != self.length:
            raise OSError(
                f'{len(data)} bytes at {self.position}, not {self.length}')
        return Data(batch.begin, batch.end, self.blobs, data)


def chunks(batch: Batch, room: int = ROOM) -> list[Chunk]:
    """The chunks of a batch: first all blobs, then all bytes."""
    if batch.end <= batch.begin:
        raise ValueError(f'a batch from {batch.begin} to {batch.end}')
    made: list[Chunk] = []
    blobs, position = tuple(batch.blobs), batch.begin
    while position < batch.end:
        some = blobs[:room // BLOB]
        blobs = blobs[len(some):]
        length = 0 if blobs else min(
            room - len(some) * BLOB, batch.end - position)
        made.append(Chunk(batch, some, position, length))
        position += length
    return made
