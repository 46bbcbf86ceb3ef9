"""The checksum of a file that is being written, block by block.

It is BLAKE2b (32 bytes) over the BLAKE2b hashes of each 16 MB of the file:
these can be handed to another process when half of the file is read.  (The
bytes are read back from the page cache, because the header of a transaction is
filled in when its records are written.)
"""

import hashlib
import os

from ..format.window import Pread

#: Bytes of a checksum.
SIZE = 32
BLOCK = 1 << 24
_AT_ONCE = 1 << 20


class Checksum:
    """`blocks` are the hashes of whole blocks, from another Checksum."""

    def __init__(self, pread: Pread, blocks: bytes = b'') -> None:
        self._pread = pread
        self._blocks = bytearray(blocks)
        #: Read up to here.
        self.position = len(blocks) // SIZE * BLOCK
        self._block = _hash()

    @classmethod
    def of_file(cls, number: int, blocks: bytes = b'') -> 'Checksum':
        """The checksum of an open file, given by its descriptor number."""
        return cls(lambda length, position: os.pread(
            number, length, position), blocks)

    @property
    def blocks(self) -> bytes:
        return bytes(self._blocks)

    def read_to(self, end: int) -> None:
        """Read up to `end`: what is before it does not change any more."""
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
        """The checksum of all that was read so far."""
        row = self._blocks
        if self.position % BLOCK:
            row = row + self._block.digest()
        return _hash(row).digest()


def of_first(number: int, size: int) -> bytes | None:
    """The checksum of the first `size` bytes of an open file.

    None: the file is shorter.
    """
    found = Checksum.of_file(number)
    try:
        found.read_to(size)
    except EOFError:
        return None
    return found.of_all()


def _hash(data: bytes | bytearray = b'') -> 'hashlib.blake2b':
    return hashlib.blake2b(data, digest_size=SIZE)
