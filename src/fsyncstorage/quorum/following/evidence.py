"""Whether the log has lost, or changed, what this node has acknowledged.

What a node keeps of its place in the log may be late by a second.  A log that
was restored from a backup to a place behind that one fits what is kept; and
if another node has led since, it goes on, too.  But the file remembers.  A
seal says up to where the file was durable when its transaction was written,
that is, on the disk of the node that wrote it and in the log; and what was in
the log stays there.

What counts are the sealed transactions behind the kept end (`sealed_behind`),
but for what is part of another one: a client may have stored a Data.fs, or
what is made to look like a transaction in its place.  One that is not later
than the last one before that end does not count: the disk had it there before.
Of these (`judge`)

- One that the log has, in its place, says nothing that the log does not say.
  (The seals are compared: each has the checksum of all of its transaction.)
- Any other says of *its* history that all before its `durable` was in the log.
  If the log ends before that, it has lost it.  If it does not, and has another
  transaction in the place of one that was before it, it was changed.
  Otherwise it is what an unfinished batch has left.

An index that belongs to the file says the same of all before its own end.
Nothing else counts.  Bytes that differ prove nothing by themselves: the file
of a standby may lack any block behind the kept end, in front of a seal that
came from the primary.  (So a standby that drops what it has written behind its
end syncs that before it writes on: else a block that was written anew, and
lost, would show what was dropped.)

What has no seal behind it is not known here: the very last batch before a
crash, and transactions without seals.

`judge` is pure, and reads what it is given once, in its order.
"""

import typing
from collections.abc import Iterable
from collections.abc import Iterator

from ...format import scan
from ...format import seal
from ...format.window import Window
from ..files.state import Read

#: Bytes of the length behind a transaction.
_LENGTH = 8


class Sealed(typing.NamedTuple):
    """A transaction of our file, by its header and seal.

    The seal is sound, and in its place; the data behind it may be torn.
    """

    tid: bytes
    begin: int
    end: int
    #: Of the seal, and its bytes.
    position: int
    seal: bytes
    durable: int


def sealed_behind(window: Window, end: int, tid: bytes) -> Iterator[Sealed]:
    """Those that stand behind the kept end of our file, and are later than
    this tid, the last one before it.

    The header and the seal may be of two transactions, if a block between them
    was lost.  So the first record behind the seal must have the same tid.
    """
    for begin, found in scan.find_sound_seals(window, end):
        while end < begin and (
                behind := _end_of_whole(window, end, tid)) is not None:
            end = behind
        if begin < end:
            continue  # it is a part of another one
        own, length, _, *sizes = scan.unpack_header(
            window.read(begin, scan.HEADER))
        position = begin + scan.HEADER + sum(sizes) - seal.SIZE
        if own <= tid or window.read(
                position + seal.SIZE + len(own), len(own)) != own:
            continue
        end = begin + length + _LENGTH
        yield Sealed(own, begin, end, position,
                     window.read(position, seal.SIZE), found.durable)


def _end_of_whole(window: Window, begin: int, after: bytes) -> int | None:
    """Where the transaction ends that stands here, by both of its lengths;
    None if it is torn, or not later than this tid."""
    header = window.read(begin, scan.HEADER)
    if len(header) == scan.HEADER:
        tid, length, *_ = scan.unpack_header(header)
        end: int = begin + length
        if tid > after and scan.HEADER <= length <= window.end - begin and (
                window.read(end, _LENGTH) == header[len(tid):][:_LENGTH]):
            return end + _LENGTH
    return None


def judge(found: Iterable[Sealed], log_end: int, of_log: Read,
          index_end: int = 0) -> str | None:
    """Why this log is not followed, or None.

    `found` are those behind the kept end.  `log_end`, which is not before
    that, is where the log says that this file ends, in the same generation.
    `of_log` reads what it says is between the two, and is asked in rising
    order.  `index_end` is that of an index which belongs to our file: it was
    written when all before that was durable.
    """
    other: Sealed | None = None
    for each in found:
        is_within = each.end <= log_end
        if is_within and of_log(
                each.position, len(each.seal)) == each.seal:
            continue
        proven = _proven(
            each.durable, f'transaction {each.tid.hex()}', log_end, other)
        if proven is not None:
            return proven
        if is_within and other is None:
            other = each
    return _proven(index_end, 'index', log_end, other)


def _proven(durable: int, witness: str, log_end: int,
            other: Sealed | None) -> str | None:
    """What it means that all before `durable` had been confirmed when the
    witness was written; the log has another transaction for `other`."""
    if durable > log_end:
        lacks = f'ends at {log_end} of the file'
    elif other is not None and other.end <= durable:
        lacks = (f'does not have the transaction {other.tid.hex()} at'
                 f' {other.begin} of our file')
    else:
        return None
    return (f'the log {lacks}, and when the {witness} of our file was written,'
            f' all before {durable} had been confirmed')
