"""Copies transactions into the new file, and seals them as it writes them.

Up to the pack end, only the records that are kept are copied, with their data
in full.  A transaction of which no record is kept is left out.  From the pack
end on, all records are copied.  Their back pointers are changed to the new
places.  If a pointer leads to a record that is not kept, the data are copied
in the place of the pointer.  So are the data of each pointer in what was
appended after the pack had decided what is kept.  (Nothing is undone during a
pack, and what is restored gets its own data.)  So whoever copies that needs to
know no places.

The new file depends only on the old one up to the same end, on the pack time
and on whether garbage is collected (I15).  So the *durable* position in a seal
is the transaction's own position.  That is true before the file gets its name,
and does not depend on when the old file was synced.

Each transaction is checked once more as it is copied.
"""

import struct
import typing
import zlib

from ZODB._compat import FILESTORAGE_MAGIC
from ZODB.fsIndex import fsIndex
from ZODB.utils import p64

from .. import datafile
from ..format import scan
from ..format import seal
from ..format.scan import FIRST
from ..format.scan import HEADER
from ..format.scan import RECORD_HEADER
from ..format.scan import Chains
from ..format.window import Window
from ..positions import Positions
from .checksum import Checksum
from .counting import Tally
from .output import Output
from .packedblobs import GoneBlobs
from .plan import NothingToDo
from .plan import Plan
from .progress import COPY
from .progress import Tell
from .progress import transactions

_header = struct.Struct('>8sQcHHH')
_record_header = struct.Struct('>8s8sQQHQ')
_number = struct.Struct('>Q')

# Data up to this length are copied at once, longer data in pieces.
_AT_ONCE = 1 << 16


class _New(typing.NamedTuple):
    """What becomes of a record in the new file."""

    record: scan.Record
    data: scan.Record   # the record that has the data
    previous: int = 0
    back: int = 0       # the back pointer, if there are no data

    @property
    def length(self) -> int:
        return RECORD_HEADER + (self.data.length or 8)


def _lengths(records: list[_New]) -> dict[int, int]:
    return {each.record.position: each.length for each in records}


class Copier:
    """Writes to `out`; `removed` gets the blobs that are not kept, `tally`
    what is freed.

    With an index, it goes on where another Copier has stopped, behind what
    the pack has read before it decided.
    """

    def __init__(self, out: Output,
                 removed: datafile.DataFile | None = None,
                 copied_to: int = FIRST, index: fsIndex | None = None,
                 tally: Tally | None = None) -> None:
        self._out = out
        self._removed = None if removed is None else GoneBlobs(removed)
        self._tally = tally
        self.copied_to = copied_to      # in the old file
        self.index = Positions(fsIndex() if index is None else index)
        #: Size and checksum of the new file up to the pack end, if they are
        #: wanted and it is complete up to there.
        self.part = b''
        #: Where records that later records point back to are: their positions
        #: in the old file, and in the new one.
        self._places: dict[int, int] = {}

    @property
    def written_to(self) -> int:
        """In the new file."""
        return self._out.end

    @property
    def checksum(self) -> Checksum | None:
        """Of the new file, up to the last flush; None if not wanted."""
        return self._out.checksum

    def flush(self) -> None:
        self._out.flush()
        if self._removed is not None:
            self._removed.flush()

    def copy_planned(self, window: Window, plan: Plan, tell: Tell) -> None:
        """Copy all that the pack has read before it decided.

        NothingToDo: all is kept that is before the pack end.
        """
        self._copy_to_pack_end(window, plan, tell)
        if self.written_to == plan.pack_end:
            raise NothingToDo('Nothing can be freed')
        self.copy_later(window, tell, plan.targets)
        self._places.clear()
        self.flush()
        if self.checksum is not None:
            self.part = p64(self.written_to) + self.checksum.of_all()

    def _copy_to_pack_end(self, window: Window, plan: Plan,
                          tell: Tell) -> None:
        self._read_from(window)
        self._out.append(FILESTORAGE_MAGIC)
        for found in transactions(
                window, self.copied_to, plan.pack_end, COPY, tell):
            records = [each for each in found.records if plan.keeps(each)]
            if self._removed is not None and len(records) < len(found.records):
                self._removed.add(
                    found, {record.oid for record in records}, window,
                    self._chains)
            new = [_New(record, self._chains.source(record))
                   for record in records]
            if self._tally is not None:
                self._tally.add(found, _lengths(new), plan.objects)
            if records:
                for record, place in zip(
                        records, self._write(found, b'p', new)):
                    self.index[record.oid] = place
                    if record.position in plan.targets:
                        self._places[record.position] = place
            self.copied_to = found.end

    def copy_later(self, window: Window,
                   tell: Tell = lambda *progress: None,
                   targets: frozenset[int] = frozenset()) -> None:
        """Copy all that is not copied yet, up to the end of the window.

        `targets` are positions to which later records point back.
        """
        self._read_from(window)
        for found in transactions(
                window, self.copied_to, window.end, COPY, tell):
            new = [self._later(record) for record in found.records]
            if self._tally is not None:
                self._tally.add(found, _lengths(new))
            for each, place in zip(new, self._write(found, found.status, new)):
                self.index[each.record.oid] = place
                if each.record.position in targets:
                    self._places[each.record.position] = place
            self.copied_to = found.end

    def _later(self, record: scan.Record) -> _New:
        previous = self.index.get(record.oid, 0)
        back = self._places.get(record.back, 0)
        if not back:
            return _New(record, self._chains.source(record), previous)
        if scan.earlier_record(self._window, record, record.back) is None:
            raise scan.Damage(
                record.position, record.tid, scan.DAMAGED,
                f'the record at {record.position} points back to'
                f' {record.back}, where no record of its object is')
        return _New(record, record, previous, back)

    # One transaction

    def _read_from(self, window: Window) -> None:
        self._window, self._chains = window, Chains(window)

    def _write(self, found: scan.Transaction, status: bytes,
               records: list[_New]) -> list[int]:
        """Return the places of the records."""
        out = self._out
        begin = out.end
        out.append(bytes(len(found.front) + len(found.field)))
        start, crc, places = out.end, 0, []
        for new in records:
            places.append(out.end)
            crc = self._write_record(new, begin, crc)
        length = out.end - begin
        end = _number.pack(length)
        out.append(end)
        front = self._front(found, status, begin, length, zlib.crc32(end, crc))
        if begin + len(front) != start:
            raise scan.Damage(
                found.position, found.tid, scan.DAMAGED,
                'its seal is no seal of ours: it has another length')
        out.fill_in(front, begin)
        return places

    @staticmethod
    def _front(found: scan.Transaction, status: bytes, begin: int,
               length: int, crc: int) -> bytes:
        """The header with user, description and extension, sealed if the
        transaction was."""
        sizes = scan.unpack_header(found.front)[3:]
        front = _header.pack(
            found.tid, length, status, *sizes) + found.front[HEADER:]
        its_seal = seal.find(found.field)
        if its_seal is None:
            return front + found.field
        # What stock has moved was not checked.
        id = its_seal.id if found.seal == seal.SOUND else seal.NO_ID
        return front + seal.make(
            front, found.extension, status, begin, length, begin, crc, id)

    def _write_record(self, new: _New, begin: int, crc: int) -> int:
        record, length = new.record, new.data.length
        front = _record_header.pack(
            record.oid, record.tid, new.previous, begin, 0, length)
        start = new.data.position + RECORD_HEADER
        if not length:
            front += _number.pack(new.back)
        elif length <= _AT_ONCE:
            front += self._window.read(start, length)
        self._out.append(front)
        crc = zlib.crc32(front, crc)
        if length > _AT_ONCE:
            # Reading data elsewhere in the file must not move the window.
            window = (self._window if new.data is record
                      else self._window.scout())
            for piece in window.pieces(start, start + length):
                self._out.append(piece)
                crc = zlib.crc32(piece, crc)
        return crc
