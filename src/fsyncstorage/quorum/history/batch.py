"""A batch: the bytes of whole transactions, and how they become records.

`chunks` says what goes into which record, and reads nothing.  So a transaction
of any size takes the memory of one chunk, and a chunk may be read again.
"""

import typing
from collections.abc import Callable
from collections.abc import Sequence

from .record import BLOB
from .record import COMMIT
from .record import ROOM
from .record import Blob
from .record import Commit
from .record import Data


class Batch(typing.NamedTuple):
    begin: int
    end: int
    #: Reads bytes of the file, by position and length, with the status that
    #: each transaction finally has, whatever the file says at that moment.
    read: Callable[[int, int], bytes]
    commits: Sequence[Commit] = ()
    blobs: Sequence[Blob] = ()


class Chunk(typing.NamedTuple):
    batch: Batch
    commits: tuple[Commit, ...]
    blobs: tuple[Blob, ...]
    position: int
    length: int

    def body(self) -> Data:
        batch = self.batch
        data = batch.read(self.position, self.length) if self.length else b''
        if len(data) != self.length:
            raise OSError(
                f'{len(data)} bytes at {self.position}, not {self.length}')
        return Data(batch.begin, batch.end, self.commits, self.blobs, data)


def chunks(batch: Batch, room: int = ROOM) -> list[Chunk]:
    """The chunks of a batch: first all commits, then all blobs, then all
    bytes."""
    if batch.end <= batch.begin:
        raise ValueError(f'a batch from {batch.begin} to {batch.end}')
    made: list[Chunk] = []
    commits, blobs = tuple(batch.commits), tuple(batch.blobs)
    position = batch.begin
    while position < batch.end:
        some = commits[:room // COMMIT]
        left = room - len(some) * COMMIT
        commits = commits[len(some):]
        few = () if commits else blobs[:left // BLOB]
        left -= len(few) * BLOB
        blobs = blobs[len(few):]
        length = 0 if commits or blobs else min(left, batch.end - position)
        made.append(Chunk(batch, some, few, position, length))
        position += length
    return made
