"""Finds seals in a file, without reading the transactions around them.

What is damaged may have sound seals behind it: they say what was durable.  And
the last seal tells whether this release may change the file.
"""

import itertools
import re
import typing
from collections.abc import Iterator
from typing import Any

from . import seal
from .scan import FIRST
from .scan import HEADER
from .scan import unpack_header
from .window import Window

_MAGIC = re.compile(re.escape(seal.MAGIC))
_LENGTH_BEHIND = 8
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


class Headed(typing.NamedTuple):
    """A transaction of which only header and seal were read."""

    position: int
    tid: bytes
    status: bytes
    #: The seal in its extension, for whatever place that was made; or None.
    seal: seal.Seal | None
    #: Its commit id; NO_ID if it has none, or if stock has rewritten it.
    id: bytes


def headed_before(window: Window, end: int) -> Iterator[Headed]:
    """Yield the transactions before this position, where one ends; the newest
    one first.

    It stops before what is no transaction.  UnknownVersion: a seal is of
    another version.
    """
    while end >= FIRST + HEADER + _LENGTH_BEHIND:
        window.look_back(end, _LENGTH_BEHIND)
        length = int.from_bytes(
            window.read(end - _LENGTH_BEHIND, _LENGTH_BEHIND), 'big')
        position = end - _LENGTH_BEHIND - length
        if position < FIRST or length < HEADER:
            return
        if length <= window.SIZE - _LENGTH_BEHIND:
            window.look_back(end, length + _LENGTH_BEHIND)
        tid, _, status, user, description, extension = _header(
            window, position)
        field_end = position + HEADER + user + description + extension
        if field_end > position + length:
            return
        size = min(extension, seal.LARGEST)
        found = seal.find(window.read(field_end - size, size))
        yield Headed(position, tid, status, found,
                     _id_in(found, position, length, status))
        end = position


def _id_in(found: seal.Seal | None, position: int, length: int,
           status: bytes) -> bytes:
    """The commit id in the seal of a transaction, if it was made for that."""
    if found is None or (position, length, status) != (
            found.position, found.length, found.status):
        return seal.NO_ID
    return found.id


def refuse_unknown_last_seal(window: Window, end: int) -> None:
    """Raise UnknownVersion if the last seal before this position, where a
    transaction ends, is of another version.

    A release seals what it writes with its own version, and refuses a file
    that has others: so the last seal tells.  (The last of MOST_STEPS
    transactions: stock writes any number without seals.)
    """
    for found in itertools.islice(headed_before(window, end), MOST_STEPS):
        if found.seal is not None:
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
