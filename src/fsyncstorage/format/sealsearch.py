"""Finds seals in a file, without reading the transactions around them.

What is damaged may have sound seals behind it: they say what was durable.  And
the last seal tells whether this release may change the file.
"""

import re
from collections.abc import Iterator

from . import seal
from .scan import FIRST
from .scan import HEADER
from .scan import unpack_header
from .window import Window

_MAGIC = re.compile(re.escape(seal.MAGIC))
_LENGTH_BEHIND = 8


def find_sound_seals(window: Window,
                     start: int) -> Iterator[tuple[int, seal.Seal]]:
    """Yield (position, Seal) of each sealed transaction from `start` on.

    The transaction may be torn, but its header is there, and the seal is in
    its place.  A seal in another place proves nothing: it was moved, or it is
    part of a Data.fs that is kept inside a pickle.
    """
    for at, _ in window.matches(_MAGIC, start, HEADER):
        try:
            found = seal.parse(window.read(at, seal.LARGEST))
        except seal.UnknownVersion as unknown:
            if start <= unknown.position < at and (
                    _end_of_extension(window, unknown.position)
                    == at + unknown.size):
                raise
            continue
        if found is not None and start <= found.position < at and (
                _length(window, found.position) == found.length
                and _end_of_extension(window, found.position)
                == at + seal.SIZE):
            yield found.position, found


def refuse_unknown_version(window: Window, end: int) -> None:
    """Raise UnknownVersion if the transaction that ends at this position has
    a seal of another version.

    A release seals all that it writes with its own version, and refuses a file
    that has others: so the last transaction tells.
    """
    if end < FIRST + HEADER + _LENGTH_BEHIND:
        return
    length = int.from_bytes(
        window.read(end - _LENGTH_BEHIND, _LENGTH_BEHIND), 'big')
    position = end - _LENGTH_BEHIND - length
    if position < FIRST or length < HEADER:
        return
    field_end = _end_of_extension(window, position)
    if field_end <= position + length:
        begin = max(field_end - seal.LARGEST, position + HEADER)
        seal.find(window.read(begin, field_end - begin))


def _length(window: Window, position: int) -> int:
    """The length in the header of the transaction at this position."""
    length: int = unpack_header(window.read(position, HEADER))[1]
    return length


def _end_of_extension(window: Window, position: int) -> int:
    """Where the header of the transaction at this position ends, with its
    extension."""
    _, _, _, user, description, extension = unpack_header(
        window.read(position, HEADER))
    end: int = position + HEADER + user + description + extension
    return end
