"""Whether the log has lost, or changed, what this node has acknowledged.

What a node keeps of its place in the log may be a second old.  A log that was
restored from a backup, but to a place after the kept one, fits what is kept;
and if another node has led since, such a log even continues.  But the file has
evidence.  A seal says up to where the file was durable when its transaction
was written: on the disk of the node that wrote it, and in the log.  And what
was in the log stays there.

The sealed transactions after the kept end count (`sealed_behind`), except
those that are a part of another transaction: a client may have stored a
Data.fs, or bytes that look like a transaction in that place.  A transaction
that is not later than the last one before the kept end does not count either:
the disk had it there before.  `judge` looks at the others:

- A transaction that the log has in the same place says nothing that the log
  does not say.  (The seals are compared: each has the checksum of all of its
  transaction.)
- Any other one says of *its* history that everything before its `durable` was
  in the log.  If the log ends before that position, the log has lost the rest.
  If it does not, but has something else in place of an earlier transaction
  before that position, the log was changed.  Otherwise the transaction is what
  an unfinished batch has left.

An index that belongs to the file says the same of everything before its own
end.  Nothing else counts.  Bytes that differ prove nothing: the file of a
standby may lack any block after the kept end, before a seal that came from the
primary.  (So a standby that drops what it has written after its end syncs that
before it writes again.  Otherwise, if a block that was written anew is lost in
a crash, the dropped bytes would show again.)

If no seal follows, this module finds nothing: it cannot know of the very last
batch before a crash, or of transactions without seals.

`judge` is pure, and reads its input once, in order.
"""

import typing
from collections.abc import Iterable
from collections.abc import Iterator

from ...format import headers
from ...format import scan
from ...format import seal
from ...format.window import Window
from ..files.state import Read

#: Bytes of the length after a transaction.
_LENGTH = 8


class Sealed(typing.NamedTuple):
    """A transaction of our file, by its header and seal.

    The seal is sound, and in its place; the data after it may be torn.
    """

    tid: bytes
    begin: int
    end: int
    #: The position of the seal, and its bytes.
    position: int
    seal: bytes
    durable: int


def sealed_behind(window: Window, end: int, tid: bytes) -> Iterator[Sealed]:
    """The sealed transactions after the kept end of our file that are later
    than this tid, the last one before that end.

    The header and the seal may be of two transactions, if a block between them
    was lost.  So the first record after the seal must have the same tid.
    """
    for begin, found in headers.find_sound_seals(window, end):
        while end < begin and (
                behind := _end_of_whole(window, end, tid)) is not None:
            end = behind
        if begin < end:
            continue  # it is a part of another transaction
        own, length, _, *sizes = scan.unpack_header(
            window.read(begin, scan.HEADER))
        position = begin + scan.HEADER + sum(sizes) - seal.SIZE
        if own <= tid or window.read(
                position + seal.SIZE + len(own), len(own)) != own:
            continue
        end = begin + length + _LENGTH
        yield Sealed(own, begin, end, position,
                     window.read(position, seal.SIZE), found.durable)


def refuse_other_releases(window: Window, end: int, tid: bytes) -> None:
    """Raise UnknownVersion if a whole transaction after the kept end, of which
    this is the last tid, has a seal of another version."""
    while (behind := _end_of_whole(window, end, tid)) is not None:
        end = behind
        headers.refuse_unknown_last_seal(window, end)


def _end_of_whole(window: Window, begin: int, after: bytes) -> int | None:
    """The end of the transaction at `begin`, according to both of its lengths;
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
    """Why this log must not be followed, or None.

    `found` are the sealed transactions after the kept end.  `log_end` is where
    the log says that this file ends, in the same generation; it is not before
    the kept end.  `of_log` reads what the log has between the two, and is
    called with rising positions.  `index_end` is the end of an index that
    belongs to our file: when it was written, all before that was durable.
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
    """The conclusion, if all before `durable` was confirmed when the witness
    was written, and the log has something else in place of `other`."""
    if durable > log_end:
        lacks = f'ends at {log_end} of the file'
    elif other is not None and other.end <= durable:
        lacks = (f'does not have the transaction {other.tid.hex()} at'
                 f' {other.begin} of our file')
    else:
        return None
    return (f'the log {lacks}, and when the {witness} of our file was written,'
            f' all before {durable} had been confirmed')
