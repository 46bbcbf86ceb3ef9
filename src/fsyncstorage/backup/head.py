"""The head that every object of a store begins with, but for parts.

What it says is what the writer vouches for.  Its `sum` covers all of it, with
the sum of the head before: so the heads of a timeline are a chain, and the sum
of the last one stands for all of them, and for all plain bytes.

A store may be damaged, or hostile: `unpack` takes nothing that `pack` could
not have written.
"""

import hashlib
import struct
from typing import NamedTuple

MAGIC = b'\xf5FSBAK\r\n'
VERSION = 2
NO_SUM = bytes(32)
NO_INSTANCE = bytes(16)

# Kinds.
BEGIN = b'b'        # of a timeline
SEGMENT = b's'
END = b'e'          # of a timeline, in the place of a segment
PACK = b'p'         # of the file, in the place of a segment
BASE = b'a'         # what a pack has made
LIST = b'l'         # of the blobs of a segment, or of a base
BLOB = b'o'
HEARTBEAT = b'h'
DRILL = b'd'         # all was restored, and sound
KINDS = BEGIN, SEGMENT, END, PACK, BASE, LIST, BLOB, HEARTBEAT, DRILL

# Forms of what is behind the head.
WHOLE = 0           # the plain bytes
MANIFEST = 1        # the names and lengths of their parts
ELSEWHERE = 2       # nothing: those of a pack are in its base

#: The positions in an index have 48 bits, and no content is larger.
LIMIT = 1 << 48

# A head, with its numbers in big-endian order:
#
#       0  8 s  magic
#       8  B    version
#       9  c    kind
#      10  B    form
#      11  B    compression: 0, none
#      12  B    encryption: 0, none
#      13  3 x  zeros
#      16  Q    start: of a segment, in the Data.fs; else 0
#      24  Q    end: so many plain bytes behind the start
#      32  Q    generation: raised by a pack
#      40  8 s  tid: the last one up to here; of a blob, its own
#      48  8 s  oid: the largest one up to here; of a blob, its own
#      56  8 s  time: of a pack, as a tid: what is later was not packed
#      64  16 s instance: of the storage that has all of these bytes, or has
#               packed them; zeros: it is not known
#      80  32 s plain: SHA-256 of the plain bytes
#     112  32 s blobs: SHA-256 of the list of blobs; zeros: none
#     144  32 s before: the sum of the head before in the timeline; of a base,
#               that of its pack; zeros: none
#     176  32 s sum: SHA-256 of the 176 bytes before
_FIELDS = struct.Struct('>8sBcBBB3sQQQ8s8s8s16s32s32s32s')
_SUM = 32
SIZE = _FIELDS.size + _SUM


class Damaged(Exception):
    """An object is not what a backup has put; one line."""


class Newer(Damaged):
    """Another release put an object, in a way that is not known here."""


class Head(NamedTuple):
    kind: bytes
    form: int
    start: int
    end: int
    plain: bytes
    generation: int = 0
    tid: bytes = bytes(8)
    oid: bytes = bytes(8)
    blobs: bytes = NO_SUM
    before: bytes = NO_SUM
    time: bytes = bytes(8)
    instance: bytes = NO_INSTANCE

    @property
    def length(self) -> int:
        """How many plain bytes there are."""
        return self.end - self.start

    @property
    def body(self) -> int:
        """How many of them are behind the head, unless there is a manifest."""
        return 0 if self.form == ELSEWHERE else self.length

    @property
    def has_blobs(self) -> bool:
        return self.blobs != NO_SUM

    def pack(self) -> bytes:
        fields = _FIELDS.pack(
            MAGIC, VERSION, self.kind, self.form, 0, 0, b'', self.start,
            self.end, self.generation, self.tid, self.oid, self.time,
            self.instance, self.plain, self.blobs, self.before)
        return fields + hashlib.sha256(fields).digest()

    @property
    def sum(self) -> bytes:
        return self.pack()[-_SUM:]


def unpack(data: bytes, kinds: tuple[bytes, ...]) -> Head:
    """The head that an object begins with, of one of these kinds; or
    Damaged."""
    if len(data) < SIZE or not data.startswith(MAGIC):
        raise Damaged('it is no object of a backup')
    if data[8] != VERSION:
        raise Newer(f'it has version {data[8]}, and this release knows'
                    f' version {VERSION}')
    fields, found = data[:_FIELDS.size], data[_FIELDS.size:SIZE]
    if hashlib.sha256(fields).digest() != found:
        raise Damaged('its head does not fit the sum in it')
    (_, _, kind, form, compression, encryption, zeros, start, end, generation,
     tid, oid, time, instance, plain, blobs, before) = _FIELDS.unpack(fields)
    if compression or encryption:
        raise Newer('it is compressed or encrypted in a way that this release'
                    ' does not know')
    forms = (ELSEWHERE,) if kind == PACK else (WHOLE, MANIFEST)
    if (kind not in KINDS or form not in forms or any(zeros)
            or not start <= end < LIMIT):
        raise Damaged('its head says what no backup says')
    if kind not in kinds:
        raise Damaged(f'it is of kind {kind.decode()!r}, and'
                      f' {b"".join(kinds).decode()!r} is expected')
    return Head(kind, form, start, end, plain, generation, tid, oid, blobs,
                before, time, instance)
