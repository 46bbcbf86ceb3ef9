"""What a node keeps on its disk: where in the log its file ends.

It keeps the fold's State after a whole batch, what ties this state to the
bytes of the data file, the identity of the node (log.notes), and the file that
is about to take the place of this one, if there is one.  All this is in a
small file beside Data.fs, which is replaced as a whole.

The caller promises that the bytes before the end that the state names are on
the disk, with the status that each transaction finally has, and that nobody
changes them any more.  So what is kept never says more than is on the disk.

A damaged file is not treated as a missing one: without what the file said, a
log that was restored could not be told from the right one.
"""

import hashlib
import os
import struct
import typing
import zlib
from collections.abc import Callable

from ... import datafile
from ...commit import replica
from ...pack.agreed import Becoming
from ..history.fold import Pack
from ..history.fold import State
from ..history.record import CHECKSUM
from ..history.record import IDENTITY
from ..history.record import LIMIT
from ..history.record import LONGEST_VERSION
from ..history.record import NOBODY
from ..history.record import OID
from ..history.record import Damaged
from ..history.record import Place

SUFFIX = replica.SUFFIX
#: The suffix under which a new one is written.
SUFFIX_OF_NEW = '.quorum.new'

MAGIC = b'\xf5QNODE\r\n'
VERSION = 2

#: How many bytes of the file a tie reads, and the size of their hash.
TIED = 4096
DIGEST = 16

#: Reads some bytes of a file, by position and length: fewer at its end.
Read = Callable[[int, int], bytes]


def reading(file: datafile.DataFile) -> Read:
    return lambda position, length: os.pread(file.fileno(), length, position)


class Tie(typing.NamedTuple):
    """What identifies the bytes before some position of a file."""

    #: The tid of the last transaction; zeros if there is none.
    tid: bytes
    #: A hash of the last bytes.
    digest: bytes


class Kept(typing.NamedTuple):
    state: State
    tie: Tie
    #: The identity of the node: no other node of its name has the same.
    node: bytes
    #: The file that is about to take the place of this one.
    becoming: Becoming | None = None


# Magic, version, flags for the optional parts: a pack, a file to come.
_FRONT = struct.Struct('>8sBB')
# Log, sequence, link, epoch, writer, generation, end.
_STATE = struct.Struct('>16sQ16sQ16sQQ')
# Its id, end, time, whether it collects, length of the version, version.
_PACK = struct.Struct(f'>16sQ8sBB{LONGEST_VERSION}s')
_TIE = struct.Struct(f'>{OID}s{DIGEST}s')
_NODE = struct.Struct(f'>{IDENTITY}s')
_BECOMING = struct.Struct(f'>Q{CHECKSUM}s')
_CRC = struct.Struct('>I')
_PARTS = _FRONT, _STATE, _PACK, _TIE, _NODE, _BECOMING, _CRC
_SIZE = sum(part.size for part in _PARTS)

_HAS_PACK, _HAS_BECOMING = 1, 2
# In place of the parts that are not there.
_NO_PACK = Pack(NOBODY, 0, bytes(OID), False, b'')
_NO_BECOMING = Becoming(0, bytes(CHECKSUM))

_LENGTH = struct.Struct('>Q')


# Its bytes

def pack(kept: Kept) -> bytes:
    state, tie, node, becoming = kept
    if state.incomplete is not None:
        raise ValueError('a node cannot go on from within a batch')
    has = (_HAS_PACK * (state.pack is not None)
           + _HAS_BECOMING * (becoming is not None))
    *of_pack, version = state.pack or _NO_PACK
    fields = b''.join((
        _FRONT.pack(MAGIC, VERSION, has),
        _STATE.pack(state.log, *state.place, state.epoch, state.writer,
                    state.generation, state.end),
        _PACK.pack(*of_pack, len(version), version),
        _TIE.pack(*tie),
        _NODE.pack(node),
        _BECOMING.pack(*becoming or _NO_BECOMING)))
    return fields + _CRC.pack(zlib.crc32(fields))


def parse(raw: bytes) -> Kept:
    if len(raw) != _SIZE or not raw.startswith(MAGIC):
        raise Damaged('it is no state of a node')
    front, state, of_pack, tie, (node,), becoming, (crc,) = _parts(raw)
    if zlib.crc32(raw[:-_CRC.size]) != crc:
        raise Damaged('its CRC is wrong')
    _, version, has = front
    if version != VERSION:
        raise Damaged(f'this release does not know version {version}')
    log, sequence, link, epoch, writer, generation, end = state
    pack, pack_end, time, collects, length, text = of_pack
    if (has > _HAS_PACK | _HAS_BECOMING or collects > 1
            or length > LONGEST_VERSION
            or max(sequence, epoch, generation, end, pack_end,
                   becoming[0]) >= LIMIT):
        raise Damaged('it has a number that cannot be')
    return Kept(
        State(
            log, Place(sequence, link), epoch, writer, generation, end, None,
            Pack(pack, pack_end, time, bool(collects), text[:length])
            if has & _HAS_PACK else None),
        Tie(*tie), node,
        Becoming(*becoming) if has & _HAS_BECOMING else None)


def _parts(raw: bytes) -> list[tuple[typing.Any, ...]]:
    found, at = [], 0
    for part in _PARTS:
        found.append(part.unpack_from(raw, at))
        at += part.size
    return found


# Its file

def load(data_path: str) -> Kept | None:
    """What was kept beside this data file; None if nothing was."""
    path = data_path + SUFFIX
    if not os.path.lexists(path):
        return None
    try:
        if not os.path.isfile(path):  # a pipe would hang
            raise Damaged('it is no file')
        with datafile.open_existing(path, read_only=True) as file:
            return parse(os.pread(file.fileno(), _SIZE + 1, 0))
    except Damaged as error:
        raise Damaged(f'{path}: {error}') from None


def save(data_path: str, state: State, read: Read, node: bytes,
         becoming: Becoming | None = None) -> None:
    """Keep the state durably.

    `read` reads the data file; the bytes before the end of the state are on
    its disk, and do not change.
    """
    kept = Kept(state, tie_of(read, state.end), node, becoming)
    with datafile.open_new(data_path + SUFFIX_OF_NEW) as file:
        file.write_at(pack(kept), 0)
        file.sync()
    datafile.disk.replace(data_path + SUFFIX_OF_NEW, data_path + SUFFIX)
    datafile.disk.sync_directory(
        os.path.dirname(os.path.abspath(data_path)))


# Which file it is about

def tie_of(read: Read, end: int) -> Tie:
    """Raise OSError if the file ends before `end`."""
    begin = max(0, end - TIED)
    last = read(begin, end - begin)
    if len(last) != end - begin:
        raise OSError(f'{len(last)} bytes at {begin}, not {end - begin}')
    return Tie(
        _last_tid(read, last[-_LENGTH.size:], end),
        hashlib.blake2b(last, digest_size=DIGEST).digest())


def _last_tid(read: Read, length: bytes, end: int) -> bytes:
    """(The length of a transaction stands after it.  If the file is another
    one, the length may be any bytes.)"""
    if len(length) == _LENGTH.size:
        begin = end - _LENGTH.size - _LENGTH.unpack(length)[0]
        if begin > 0:
            return read(begin, OID)
    return bytes(OID)


def misfit(kept: Kept, read: Read, size: int) -> str | None:
    """Why a file of this size is not the one that this state is about."""
    state, tie = kept.state, kept.tie
    if size < state.end:
        return (f'it ends at {size}, and was kept as a file of {state.end}'
                ' bytes: it was cut off, or is an older one')
    found = tie_of(read, state.end)
    if found.tid != tie.tid:
        return (f'the last transaction before {state.end} is {found.tid.hex()}'
                f', and was kept as {tie.tid.hex()}: it is another file')
    if found != tie:
        return (f'the bytes before {state.end} are not those that were kept:'
                ' it is another file, or was changed')
    return None
