"""Whether the content of a transaction could be taken for another one.

A client stores any bytes, and can guess where in the file they will be.  So
they may be what looks like a transaction in its place, with records or with a
seal.  While the transaction around it is whole, nobody looks for one there
(outerseals).  If a power cut loses the header around it, what is left of the
content would seem to prove that the place had been durable, and the file
would be refused.  So such content is written only when the *frame*
around it, the header and the length behind it, is durable
(storage.transaction).

What is looked for is the least that the search behind damage believes: a seal
that names a place in here, or the header of a record that belongs to one.
Content that merely has such bytes, as a Data.fs that is kept in a pickle,
names other places.

It is pure, and takes little more time than two searches for a string.
"""

from collections.abc import Iterator

from . import scan
from . import seal

#: How many places are looked at; where there are more, it is in doubt.
MOST_LOOKS = 1000
#: Bytes of a piece that are looked at again with the next one.
_OVERLAP = max(seal.SIZE, scan.RECORD_HEADER)
#: In the header of a record, a previous pointer is before the position of its
#: transaction, and behind that two zeros and a length.
_NUMBER = 8
_BEHIND = 2 + _NUMBER
#: In a seal.
_OFFSET_OF_POSITION = len(seal.MAGIC) + 4


class Lookalikes:
    """In a transaction that begins and ends there.  Its content is shown
    piece by piece, in the order of the file.

    (In a young file, a transaction 256 times as long as what is before it may
    seem to have one: its own records, read from the next byte on.)
    """

    def __init__(self, start: int, end: int) -> None:
        self._start, self._end = start, end
        # Of all numbers between the two.
        self._first_bytes = _packed(start)[
            :_NUMBER - ((start ^ end).bit_length() + 7) // 8]
        self._before = b''
        self._looks = MOST_LOOKS

    def are_in(self, piece: bytes) -> bool:
        """If in doubt: is there any in what was shown, of which this is the
        last piece?"""
        data = self._before + piece if self._before else piece
        self._before = data[-_OVERLAP:]
        return (self._has_seal(data) or self._has_record(data)
                or not self._looks)

    def _has_seal(self, data: bytes) -> bool:
        return any(self._is_inside(data, at + _OFFSET_OF_POSITION)
                   for at in self._places_of(seal.MAGIC, data))

    def _has_record(self, data: bytes) -> bool:
        return any(self._is_inside(data, at) and self._fits(data, at)
                   for at in self._places_of(self._first_bytes, data))

    def _places_of(self, some: bytes, data: bytes) -> Iterator[int]:
        at = data.find(some)
        while at >= 0 and self._looks:
            self._looks -= 1
            yield at
            at = data.find(some, at + 1)

    def _is_inside(self, data: bytes, at: int) -> bool:
        """A record or seal of the transaction itself names its start."""
        number = data[at:at + _NUMBER]
        return len(number) == _NUMBER and (
            self._start < int.from_bytes(number, 'big') < self._end)

    def _fits(self, data: bytes, at: int) -> bool:
        """Could what is around this number be the header of a record?"""
        previous = data[max(0, at - _NUMBER):at]
        version_and_length = data[at + _NUMBER:][:_BEHIND]
        return (previous < data[at:at + _NUMBER]
                and not any(version_and_length[:2])
                and int.from_bytes(version_and_length[2:], 'big') < self._end)


def _packed(number: int) -> bytes:
    return number.to_bytes(_NUMBER, 'big')
