"""What another process reads: the data file, by the object map of its writer.

A `Source` answers loads until the map is retired.  It never raises an error to
its caller: if anything is not certain, the answer is `UNCERTAIN`, and then
the process that writes the map must be asked.

A process that is not the writer's child reads only what is durable: it may
outlive the writer, and what is not durable may be lost and overwritten then.

Left to others: the layout of the map (objectmap), and up to which tid a caller
may ask.  docs/internals/localreads.rst says when a position may be used, and
why.
"""

import contextlib
import logging
import os
import stat
import struct
from typing import NamedTuple

from ZODB.FileStorage.format import DATA_HDR_LEN
from ZODB.utils import z64

from ..datafile import Descriptor
from . import UNCERTAIN
from . import NotAMap
from .objectmap import MapReader
from .view import BLOCK
from .view import PAGE
from .view import Revision

logger = logging.getLogger(__name__)

#: A record that claims to have more bytes is left to the writer.
LONGEST = 1 << 30
#: One read gets the header of a record, and the data of most.
AT_ONCE = 4096

#: After this many loads, offer the processor to other processes.
TURN = 64

# Of a record: oid, tid, previous position, length of the data.
_record = struct.Struct('>8s8sQ10xQ')
_number = struct.Struct('>Q')


class Place(NamedTuple):
    """Where a revision is in the file."""
    serial: bytes
    #: The tid of the next revision; zeros: there is none.
    end: bytes
    #: Of the data.
    position: int
    length: int
    #: The first bytes of the data, all of them if they are few.
    begin: bytes


class _Damaged(Exception):
    """A record is not what the map, or a pointer, says."""


class Source:

    def __init__(self, data_file: int, object_map: int, instance: bytes,
                 of_child: bool = False) -> None:
        """The first two are descriptors, which may be closed afterwards;
        NotAMap if they do not belong together.  `of_child`: this process ends
        with the one that writes the map."""
        self._file = Descriptor(os.dup(data_file))
        status = os.fstat(data_file)
        if not stat.S_ISREG(status.st_mode):
            raise NotAMap('the data file is no file')
        self._map = MapReader(object_map, instance)
        if not self._map.is_of(status):
            raise NotAMap('the map is of another file')
        self._reads_all = of_child
        self._loads = 0

    @property
    def is_retired(self) -> bool:
        return self._map.retired

    @property
    def announced(self) -> bytes:
        """The last tid that the server's clients were told of."""
        return self._map.marks()[-1].to_bytes(8, 'big')

    def load_before(self, oid: bytes, tid: bytes) -> Revision | object | None:
        """As the storage's; UNCERTAIN where the answer is not certain."""
        self._loads += 1  # (with several threads, some may not be counted)
        if not self._loads % TURN:
            _offer_the_processor()
        place = self.find(oid, tid)
        if not isinstance(place, Place):
            return place
        data = place.begin
        try:
            if len(data) < place.length:
                data += self.read(place, len(data), place.length)
        except (OSError, MemoryError) as error:
            logger.debug('%s is asked for: %s', oid.hex(), error)
            return UNCERTAIN
        return (data, place.serial,
                None if place.end == z64 else place.end)

    def read(self, place: Place, begin: int, most: int) -> bytes:
        """The data from there on, at most so many bytes of them; OSError if
        the file does not have them."""
        wanted = min(most, place.length - begin)
        data = b''
        while len(data) < wanted:  # one read returns 2 GB at most
            more = os.pread(self._file.number, wanted - len(data),
                            place.position + begin + len(data))
            if not more:
                raise OSError('the file ends inside a record')
            data += more
        return data

    def find(self, oid: bytes, tid: bytes) -> Place | object | None:
        """The revision that was current before this tid.  None: the object is
        younger."""
        end, durable, retired, _ = self._map.marks()
        position = self._map.get(oid, 0)
        if retired or not position:
            return UNCERTAIN
        if not self._reads_all:
            end = min(end, durable)
            if position >= durable:
                return UNCERTAIN
        try:
            return self._walk(position, end, oid, tid)
        except (_Damaged, OSError, OverflowError) as error:
            logger.debug('%s is asked for: %s', oid.hex(), error)
            return UNCERTAIN

    def _walk(self, position: int, end: int, oid: bytes,
              tid: bytes) -> Place | object | None:
        """From the newest record back to the one that is wanted."""
        next_tid = z64
        while position:
            serial, previous, length, begin = self._record(position, oid)
            if position < end:
                if serial < tid:
                    at = position
                    while not length:
                        at = _earlier(_number.unpack_from(begin)[0], at)
                        if not at:  # its creation was undone
                            return UNCERTAIN
                        _, _, length, begin = self._record(at, oid)
                    return Place(serial, next_tid, at + DATA_HDR_LEN, length,
                                 begin[:length])
                next_tid = serial
            position = _earlier(previous, position)
        return UNCERTAIN if next_tid == z64 else None

    def _record(self, position: int,
                oid: bytes) -> tuple[bytes, int, int, bytes]:
        """tid, previous position, length of the data; and what is behind the
        header, as far as one read goes."""
        block = os.pread(self._file.number, AT_ONCE, position)
        if len(block) < DATA_HDR_LEN + _number.size:
            raise _Damaged(f'the file ends at {position}')
        found, serial, previous, length = _record.unpack_from(block)
        if found != oid or length > LONGEST:
            raise _Damaged(f'no record of it at {position}')
        return serial, previous, length, block[DATA_HDR_LEN:]

    def prefetch(self, oids: list[bytes | None]) -> list[bytes]:
        """Let the kernel read these objects ahead; return the oids for which
        the writer must be asked."""
        _, durable, retired, _ = self._map.marks()
        pages, others = set(), []
        for oid in oids:
            if oid is None:  # a new object
                continue
            position = self._map.get(oid, 0)
            if retired or not 0 < position < durable:
                others.append(oid)
            else:
                pages.add(position // PAGE)
        # Where this fails, the load is uncertain.
        with contextlib.suppress(OSError, OverflowError):
            for page in sorted(pages):
                os.posix_fadvise(self._file.number, page * PAGE, BLOCK,
                                 os.POSIX_FADV_WILLNEED)
        return others


def _earlier(target: int, position: int) -> int:
    """Pointers must lead backwards: else a damaged file could let a reader
    circle."""
    if target >= position:
        raise _Damaged(f'a pointer from {position} to {target}')
    return target


def _offer_the_processor() -> None:
    """A load waits for nothing: other processes, such as the server, would
    get this processor only when the system takes it away."""
    with contextlib.suppress(OSError):  # it may be forbidden
        os.sched_yield()
