"""The checksum of a file that is being written: of its bytes, block by block.

It is BLAKE2b (32 bytes) over the BLAKE2b of each 16 MB of the file.  The hash
of a whole file could not be handed to another process in the middle of it;
the row of those of its blocks can, and the other one reads only the last
block again.

It reads what was written back from the page cache, because a transaction is
not written in one go: its header is filled in when its records are there.
Cost: 1.4 s of the processor's time for each GB, and 32 bytes of memory for
each block.
"""

import hashlib
import os

from ..format.window import Pread

#: Bytes of a checksum.
SIZE = 32
BLOCK = 1 << 24
_AT_ONCE = 1 << 20


class Checksum:
    """`blocks` are those of whole blocks, as another Checksum knows them."""

    def __init__(self, pread: Pread, blocks: bytes = b'') -> None:
        self._pread = pread
        self._blocks = bytearray(blocks)
        #: Read up to here.
        self.position = len(blocks) // SIZE * BLOCK
        self._block = _hash()

    @classmethod
    def of_file(cls, number: int, blocks: bytes = b'') -> 'Checksum':
        """Of an open file, by its descriptor number."""
        return cls(lambda length, position: os.pread(
            number, length, position), blocks)

    @property
    def blocks(self) -> bytes:
        return bytes(self._blocks)

    def read_to(self, end: int) -> None:
        """What is before `end` does not change any more."""
        while self.position < end:
            left = BLOCK - self.position % BLOCK
            piece = self._pread(
                min(_AT_ONCE, left, end - self.position), self.position)
            if not piece:
                raise EOFError(
                    f'the file ends at {self.position}, before {end}')
            self._block.update(piece)
            self.position += len(piece)
            if len(piece) == left:
                self._blocks += self._block.digest()
                self._block = _hash()

    def of_all(self) -> bytes:
        """Of what was read so far."""
        row = self._blocks
        if self.position % BLOCK:
            row = row + self._block.digest()
        return _hash(row).digest()


def of_first(number: int, size: int) -> bytes | None:
    """The checksum of the first bytes of an open file; None: it is shorter."""
    found = Checksum.of_file(number)
    try:
        found.read_to(size)
    except EOFError:
        return None
    return found.of_all()


def _hash(data: bytes | bytearray = b'') -> 'hashlib.blake2b':
    return hashlib.blake2b(data, digest_size=SIZE)
