"""Whether the log has lost what this node has acknowledged.

What a node keeps of its place in the log may be a second old: a log that was
restored, or whose members have lost their last writes in a power cut, may
still fit it.  But the file has evidence.  A seal says up to where the file was
*durable* when its transaction was written: on the disk of the node that wrote
it, and in the log.  If the log ends before that, it has lost something.

Nothing else counts.  Bytes that differ are what an unfinished batch has left,
or lie in a block that a standby's disk has lost.  So if another node has led
since, and the log is longer again, the file gives no evidence: what it has
behind the kept end is cut off, with a warning, and stays beside it.
"""

from ...format import headers
from ...format import scan
from ...format.window import Window

#: Bytes of the length after a transaction.
_LENGTH = 8


def durable_end(window: Window, end: int, tid: bytes) -> int:
    """Up to where the seals behind the kept end, of transactions that are
    later than this tid, say that all was durable; 0, if there is none.

    A seal within another transaction does not count: a client may have stored
    a Data.fs, or bytes that look like a transaction in that place.
    """
    durable = 0
    for begin, found in headers.find_sound_seals(window, end):
        while end < begin and (
                behind := _end_of_whole(window, end, tid)) is not None:
            end = behind
        if begin < end:
            continue
        own, length, _, *sizes = scan.unpack_header(
            window.read(begin, scan.HEADER))
        # If a block between header and seal was lost, they are of two
        # transactions.  So the first record behind the seal has to fit.
        record = begin + scan.HEADER + sum(sizes)
        if own > tid and window.read(record + len(own), len(own)) == own:
            end = begin + length + _LENGTH
            durable = max(durable, found.durable)
    return durable


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
