"""What is shipped next: whole transactions of a Data.fs, and their blobs.

Each transaction is verified, with its seal: so damage is found when it is
shipped, and not when it is needed.
"""

from typing import NamedTuple

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


class Segment(NamedTuple):
    start: int
    end: int
    #: The last tid, and the largest oid up to here.
    tid: bytes
    oid: bytes
    #: oid and tid of the records of blobs.
    blobs: list[tuple[bytes, bytes]]
    #: The same, of records that cannot be read here, and may be of blobs.
    perhaps: list[tuple[bytes, bytes]]


def next_segment(window: Window, tip: Tip) -> Segment | None:
    """From the tip on; None: there is nothing new."""
    at = tip.position or scan.FIRST
    if not tip.position and window.read(0, scan.FIRST) not in MAGICS:
        raise NotShipped('the file does not begin like a Data.fs')
    tid, oid = tip.tid, tip.oid
    blobs: list[tuple[bytes, bytes]] = []
    perhaps: list[tuple[bytes, bytes]] = []
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
                    blobs.append((record.oid, found.tid))
                elif _is_unreadable(front):
                    perhaps.append((record.oid, found.tid))
        except (scan.Damage, UnknownVersion) as error:
            raise NotShipped(str(error)) from None
        at, tid = found.end, found.tid
    if tid == tip.tid:
        return None
    return Segment(tip.position, at, tid, oid, blobs, perhaps)


def _front(window: Window, record: scan.Record) -> bytes:
    return window.read(record.position + RECORD_HEADER,
                       min(record.length, FRONT_OF_BLOB))


def _is_unreadable(front: bytes) -> bool:
    """A wrapper of a client, which is not known here, has written it."""
    return front[:1] == b'.' and front[:2] not in (b'.z', b'.h')
