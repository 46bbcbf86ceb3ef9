"""What storage wrappers did to a record, taken off within bounds.

zc.zlibstorage and hexstorage begin a record with a mark, `.z` or `.h`; other
wrappers, like those that encrypt, have others.  A record that was made to do
harm can have 1,000 times its size inside, and so can each of many.  So there
are two bounds: for one record, and for all of a file.

Left to others: what the pickles say (references), and what is reported.
"""

import binascii
import zlib

# The longest record whose pickles are walked, as it is and unwrapped.  ZODB
# warns of half of it when it is stored.
LARGEST = 32 << 20
# What is decompressed at a time, at least.
UNPACKED_AT_ONCE = 1 << 16


class TooMuch(Exception):
    """To read this would take more than the check may."""


class Budget:
    """How many bytes of pickles may be looked at, in all.

    In a file that ZODB wrote, the records of different objects share no data,
    and zlib makes pickles a few times smaller.
    """

    TIMES = 20
    AT_LEAST = 2 * LARGEST

    def __init__(self, size: int) -> None:
        self._most = self._left = self.TIMES * size + self.AT_LEAST

    def refuse_large(self, size: int) -> None:
        if size > LARGEST:
            raise TooMuch(f'its pickles have more than {LARGEST:,} bytes')

    def spend(self, size: int) -> None:
        """So many bytes will be looked at; TooMuch if they may not."""
        self.refuse_large(size)
        if size > self._left:
            raise TooMuch(
                f'all pickles together have more than {self._most:,} bytes')
        self._left -= size


def unwrap(data: bytes, budget: Budget) -> tuple[str, bytes | None]:
    """What storage wrappers did to a record: (their marks, the pickles).

    The pickles are None if only the wrapper knows how to read them.  Each
    wrapper is taken off once: a record can be made that is compressed for
    ever.
    """
    marks = ''
    while data[:1] == b'.' != data:  # no pickle begins with STOP
        mark = data[:2].decode('latin-1')
        if mark in marks:
            raise ValueError(f'it is wrapped as {mark} twice')
        marks += mark
        if mark == '.z':
            data = decompress(data[2:], budget)
        elif mark == '.h':
            budget.spend(len(data) // 2)
            data = binascii.unhexlify(data[2:])
        else:
            return marks, None
    return marks, data


def decompress(data: bytes, budget: Budget) -> bytes:
    """What zlib made of a record, piece by piece: it does not say how much
    there is."""
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
