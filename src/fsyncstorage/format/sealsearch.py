"""Finds seals in a file, without reading the transactions around them.

What is damaged may have sound seals behind it: they say what was durable.  And
the last seal tells whether this release may change the file.
"""

import itertools
import re
from collections.abc import Iterator
from typing import Any

from . import seal
from .headers import headers_before
from .scan import HEADER
from .scan import unpack_header
from .window import Window

_MAGIC = re.compile(re.escape(seal.MAGIC))
#: Transactions without a seal that are passed to find the last seal.
MOST_STEPS = 1000


def find_sound_seals(window: Window, start: int, refuse: bool = False
                     ) -> Iterator[tuple[int, seal.Seal]]:
    """Yield (position, Seal) of each sealed transaction from `start` on.

    The transaction may be torn, but its header is there, and the seal is in
    its place.  A seal in another place proves nothing: it was moved, or it is
    part of a Data.fs that is kept inside a pickle.  If told to `refuse`, raise
    UnknownVersion for a seal of another version.
    """
    for at, match in window.matches(_MAGIC, start, seal.LARGEST):
        begin = match.start()
        try:
            found = seal.parse(match.string[begin:begin + seal.LARGEST])
        except seal.UnknownVersion as unknown:
            if refuse and start <= unknown.position < at and (
                    _end_of_extension(window, unknown.position)
                    == at + unknown.size):
                raise
            continue
        if found is not None and start <= found.position < at and (
                _length(window, found.position) == found.length
                and _end_of_extension(window, found.position)
                == at + seal.SIZE):
            yield found.position, found


def refuse_unknown_last_seal(window: Window, end: int) -> None:
    """Raise UnknownVersion if the last seal before this position, where a
    transaction ends, is of another version.

    A release seals what it writes with its own version, and refuses a file
    that has others: so the last seal tells.  (The last of MOST_STEPS
    transactions: stock writes any number without seals.)
    """
    for header in itertools.islice(headers_before(window, end), MOST_STEPS):
        if seal.find(header.field) is not None:
            return


def _header(window: Window, position: int) -> tuple[Any, ...]:
    return unpack_header(window.read(position, HEADER))


def _length(window: Window, position: int) -> int:
    """The length in the header of the transaction at this position."""
    length: int = _header(window, position)[1]
    return length


def _end_of_extension(window: Window, position: int) -> int:
    """Where the header of the transaction at this position ends, with its
    extension."""
    sizes: tuple[int, ...] = _header(window, position)[3:]
    return position + HEADER + sum(sizes)
