"""Positions in a file by oid: those of a Data.fs, and of a client's cache.

`Positions` is a faster fsIndex, without the function calls for checks and
conversions.  Mostly, the objects of a transaction have oids that were given
one after the other, and so share a bucket.  To look up a bucket takes longer
than to use it, so there are methods for many oids at once.
"""

import typing
from collections.abc import Iterable

from BTrees.fsBTree import fsBucket
from ZODB.fsIndex import fsIndex


class Positions(fsIndex):

    def __init__(self, index: fsIndex) -> None:
        """Take over the content of another index."""
        self._data = index._data
        self._bucket = index._data.get  # an attribute of a BTree is slow

    def get(self, oid: bytes, default: typing.Any = None) -> typing.Any:
        bucket = self._bucket(oid[:6])
        if bucket is not None:
            position = bucket.get(oid[6:])
            if position is not None:
                return int.from_bytes(position, 'big')
        return default

    def __setitem__(self, oid: bytes, position: int) -> None:
        bucket = self._bucket(oid[:6])
        if bucket is None:
            bucket = self._data[oid[:6]] = fsBucket()
        bucket[oid[6:]] = position.to_bytes(6, 'big')

    def put(self, entries: Iterable[tuple[bytes, int]]) -> None:
        """Set the positions of these oids."""
        last = None
        for oid, position in entries:
            prefix = oid[:6]
            if prefix != last:
                last = prefix
                bucket = self._bucket(prefix)
                if bucket is None:
                    bucket = self._data[prefix] = fsBucket()
            bucket[oid[6:]] = position.to_bytes(6, 'big')

    def take_out(self, oids: Iterable[bytes]) -> list[tuple[int, bytes]]:
        """Remove these oids; return position and oid of each that was
        there."""
        last = bucket = None
        found = []
        for oid in oids:
            prefix, suffix = oid[:6], oid[6:]
            if prefix != last:
                last, bucket = prefix, self._bucket(prefix)
            if bucket is None:
                continue
            position = bucket.get(suffix)
            if position is not None:
                found.append((int.from_bytes(position, 'big'), oid))
                del bucket[suffix]
                if not bucket:
                    del self._data[prefix]
                    bucket = None
        return found
