"""What a node keeps on its disk: where in the log its file ends.

It is the fold's State behind a whole batch, in a small file beside Data.fs,
which is replaced as a whole: after a crash it is the one before or the new
one.  The caller has synced the data file up to the end that the state names:
what is kept never says more than is on the disk, and may say less.

A file that is damaged is no file that is missing: without what it said, a log
that was restored could not be told from the right one.  So it raises Damaged.
"""

import os
import struct
import zlib

from .. import datafile
from .fold import State
from .record import LIMIT
from .record import Damaged
from .record import Place

SUFFIX = '.quorum'
#: The name under which it is written.
SUFFIX_OF_NEW = '.quorum.new'

MAGIC = b'\xf5QNODE\r\n'
VERSION = 1

# Magic, version, whether a pack is under way; log, sequence, link, epoch,
# writer, generation, end, pack.
_STATE = struct.Struct('>8sBB16sQ16sQ16sQQ16s')
_CRC = struct.Struct('>I')
_SIZE = _STATE.size + _CRC.size
_NO_PACK = bytes(16)


def pack(state: State) -> bytes:
    if state.incomplete is not None:
        raise ValueError('a node cannot go on from within a batch')
    fields = _STATE.pack(
        MAGIC, VERSION, state.pack is not None, state.log, *state.place,
        state.epoch, state.writer, state.generation, state.end,
        state.pack or _NO_PACK)
    return fields + _CRC.pack(zlib.crc32(fields))


def parse(raw: bytes) -> State:
    if len(raw) != _SIZE or not raw.startswith(MAGIC):
        raise Damaged('it is no state of a node')
    crc, = _CRC.unpack_from(raw, _STATE.size)
    if zlib.crc32(raw[:_STATE.size]) != crc:
        raise Damaged('its CRC is wrong')
    (_, version, packs, log, sequence, link, epoch, writer, generation, end,
     pack) = _STATE.unpack_from(raw)
    if version != VERSION:
        raise Damaged(f'this release does not know version {version}')
    if packs > 1 or max(sequence, epoch, generation, end) >= LIMIT:
        raise Damaged('it has a number that cannot be')
    return State(
        log, Place(sequence, link), epoch, writer, generation, end, None,
        pack if packs else None)


def load(data_path: str) -> State | None:
    """What was kept beside this data file; None: there is no such file."""
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


def save(data_path: str, state: State) -> None:
    """Keep it durably.  The data file is synced up to its end."""
    with datafile.open_new(data_path + SUFFIX_OF_NEW) as file:
        file.write_at(pack(state), 0)
        file.sync()
    datafile.disk.replace(data_path + SUFFIX_OF_NEW, data_path + SUFFIX)
    datafile.disk.sync_directory(
        os.path.dirname(os.path.abspath(data_path)))
