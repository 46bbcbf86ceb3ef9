"""Decompresses records, within bounds.

zc.zlibstorage begins a record with a mark, `.z`; other wrappers, like those
that encrypt, have other marks, and only they can read what follows.  A
malicious record can unpack to 1,000 times its size, and there may be many of
them.  So there are two bounds: for one record, and for a whole file.

Left to others: what the pickles contain (references), and what is reported.
"""

import zlib

from ..format.references import TooMuch

# The longest record whose pickles are read, wrapped or unwrapped.  ZODB warns
# when a record of half this size is stored.
LARGEST = 32 << 20
# The pickles of a record may need this many values at a time, of up to 200
# bytes each.
MOST_VALUES = 500_000
# At least this many bytes are decompressed at a time.
UNPACKED_AT_ONCE = 1 << 16


class Budget:
    """How many bytes of pickles may be unpacked in all, for a file of `size`.

    In a file that ZODB wrote, the records of different objects share no data,
    and zlib makes pickles only a few times smaller.
    """

    TIMES = 20
    AT_LEAST = 2 * LARGEST

    def __init__(self, size: int) -> None:
        self._most = self._left = self.TIMES * size + self.AT_LEAST

    def refuse_large(self, size: int) -> None:
        if size > LARGEST:
            raise TooMuch(f'its pickles have more than {LARGEST:,} bytes')

    def spend(self, size: int) -> None:
        """Count bytes that will be unpacked; TooMuch if that is too many."""
        self.refuse_large(size)
        if size > self._left:
            raise TooMuch(
                f'all pickles together have more than {self._most:,} bytes')
        self._left -= size


def unwrap(data: bytes, budget: Budget) -> bytes | None:
    """The pickles of a record; None if only its wrapper can read them."""
    if data[:2] == b'.z':
        data = decompress(data[2:], budget)
    # (No pickle begins with STOP.)
    return None if data[:1] == b'.' != data else data


def decompress(data: bytes, budget: Budget) -> bytes:
    """Decompress a record piece by piece: its size is not known in advance."""
    stream = zlib.decompressobj()
    pieces = []
    size = 0
    while not stream.eof:
        step = max(4 * len(data), UNPACKED_AT_ONCE)
        piece = stream.decompress(data, step)
        if not piece and not stream.eof:
            raise ValueError('it is compressed, and not complete')
        size += len(piece)
        budget.refuse_large(size)
        budget.spend(len(piece))
        pieces.append(piece)
        data = stream.unconsumed_tail
    return b''.join(pieces)
