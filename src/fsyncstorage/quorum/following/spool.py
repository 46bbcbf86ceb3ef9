"""What the log has from the swap of a pack on, if the own pack is late.

A node without its packed file cannot apply what comes.  If it noted no later
place until it has that, the log would have to keep all of it, and would be
full one day.  So the node keeps the records in a file beside Data.fs, fetches
their blobs, and notes how far that is (`Spooling`).  When it has its file, it
reads them from there: `with_spool` is the log with these records in front.

*Rule: a record gets into the spool only when a majority of the members has
it.*  So the spool stands for the log, also where that was trimmed since.  And
the node notes no place before the spool is synced up to there.

A start finds the spool, and goes on with it.  It is removed when what the node
has kept is behind it.
"""

import os
import struct
import typing
from collections.abc import Sequence

from ... import datafile
from ...errors import DiskError
from ..files.state import SUFFIX
from ..history.fold import Apply
from ..history.record import LARGEST
from ..history.record import Damaged
from ..history.record import Data
from ..history.record import Ends
from ..history.record import Epoch
from ..history.record import Place
from ..history.record import Record
from ..history.record import Unknown
from ..history.record import pack
from ..history.record import parse
from ..history.record import place_of
from ..log.interface import Log
from ..log.interface import Unanswered
from ..log.members import confirmed
from ..log.reading import Reader
from .fetching import Fetching

#: Records of one answer.
AT_ONCE = 8

_LENGTH = struct.Struct('>I')


class Spool:

    def __init__(self, data_path: str, log: bytes) -> None:
        """Open what is there of the log with this identity."""
        self._path = data_path + SUFFIX + '.spool'
        self._log = log
        self._file: datafile.DataFile | None = None
        #: Where each record begins, and how long it is.
        self._records: list[tuple[int, int]] = []
        #: The number of the first one, and the place of the last one.
        self.first, self.last = 0, Place(0, log)
        #: The place of the last one behind which no batch is incomplete.  Only
        #: then the blobs of the batch are here: so the log keeps what follows.
        self.whole = self.last
        self._is_in_batch = False
        if os.path.isfile(self._path):
            self._file = datafile.open_existing(self._path)
            self._read()
            self._sync()  # the process that wrote it may have ended before

    def _read(self) -> None:
        """(A crash may have left a part of the last record.)"""
        assert self._file is not None
        while True:
            front = os.pread(self._file.fileno(), _LENGTH.size, self._end)
            if len(front) < _LENGTH.size:
                return
            length, = _LENGTH.unpack(front)
            raw = os.pread(self._file.fileno(), min(length, LARGEST),
                           self._end + _LENGTH.size)
            try:
                record = parse(raw)
            except (Damaged, Unknown):
                return
            if record.log != self._log or (
                    self._records and record.previous != self.last.link):
                return
            self._has(record, raw)

    @property
    def _end(self) -> int:
        begin, length = self._records[-1] if self._records else (0, 0)
        return begin + length

    def _has(self, record: Record, raw: bytes) -> None:
        self._records.append((self._end + _LENGTH.size, len(raw)))
        self.last = place_of(raw)
        if len(self._records) == 1:
            self.first = self.last.sequence
        if isinstance(record.body, Data):
            self._is_in_batch = (
                record.position + len(record.body.data) < record.body.end)
        elif isinstance(record.body, Epoch):
            self._is_in_batch = False
        if not self._is_in_batch:
            self.whole = self.last

    def add(self, records: Sequence[Record]) -> None:
        """Durably.  They follow the last one."""
        if not records:
            return
        if self._file is None:
            self._file = datafile.open_new(self._path)
        packed = [pack(record) for record in records]
        self._file.write_at(b''.join(
            _LENGTH.pack(len(raw)) + raw for raw in packed), self._end)
        self._sync()
        for record, raw in zip(records, packed):
            self._has(record, raw)

    def _sync(self) -> None:
        """Its bytes and its name.  A DiskError is final (I7)."""
        assert self._file is not None
        try:
            self._file.sync()
            datafile.disk.sync_directory(os.path.dirname(self._path))
        except OSError as error:
            raise DiskError(
                f'{self._path}: a sync failed ({error}): what is on the disk'
                ' is in doubt. Check it, then start this node again: it reads'
                ' from the log what is missing') from error

    def read(self, sequence: int) -> list[bytes]:
        """Some records, from this number on."""
        if self._file is None or sequence < self.first:
            return []
        number, begun = self._file.fileno(), sequence - self.first
        return [os.pread(number, length, begin) for begin, length in
                self._records[begun:begun + AT_ONCE]]

    def kept(self, place: Place) -> None:
        """The state behind this record is kept.  (One that does not come up to
        the spool is of a node that was made anew since.)"""
        if self._file is not None and not (
                self.first - 1 <= place.sequence < self.last.sequence):
            datafile.remove_if_there(self._path)
            self.close()
            self._records.clear()
            self.first, self.last = 0, Place(0, self._log)
            self.whole, self._is_in_batch = self.last, False

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class _WithSpool:

    def __init__(self, log: Log, spool: Spool) -> None:
        self._log = log
        self._spool = spool

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self._log, name)

    def ends(self, member: int | None = None) -> Ends:
        found = self._log.ends(member)
        first, last = self._spool.first, self._spool.last.sequence
        return found._replace(first=first) if (
            first and first < found.first <= last + 1) else found

    def read(self, sequence: int,
             member: int | None = None) -> Sequence[bytes]:
        return self._spool.read(sequence) or self._log.read(sequence, member)


def with_spool(log: Log, spool: Spool) -> Log:
    """The log, with the records of the spool in front."""
    return typing.cast(Log, _WithSpool(log, spool))


class Spooling:
    """A swap, which a majority has, waits for the pack of this node: meanwhile
    the caller reads on, and what it reads is kept."""

    def __init__(self, log: Log, spool: Spool, swap: Apply,
                 blobs: Fetching | None) -> None:
        """`log` is behind the spool."""
        self._log = log
        self._spool = spool
        self._swap = swap
        self._blobs = blobs
        self._reader = Reader(log, swap.state)

    def go_on(self) -> bool:
        """Keep the next records; is there more?

        After Unanswered, OSError: call it again.  A DiskError is final.
        """
        if not self._spool.first:
            self._spool.add([self._swap.record])
        before = self._reader.state
        try:
            given = self._reader.read()
            if given and not confirmed(self._log, given[-1].state):
                raise Unanswered('no majority has it yet')
            for applied in given:
                self._fetch(applied)
            self._spool.add([
                each.record for each in given
                if each.record.sequence > self._spool.last.sequence])
        except BaseException:
            self._reader = Reader(self._log, before, asks_all=True)
            raise
        return bool(given)

    def _fetch(self, applied: Apply) -> None:
        """Its blobs, which the log removes with the record."""
        state, record = applied
        if self._blobs is None:
            return
        if isinstance(record.body, Epoch):
            self._blobs.give_up()
        elif isinstance(record.body, Data):
            self._blobs.add(record.body.blobs)
            if state.incomplete is None:
                self._blobs.fetch(self._log, record.sequence)

    def end(self) -> None:
        """What is in the spool is applied now."""
        if self._blobs is not None:
            self._blobs.give_up()
