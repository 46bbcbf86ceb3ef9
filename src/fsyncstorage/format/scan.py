"""Walks through a Data.fs, transaction by transaction, and reports damage.

It decides nothing: the caller (the check, the recovery at open) decides
whether an incomplete transaction is the tail of a crash, one that is being
written, or damage.

Promises:

- In a sound transaction the header, the records and the length behind them
  agree, and so does the seal, if the transaction has one in its place.
- Anything else raises, or is yielded as, a `Damage` that names the position
  and, if the header can be read, the tid.
- Behind damage, the walk goes on with the next transaction that can be read.
  A Data.fs kept inside a pickle is not taken for transactions: its records and
  seals name other positions.
- For any file, the time is proportional to its size, and memory does not grow
  with it (but with the number of records of one transaction).  A sound file is
  read once, in large pieces.  No length is relied on before the file is known
  to be that long, and checksums are computed only if the records add up: so a
  search behind damage does not read the same bytes again and again.

Left to others: whether previous pointers name the previous revision (that
needs an index), and whether record tids are those of their transactions
(stock's copy of a file with unordered tids writes others).
"""

import re
import struct
import typing
import zlib
from collections.abc import Callable
from collections.abc import Container
from collections.abc import Iterator

from BTrees.QQBTree import QQBTree

from . import seal
from .window import Window

FIRST = 4           # the position of the first transaction, behind the magic
HEADER = 23
RECORD_HEADER = 42
POINTER = 8         # in the place of data, where they are in another record
SMALLEST_RECORD = RECORD_HEADER + POINTER
LONGEST = 1 << 48   # the positions in an index have 48 bits

# Kinds of damage.
SHORT = 'short'             # the file ends before the transaction is complete
UNFINISHED = 'unfinished'   # complete, with the status of one in progress
DAMAGED = 'damaged'         # everything else
# The kind of damage of a record whose data are in a damaged transaction.
LOST = 'lost'
# How the reason begins if nothing else is wrong with a transaction.
DOES_NOT_RISE = 'its tid does not rise'

# Patterns of a search.  The one of a transaction header matches the length,
# from the second of its two leading zero bytes on, and the status.
_LENGTH_AND_STATUS = re.compile(rb'\0(?=(\0.{6})[ puc])', re.DOTALL)
_LENGTH_OFFSET = 8

# Bound methods, since a scan spends its time in these calls.
unpack_header = struct.Struct('>8sQcHHH').unpack_from
unpack_record = struct.Struct('>8s8sQQHQ').unpack_from
unpack_number = struct.Struct('>Q').unpack_from
new_tuple = tuple.__new__

# A transaction's header, as `unpack_header` gives it.
_Header = tuple[bytes, int, bytes, int, int, int]


class Record(typing.NamedTuple):
    oid: bytes
    tid: bytes
    previous: int   # the position of the object's previous record, or 0
    position: int
    length: int     # of the data; 0 if there are none in this record
    back: int       # the position of the record that has them, or 0

    @property
    def end(self) -> int:
        return self.position + RECORD_HEADER + (self.length or 8)


class Transaction(typing.NamedTuple):
    position: int
    end: int            # where the next one begins
    tid: bytes
    status: bytes
    front: bytes        # the header with user and description
    field: bytes        # the extension, with the seal
    seal: str           # the result of `seal.verify`
    records: list[Record]

    @property
    def user(self) -> bytes:
        return self.front[HEADER:HEADER + unpack_header(self.front)[3]]

    @property
    def description(self) -> bytes:
        return self.front[HEADER + unpack_header(self.front)[3]:]

    @property
    def extension(self) -> bytes:
        """The extension, as the user wrote it."""
        return seal.strip(self.field)


class Damage(Exception):
    """There is no sound transaction here.

    `transaction` is the transaction as it could be read, if its records add
    up.  If *its* seal is sound, only the status byte is wrong, and
    `transaction` has the status that the seal names.

    A Damage that `walk` yields has an `end`: the walk goes on from there.
    """

    end: int

    def __init__(self, position: int, tid: bytes | None, kind: str,
                 reason: str, transaction: Transaction | None = None) -> None:
        super().__init__(position, tid, kind, reason)
        self.position = position
        self.tid = tid
        self.kind = kind
        self.reason = reason
        self.transaction = transaction

    def __str__(self) -> str:
        name = '' if self.tid is None else f' (tid {self.tid.hex()})'
        return f'transaction at {self.position}{name}: {self.reason}'

    @property
    def sound_records(self) -> Transaction | None:
        """The transaction, if nothing but its header is wrong.

        Its records are good, as far as this can be known.
        """
        whole = self.transaction
        return None if whole is None or whole.seal == seal.DAMAGED else whole


# One transaction

def read_transaction(window: Window, position: int,
                     after: Transaction | None = None) -> Transaction:
    """Return the transaction at this position, or raise Damage.

    `after` is the transaction before it, if known.
    """
    tid = status = None
    try:
        header = unpack_header(*window.cover(position, HEADER))
        tid, length, status, user, description, extension = header
        own, records = _read_structure(window, position, header)
        size = HEADER + user + description + extension
        front = window.read(position, size)
        if len(front) < size:
            raise EOFError
        front, field = front[:size - extension], front[size - extension:]
        end = position + length + 8
        verdict, final, reason = (
            _ask_seal(window, own, position, front, field, records, after)
            if field else (seal.ABSENT, status, None))
    except seal.UnknownVersion as unknown:
        # (Its own position is that of a file which stock has packed.)
        raise seal.UnknownVersion(
            position, unknown.version, unknown.size) from None
    except EOFError:
        raise Damage(position, tid, SHORT,
                     'the file ends before it is complete') from None
    except ValueError as wrong:
        raise _damage(position, tid, status, str(wrong)) from None
    transaction = new_tuple(Transaction, (
        position, end, tid, final, front, field, verdict, records))
    if reason is None:
        reason = _ask_header(tid, status, after)
    if reason is not None:
        raise _damage(position, tid, status, reason, transaction)
    return transaction


def transaction_before(window: Window, end: int) -> Transaction | None:
    """The sound transaction that ends at this position, or None."""
    length = window.read(end - 8, 8) if end >= FIRST + 8 else b''
    begin = end - 8 - int.from_bytes(length, 'big')
    if len(length) < 8 or begin < FIRST:
        return None
    try:
        found = read_transaction(window, begin)
    except Damage:
        return None
    return found if found.end == end else None


def _damage(position: int, tid: bytes | None, status: bytes | None,
            reason: str, transaction: Transaction | None = None) -> Damage:
    kind = UNFINISHED if status == b'c' else DAMAGED
    return Damage(position, tid, kind, reason, transaction)


def _read_structure(window: Window, position: int,
                    header: _Header) -> tuple[seal.Seal | None, list[Record]]:
    """Return the seal that was made for this place, or None, and the records.

    ValueError if there is no transaction, EOFError if the file ends too soon.
    """
    _, length, status, user, description, extension = header
    size = HEADER + user + description + extension
    if not size <= length < LONGEST:
        raise ValueError(f'its header ({size} bytes) does not fit its'
                         f' length ({length})')
    stop = position + length
    if stop + 8 > window.end:
        own = _own_seal(window, position, size, extension)
        if own is not None and own.length != length:
            raise ValueError(
                f'its length is {length}, and its seal says {own.length}')
        raise EOFError
    if length + 8 <= window.LARGEST:
        window.cover(position, length + 8)
    again = window.read(stop, 8)
    if len(again) < 8:
        raise EOFError
    again, = unpack_number(again)
    if again != length:
        raise ValueError(
            'redundant transaction length does not match initial transaction'
            f' length: {again} != {length}')
    own = _own_seal(window, position, size, extension)
    records = _read_records(
        window, position, position + size, stop,
        status if own is None else own.status)
    return own, records


def _own_seal(window: Window, position: int, size: int,
              extension: int) -> seal.Seal | None:
    """Return the seal that was made for this place, or None."""
    at_most = min(extension, seal.LARGEST)
    if at_most < seal.SMALLEST:
        return None
    try:
        found = seal.find(window.read(position + size - at_most, at_most))
    except seal.UnknownVersion as unknown:
        # Without a transaction around it, it is a part of another one.
        if unknown.position == position:
            raise
        return None
    return found if found and found.position == position else None


def _read_records(window: Window, position: int, at: int, stop: int,
                  status: bytes) -> list[Record]:
    records = []
    if status == b'u':
        # Undone by an old release of ZODB: its content does not count.
        at = stop
    limit = base = 0
    while at < stop:
        if at + SMALLEST_RECORD > limit:
            if at + RECORD_HEADER > stop:
                break
            buffer, offset = window.cover(at, SMALLEST_RECORD)
            base = at - offset
            limit = base + len(buffer)
        oid, tid, previous, begin, version, length = unpack_record(
            buffer, at - base)
        if begin != position or version:
            raise ValueError(f'the record at {at} does not belong to it')
        back = 0
        if not length:
            back, = unpack_number(buffer, at - base + RECORD_HEADER)
        if previous >= position or back >= position:
            raise ValueError(f'the record at {at} points forward')
        records.append(new_tuple(
            Record, (oid, tid, previous, at, length, back)))
        at += RECORD_HEADER + (length or 8)
    if at != stop:
        raise ValueError('its records do not add up to its length')
    return records


def _ask_seal(window: Window, own: seal.Seal | None, position: int,
              front: bytes, field: bytes, records: list[Record],
              after: Transaction | None) -> tuple[str, bytes, str | None]:
    """Return what the seal shows, the status in it, and what is wrong."""
    status = front[16:17]
    if own is None:
        verdict = seal.verify(position, front, field, 0)  # needs no crc
        return verdict, status, (
            'behind its extension is what is left of a seal'
            if verdict == seal.DAMAGED else None)
    if _was_rewritten(own, front, after):
        return seal.MOVED, status, None
    final_front = b''.join((front[:16], own.status, front[17:]))
    crc = window.crc(position + len(front) + len(field),
                     position + own.length + 8, 0)
    verdict = seal.verify(position, final_front, field, crc)
    if verdict == seal.SOUND:
        return verdict, own.status, None if status in (own.status, b'c') else (
            f'its status is {status!r}, and its seal says {own.status!r}')
    if status == b'p' and seal.SOUND == seal.verify(
            position, front, field,
            _crc_before_copy(window, position + len(front) + len(field),
                             position + own.length + 8, records)):
        return seal.MOVED, status, None
    return verdict, status, 'it does not fit the checksum in its seal'


def _was_rewritten(own: seal.Seal, front: bytes,
                   after: Transaction | None) -> bool:
    """Has a stock tool rewritten the transaction at the same position?

    Stock's pack and copy keep the extension, and with it the seal.  Both may
    write other records.  The pack gives status 'p' to all transactions from
    the first one up to the time of the pack.
    """
    _, length, status, *_ = unpack_header(front)
    if status == b'c':
        return False
    if length != own.length:
        return True
    return (status == b'p' != own.status
            and (after is None or after.status in (b'p', b'u')))


def _crc_before_copy(window: Window, at: int, end: int,
                     records: list[Record]) -> int:
    """The crc of the records before stock copied the transaction.

    A pack leaves out all previous pointers; stock's copy of a packed file
    inserts them again where the object has an earlier record.
    """
    crc = 0
    for record in records:
        if record.previous and earlier_record(
                window, record, record.previous):
            crc = window.crc(at, record.position + 16, crc)
            crc = zlib.crc32(bytes(8), crc)
            at = record.position + 24
    return window.crc(at, end, crc)


def _ask_header(tid: bytes, status: bytes,
                after: Transaction | None) -> str | None:
    """What is wrong with the header of an unsealed transaction."""
    if status not in (b' ', b'p', b'u', b'c'):
        return f'its status is {status!r}'
    if after is not None and tid <= after.tid:
        return f'{DOES_NOT_RISE}: {after.tid.hex()} is before it'
    if status == b'c':
        return 'it has the status of a transaction in progress'
    return None


# One record

def record_at(window: Window, position: int) -> Record:
    """The record that the bytes at this position form."""
    buffer, offset = window.cover(position, SMALLEST_RECORD)
    return _as_record(buffer, offset, position)


def _as_record(buffer: bytes, offset: int, position: int) -> Record:
    oid, tid, previous, _, _, length = unpack_record(buffer, offset)
    back = 0 if length else unpack_number(buffer, offset + RECORD_HEADER)[0]
    return Record(oid, tid, previous, position, length, back)


def earlier_record(window: Window, record: Record,
                   position: int) -> Record | None:
    """The record of the same object at an earlier position, or None.

    Such reads are rare and far apart: they do not move the window.
    """
    data = window.read(position, SMALLEST_RECORD)
    if len(data) < SMALLEST_RECORD:
        return None
    target = _as_record(data, 0, position)
    begin, version = unpack_record(data)[3:5]
    header = window.read(begin, HEADER)
    if (target.oid != record.oid or version or len(header) < HEADER
            or not begin < target.position < record.position):
        return None
    end = min(begin + unpack_header(header)[1], record.position)
    return target if target.end <= end else None


class Chains:
    """Where back pointers lead.

    An undo writes a record without data, which points back to an earlier
    record, and that one may point back, too.  How far each chain leads is
    remembered, so that a long one is not walked again and again.
    """

    def __init__(self, window: Window,
                 lost: Container[int] = ()) -> None:
        """What is at the `lost` positions must not be read."""
        self._window = window
        self._lost = lost
        # Position of a record -> of the last one that its pointers reach.
        self._ends = QQBTree()

    def source(self, record: Record) -> Record:
        """The record that has the data of this one.

        If the creation of the object was undone, the returned record has no
        data.  Damage, of the kind LOST or DAMAGED, if a pointer does not lead
        to a record of the object.
        """
        source = record
        try:
            while source.back:
                source = self._next(source)
        except ValueError as wrong:
            kind = LOST if source.back in self._lost else DAMAGED
            raise Damage(
                record.position, record.tid, kind, str(wrong)) from None
        finally:
            if source is not record:
                self._ends[record.position] = source.position
        return source

    def _next(self, record: Record) -> Record:
        if record.back in self._lost:
            raise ValueError(
                f'its data, at {record.back}, is in a damaged transaction')
        position = self._ends.get(record.position, record.back)
        target = earlier_record(self._window, record, position)
        if target is None:
            raise ValueError(
                f'the record at {record.position} points back to'
                f' {record.back}, where no record of its object is')
        return target


# Forward, over damage

def walk(window: Window, position: int = FIRST,
         after: Transaction | None = None,
         suspect: Callable[[Damage], object] = lambda damage: None
         ) -> Iterator[Transaction | Damage]:
    """Yield every transaction from `position` on, and each Damage.

    A place that looks damaged is read again: if the file is being written, the
    window may hold older bytes.  `suspect(damage)` is called before that.
    """
    found: Transaction | Damage
    while position < window.end:
        try:
            after = found = read_transaction(window, position, after)
        except Damage as damage:
            suspect(damage)
            found = _second_look(window, damage, after)
            if isinstance(found, Damage):
                found.end = end_of_damage(window, found)
                after = found.sound_records or after
            else:
                after = found
        yield found
        position = found.end


def transactions(window: Window, position: int = FIRST,
                 after: Transaction | None = None) -> Iterator[Transaction]:
    """Yield every transaction from `position` on; raise the first Damage."""
    for found in walk(window, position, after):
        if isinstance(found, Damage):
            raise found
        yield found


def _second_look(window: Window, damage: Damage,
                 after: Transaction | None) -> Transaction | Damage:
    """The transaction there, or the Damage that two reads agree on."""
    while True:
        try:
            found = read_transaction(window.scout(), damage.position, after)
        except Damage as again:
            if again.args == damage.args:
                return again
            damage = again
        else:
            window.forget()  # the bytes behind it may be old, too
            return found


def end_of_damage(window: Window, damage: Damage) -> int:
    """Where the walk goes on behind it."""
    if damage.transaction is not None:
        return damage.transaction.end
    found = find_transaction(window, damage.position + 1)
    return window.end if found is None else found


def find_transaction(window: Window, start: int) -> int | None:
    """The position of the next transaction that can be read, or None.

    It may be unfinished, or its seal may be damaged; but its records must add
    up, and name its position.
    """
    scout = window.scout()
    for at, match in window.matches(_LENGTH_AND_STATUS, start, HEADER):
        position = at - _LENGTH_OFFSET
        length = int.from_bytes(match[1], 'big')
        # Most matches are no header: the second length shows that soonest.
        if (position >= start and HEADER <= length < window.end - position
                and scout.read(position + length, 8) == b'\0' + match[1]
                and _stands_at(scout, position)):
            return position
    return None


def _stands_at(window: Window, position: int) -> bool:
    """Is there a transaction, judged by its records, or else by its seal?

    A record belongs to one position only, and the walk goes on behind a
    transaction that was found: so all these calls cost no more than one walk.
    """
    try:
        header = unpack_header(*window.cover(position, HEADER))
        own, records = _read_structure(window, position, header)
    except (EOFError, ValueError):
        return False
    return bool(records) or own is not None and own.length == header[1]
