"""What the log has of a staged blob: its id, its chunks, its checksum.

A chunk has 1 MiB, the last one has the rest, and an empty blob has none.  So
the size of a blob says how many chunks there are, and how long each is.

An id begins with the epoch of the writer that has staged the blob.  It tells a
later writer what may be removed: no new record can name a blob of an earlier
epoch.
"""

import hashlib
import os
from collections.abc import Iterator
from typing import IO

from .record import CHECKSUM
from .record import IDENTITY
from .record import MOST

CHUNK = MOST

_EPOCH = 8


def new_id(epoch: int) -> bytes:
    return epoch.to_bytes(_EPOCH, 'big') + os.urandom(IDENTITY - _EPOCH)


def epoch_of(id: bytes) -> int:
    return int.from_bytes(id[:_EPOCH], 'big')


def chunks_of(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(CHUNK):
        yield chunk


def lengths(size: int) -> Iterator[int]:
    """The lengths of the chunks of a blob of this size."""
    for begin in range(0, size, CHUNK):
        yield min(CHUNK, size - begin)


def new_sum() -> 'hashlib.blake2b':
    """A hash object for the checksum of all bytes of a blob."""
    return hashlib.blake2b(digest_size=CHECKSUM)


def has(path: str, size: int, checksum: bytes) -> bool:
    """Does this file have these contents?"""
    try:
        with open(path, 'rb') as file:
            if os.fstat(file.fileno()).st_size != size:
                return False
            found = new_sum()
            for chunk in chunks_of(file):
                found.update(chunk)
    except FileNotFoundError:
        return False
    return found.digest() == checksum
