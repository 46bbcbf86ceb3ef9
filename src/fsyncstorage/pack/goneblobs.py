"""The blobs that are not kept: a line for each (packedblobs), and their count.

A transaction can have several records of one blob, but only one file for it.
"""

import array
import binascii

from ..format import scan
from ..format.blobrecord import FRONT
from ..format.blobrecord import is_of_blob
from ..format.scan import RECORD_HEADER
from ..format.window import Window
from .chains import Chains
from .marking import Kept
from .output import Output


class GoneBlobs:

    def __init__(self, out: Output | None) -> None:
        """Without `out`, blobs are only counted, and only those whose record
        has its own data.  For the others, back pointers would have to be
        followed.  So a wrong pointer in a record that goes does not matter.
        """
        self.count = 0
        self._out = out
        # Blobs whose fate is not known yet: the ranks of their objects, tids.
        self._ranks = array.array('Q')
        self._tids = array.array('Q')

    def flush(self) -> None:
        if self._out is not None:
            self._out.flush()

    def add(self, found: scan.Transaction, kept: set[bytes], window: Window,
            chains: Chains, current: dict[bytes, int] | None = None) -> None:
        """Add a transaction; `kept` are the oids of its records that are kept.

        `current` has the oids, with ranks, of its records that may be kept:
        `decide` tells later.
        """
        done = set(kept)
        for record in found.records:
            if self._out is None and not record.length:
                continue
            if record.oid not in done and _is_of_blob(record, window, chains):
                done.add(record.oid)
                if current is not None and record.oid in current:
                    self._ranks.append(current[record.oid])
                    self._tids.append(int.from_bytes(record.tid, 'big'))
                else:
                    self._list(record.oid, record.tid)

    def decide(self, kept: Kept) -> None:
        oids = kept.objects.oids
        for rank, tid in zip(self._ranks, self._tids):
            if not kept.has_current(rank):
                self._list(oids[rank].to_bytes(8, 'big'),
                           tid.to_bytes(8, 'big'))
        del self._ranks[:], self._tids[:]

    def _list(self, oid: bytes, tid: bytes) -> None:
        self.count += 1
        if self._out is not None:
            self._out.append(binascii.hexlify(oid + tid) + b'\n')


def _is_of_blob(record: scan.Record, window: Window, chains: Chains) -> bool:
    data = chains.source(record)
    return bool(data.length) and is_of_blob(window.read(
        data.position + RECORD_HEADER, min(data.length, FRONT)))
