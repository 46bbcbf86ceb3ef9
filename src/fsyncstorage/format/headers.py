"""The headers of transactions, with their seals, read without the records.

A log of transactions needs no more, nor does a search for one by its tid or by
its commit id.  What is damaged may have sound seals behind it: they say what
was durable.  And the last seal tells whether this release may change the file.
"""

import itertools
import re
import typing
from collections.abc import Iterator

from ZODB.FileStorage.format import CorruptedDataError

from . import seal
from .scan import FIRST
from .scan import HEADER
from .scan import unpack_header
from .window import Window

_LENGTH_BEHIND = 8
_MAGIC = re.compile(re.escape(seal.MAGIC))
#: Transactions without a seal that are passed to find the last seal.
MOST_STEPS = 1000


class Header(typing.NamedTuple):

    position: int
    length: int     # of the transaction, without the length behind it
    tid: bytes
    status: bytes
    user: bytes
    description: bytes
    field: bytes    # the extension, with the seal

    @property
    def records(self) -> int:
        """The position of the first record."""
        return (self.position + HEADER + len(self.user)
                + len(self.description) + len(self.field))

    @property
    def end(self) -> int:
        """Where the next transaction begins."""
        return self.position + self.length + _LENGTH_BEHIND

    @property
    def extension(self) -> bytes:
        """As the user wrote it."""
        return seal.strip(self.field) if self.field else b''

    @property
    def commit_id(self) -> bytes:
        """NO_ID if it has none, or if stock has rewritten the transaction: the
        seal was made for another place, then."""
        found = seal.find(self.field)
        if found is None or (found.position, found.length, found.status) != (
                self.position, self.length, self.status):
            return seal.NO_ID
        return found.id


def header_at(window: Window, position: int) -> Header:
    """CorruptedDataError: the file ends before the header does."""
    front = window.read(position, HEADER)
    if len(front) < HEADER:
        raise CorruptedDataError(None, front, position)
    tid, length, status, *sizes = unpack_header(front)
    texts = window.read(position + HEADER, sum(sizes))
    if len(texts) < sum(sizes):
        raise CorruptedDataError(None, front + texts, position)
    user, rest = texts[:sizes[0]], texts[sizes[0]:]
    return Header(position, length, tid, status, user, rest[:sizes[1]],
                  rest[sizes[1]:])


def headers_before(window: Window, end: int) -> Iterator[Header]:
    """Yield the headers before this position, where a transaction ends; the
    newest one first.  It stops before what is no transaction."""
    while end >= FIRST + HEADER + _LENGTH_BEHIND:
        window.look_back(end, _LENGTH_BEHIND)
        length = int.from_bytes(
            window.read(end - _LENGTH_BEHIND, _LENGTH_BEHIND), 'big')
        position = end - _LENGTH_BEHIND - length
        if position < FIRST:
            return
        if length <= window.SIZE - _LENGTH_BEHIND:
            window.look_back(end, length + _LENGTH_BEHIND)
        try:
            found = header_at(window, position)
        except CorruptedDataError:
            return
        if found.records > position + length:
            return
        yield found
        end = position


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
            if (refuse and start <= unknown.position < at
                    and _sizes(window, unknown.position)[1]
                    == at + unknown.size):
                raise
            continue
        if (found is not None and start <= found.position < at
                and _sizes(window, found.position)
                == (found.length, at + seal.SIZE)):
            yield found.position, found


def _sizes(window: Window, position: int) -> tuple[int, int]:
    """What the header at this position says: the length of its transaction,
    and where the extension ends.  (The texts need not be there.)"""
    _, length, _, *sizes = unpack_header(window.read(position, HEADER))
    return length, position + HEADER + sum(sizes)
