"""Seals of transactions that are no part of others.

A client stores any bytes, also such as look like transactions with seals that
are in their places.  What is within a transaction is told by its two lengths:
content that looks so is written only when both of them are durable
(lookalikes).
"""

from collections.abc import Iterator

from . import scan
from . import seal
from .window import Window

_LENGTH_BEHIND = 8  # bytes of the length behind the records


def find(window: Window, start: int, after: bytes = bytes(8)
         ) -> Iterator[tuple[int, seal.Seal]]:
    """Those of `scan.find_sound_seals` that are later than this tid, and no
    part of another transaction: there, a client has stored them.

    From `start` on, where a transaction begins, sound or not.
    """
    end = start
    for begin, found in scan.find_sound_seals(window, start):
        while end < begin and (
                behind := end_of_whole(window, end, after)) is not None:
            end = behind
        if end <= begin and window.read(begin, len(after)) > after:
            yield begin, found
            end = begin + found.length + _LENGTH_BEHIND


def end_of_whole(window: Window, begin: int,
                 after: bytes = bytes(8)) -> int | None:
    """Where the transaction ends that stands here, by both of its lengths;
    None if it is torn, or not later than this tid."""
    header = window.read(begin, scan.HEADER)
    if len(header) == scan.HEADER:
        tid, length, *_ = scan.unpack_header(header)
        end: int = begin + length
        if tid > after and scan.HEADER <= length <= window.end - begin and (
                window.read(end, _LENGTH_BEHIND)
                == header[len(tid):][:_LENGTH_BEHIND]):
            return end + _LENGTH_BEHIND
    return None
