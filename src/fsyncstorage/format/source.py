"""What another process reads: the data file, by the object map of its writer.

A `Source` answers loads until the map is retired.  It never raises an error to
its caller: if anything is not certain, the answer is `UNCERTAIN`, and then
the process that writes the map must be asked.

Left to others: the layout of the map (objectmap), the look-up (view), and up
to which tid a caller may ask.  docs/internals/localreads.rst says when a
position may be used, and why.
"""

import contextlib
import logging
import os
import struct

from ZODB.FileStorage.format import CorruptedError
from ZODB.POSException import POSError

from ..datafile import DataFile
from . import UNCERTAIN
from .objectmap import MapReader
from .view import BLOCK
from .view import PAGE
from .view import Revision
from .view import View

logger = logging.getLogger(__name__)

#: A record that claims to have more bytes is left to the writer.
LONGEST = 1 << 30

#: After this many loads, offer the processor to other processes.
TURN = 64

# What a damaged or hostile file can cause.  If an oid has no data here, the
# writer may still have some.
_DOUBTS = (CorruptedError, POSError, OSError, ValueError, OverflowError,
           MemoryError, struct.error)


class _DurableView(View):

    __slots__ = ()

    longest = LONGEST


class Source:

    def __init__(self, data_file: DataFile, object_map: MapReader) -> None:
        self._file = data_file
        self._map = object_map
        self._view = _DurableView(data_file, object_map, 0, b'')
        self._loads = 0

    @property
    def is_retired(self) -> bool:
        return self._map.retired

    def load_before(self, oid: bytes, tid: bytes) -> Revision | object | None:
        """As the storage's; UNCERTAIN where the answer is not certain."""
        self._loads += 1  # (with several threads, some may not be counted)
        if not self._loads % TURN:
            _offer_the_processor()
        end, durable, retired = self._map.marks()
        position = self._map.get(oid, 0)
        if retired or not 0 < position < durable:
            return UNCERTAIN
        if end > durable:
            end = durable
        view = self._view
        if view.end != end:
            view = self._view = _DurableView(self._file, self._map, end, b'')
        try:
            return view.load_before_from(position, oid, tid)
        except _DOUBTS as error:
            logger.debug('%s is asked for: %s', oid.hex(), error)
            return UNCERTAIN

    def prefetch(self, oids: list[bytes | None]) -> list[bytes]:
        """Let the kernel read these objects ahead; return the oids for which
        the writer must be asked."""
        _, durable, retired = self._map.marks()
        pages, others = set(), []
        for oid in oids:
            if oid is None:  # a new object
                continue
            position = self._map.get(oid, 0)
            if retired or not 0 < position < durable:
                others.append(oid)
            else:
                pages.add(position // PAGE)
        with contextlib.suppress(*_DOUBTS):  # then its load is uncertain
            for page in sorted(pages):
                os.posix_fadvise(self._file.fileno(), page * PAGE, BLOCK,
                                 os.POSIX_FADV_WILLNEED)
        return others


def _offer_the_processor() -> None:
    """A load waits for nothing: other processes, such as the server, would
    get this processor only when the system takes it away."""
    with contextlib.suppress(OSError):  # it may be forbidden
        os.sched_yield()
