"""What is behind a head: manifests, lists of blobs, and documents.

Each has one function that writes it and one that reads it, which takes nothing
that the first could not have written: a store may be damaged, or hostile.
"""

import json
import struct
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from .head import LIMIT
from .head import Damaged

# A manifest: for each part
#
#       0  32 s  SHA-256 of its bytes, which is its name
#      32  Q     its length
_PART = struct.Struct('>32sQ')

# A list of blobs: for each blob, in the order of tids and oids
#
#       0  8 s   oid
#       8  8 s   tid
#      16  Q     size; all bits set: it was missing when it should be shipped
#      24  32 s  SHA-256 of its bytes; zeros: it was missing
_BLOB = struct.Struct('>8s8sQ32s')
_MISSING = (1 << 64) - 1
_NO_SUM = bytes(32)


class Part(NamedTuple):
    sum: bytes
    length: int


class ListedBlob(NamedTuple):
    oid: bytes
    tid: bytes
    #: None: it was missing when it should be shipped.
    size: int | None
    sum: bytes = _NO_SUM


def manifest(parts: Iterable[Part]) -> bytes:
    return b''.join(_PART.pack(*part) for part in parts)


def read_manifest(body: bytes, length: int, most: int) -> list[Part]:
    """The parts of content of this length, each of `most` bytes at most."""
    if len(body) % _PART.size:
        raise Damaged('its manifest is cut off')
    parts = [Part(*each) for each in _PART.iter_unpack(body)]
    if not all(0 < part.length <= most for part in parts):
        raise Damaged('a part in its manifest has a length that none has')
    if sum(part.length for part in parts) != length:
        raise Damaged('the lengths in its manifest do not add up')
    return parts


def blob_list(blobs: Iterable[ListedBlob]) -> bytes:
    return b''.join(
        _BLOB.pack(blob.oid, blob.tid,
                   _MISSING if blob.size is None else blob.size, blob.sum)
        for blob in sorted(blobs, key=_order))


def read_blob_list(body: bytes) -> list[ListedBlob]:
    if len(body) % _BLOB.size:
        raise Damaged('its list of blobs is cut off')
    blobs, last = [], b''
    for oid, tid, size, sum in _BLOB.iter_unpack(body):
        if not last < tid + oid:
            raise Damaged('its list of blobs is not in order')
        last = tid + oid
        if size == _MISSING and sum == _NO_SUM:
            size = None
        elif size >= LIMIT:
            raise Damaged('its list has a blob of a size that none has')
        blobs.append(ListedBlob(oid, tid, size, sum))
    return blobs


def _order(blob: ListedBlob) -> bytes:
    return blob.tid + blob.oid


def document(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, indent=1, sort_keys=True).encode() + b'\n'


def read_document(
        body: bytes, fields: Mapping[str, type | tuple[type, ...]]
        ) -> dict[str, Any]:
    """The values of these names, which are of these types; others, which a
    later release may write, are left out."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise Damaged('it is no document') from None
    if not isinstance(found, dict):
        raise Damaged('it is no document')
    for name, types in fields.items():
        value = found.get(name)
        if not isinstance(value, types) or isinstance(value, bool):
            raise Damaged(f'its {name} is not what a backup writes')
    return {name: found.get(name) for name in fields}
