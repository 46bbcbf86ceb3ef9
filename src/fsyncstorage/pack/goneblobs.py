"""The blobs that are not kept: a line for each (packedblobs), and their count.

A transaction can have several records of one blob, but only one file for it.
"""

import binascii

from ..format import scan
from ..format.blobrecord import FRONT
from ..format.blobrecord import is_of_blob
from ..format.scan import RECORD_HEADER
from ..format.window import Window
from .chains import Chains
from .output import Output


class GoneBlobs:

    def __init__(self, out: Output | None) -> None:
        """Without `out`, blobs are only counted, and only those whose record
        has its own data.  For the others, back pointers would have to be
        followed.  So a wrong pointer in a record that goes does not matter.
        """
        self.count = 0
        self._out = out

    def flush(self) -> None:
        if self._out is not None:
            self._out.flush()

    def add(self, found: scan.Transaction, kept: set[bytes], window: Window,
            chains: Chains) -> None:
        """Add a transaction; `kept` are the oids of its records that are kept.
        """
        done = set(kept)
        ahead = window.for_records_of(found.end - found.position)
        for record in found.records:
            if self._out is None and not record.length:
                continue
            if record.oid in done:
                continue
            source = chains.source(record)
            if _is_of_blob(source, ahead if source is record else None,
                           window):
                done.add(record.oid)
                self.count += 1
                if self._out is not None:
                    self._out.append(
                        binascii.hexlify(record.oid + record.tid) + b'\n')


def _is_of_blob(source: scan.Record, ahead: Window | None,
                window: Window) -> bool:
    """`ahead` covers records in their order."""
    size = min(source.length, FRONT)
    start = source.position + RECORD_HEADER
    if ahead is not None and size:
        ahead.cover(start, size)
    return bool(size) and is_of_blob((ahead or window).read(start, size))
