"""What is shipped next: whole transactions of a Data.fs, and their blobs.

Each transaction is verified, with its seal: so damage is found when it is
shipped, and not when it is needed.
"""

from typing import NamedTuple

from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

from ..format import scan
from ..format.classes import FRONT_OF_BLOB
from ..format.classes import is_of_blob
from ..format.scan import RECORD_HEADER
from ..format.seal import UnknownVersion
from ..format.window import Window
from . import content
from .timeline import Tip

MAGICS = b'FS21', b'FS30'


class NotShipped(Exception):
    """The file is damaged, here; one line."""


class Packed(NamedTuple):
    """What a pack has made of all that is before a tip."""

    #: Where that ends in the new file.
    end: int
    #: A tid: what is later was not packed.
    time: bytes


class Segment(NamedTuple):
    start: int
    end: int
    #: The last tid, and the largest oid up to here.
    tid: bytes
    oid: bytes
    #: oid and tid of the records of blobs.  (Stock's client stores each of
    #: them twice in a transaction.)
    blobs: set[tuple[bytes, bytes]]
    #: The same, of records that cannot be read here, and may be of blobs.
    perhaps: set[tuple[bytes, bytes]]


def next_segment(window: Window, tip: Tip) -> Segment | None:
    """From the tip on; None: there is nothing new."""
    at = tip.position or scan.FIRST
    if not tip.position and window.read(0, scan.FIRST) not in MAGICS:
        raise NotShipped('the file does not begin like a Data.fs')
    tid, oid = tip.tid, tip.oid
    blobs: set[tuple[bytes, bytes]] = set()
    perhaps: set[tuple[bytes, bytes]] = set()
    chains = scan.Chains(window)
    found = None
    while at < window.end:
        try:
            found = scan.read_transaction(window, at, found)
            if found.tid <= tid:
                raise NotShipped(f'transaction at {at}: {scan.DOES_NOT_RISE}')
            if found.end - tip.position > content.PART and tid != tip.tid:
                break
            for record in found.records:
                oid = max(oid, record.oid)
                front = _front(window, chains.source(record))
                if is_of_blob(front):
                    blobs.add((record.oid, found.tid))
                elif _is_unreadable(front):
                    perhaps.add((record.oid, found.tid))
        except (scan.Damage, UnknownVersion) as error:
            raise NotShipped(str(error)) from None
        at, tid = found.end, found.tid
    if tid == tip.tid:
        return None
    return Segment(tip.position, at, tid, oid, blobs, perhaps - blobs)


def packed(window: Window, tip: Tip, is_surely: bool) -> Packed | None:
    """None: the transaction before the tip is not in the file, which has
    another history then; unless it is *surely* the same one: then it was
    packed away.

    Only headers are read, since what was committed waits for this."""
    found, end, time, last_packed = z64, scan.FIRST, tip.tid, z64
    at, before, headers = scan.FIRST, z64, window.scout()
    while at + scan.HEADER <= window.end:
        tid, length, status, *_ = scan.unpack_header(
            *headers.cover(at, scan.HEADER))
        if tid <= before:
            return None  # what has the name of an old file may be anything
        at, before = at + length + 8, tid
        if status == b'p':
            last_packed = tid
        else:
            time = min(time, p64(u64(tid) - 1))
        if tid <= tip.tid:
            found, end = tid, at
        elif status != b'p':
            break
    if not is_surely and found != tip.tid:
        return None
    # A later time: what was packed has also what was never shipped before.
    return Packed(end, max(time, last_packed))


def _front(window: Window, record: scan.Record) -> bytes:
    return window.read(record.position + RECORD_HEADER,
                       min(record.length, FRONT_OF_BLOB))


def _is_unreadable(front: bytes) -> bool:
    """A wrapper of a client, which is not known here, has written it."""
    return front[:1] == b'.' and front[:2] not in (b'.z', b'.h')
