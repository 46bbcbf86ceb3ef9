"""What a transaction wrote, kept for the cache until it is finished.

Replaces ZEO's TransactionBuffer, whose file for each transaction costs more
than most transactions.  What is written is held in memory, up to a limit; for
objects beyond that, the cache is only told that they have changed.
"""

from collections.abc import Iterator
from typing import Any

# Bytes of objects that go into the cache when they are written.
KEPT = 4 << 20


class Written:

    # A lock that is held for the transaction until that is over.
    _held: Any = None
    #: Stock's way to report a failed store; here it raises at once.
    exception = None

    def __init__(self, connection_generation: int) -> None:
        #: Which connection the transaction was begun on, by ZEO's count.
        self.connection_generation = connection_generation
        self.server_resolved: set[bytes] = set()
        self.client_resolved: set[bytes] = set()
        self.blobs: list[tuple[bytes, str]] = []  # (oid, file name)
        self._data: Any = {}  # oid -> data; None if not kept, or deleted
        self._room = KEPT

    def store(self, oid: bytes, data: bytes | None) -> None:
        if data is not None:
            self._room -= len(data)
            if self._room < 0:
                data = None
        self._data[oid] = data

    def resolve(self, oid: bytes, data: bytes) -> None:
        """A conflict was resolved by this client."""
        self.store(oid, data)
        self.client_resolved.add(oid)

    def server_resolve(self, oid: bytes) -> None:
        """The server resolved a conflict; the new data is not known here."""
        self.server_resolved.add(oid)
        self._data.setdefault(oid)

    def storeBlob(self, oid: bytes, file_name: str) -> None:
        self.blobs.append((oid, file_name))

    def __iter__(self) -> Iterator[tuple[bytes, bytes | None, bool]]:
        """Yield (oid, data, whether that is not what was stored)."""
        if self._data is None:
            # If the commit goes on although its thread was interrupted, an
            # empty list would hide its objects from the cache.
            raise ValueError('the transaction is over')
        for oid, data in self._data.items():
            yield oid, data, oid in self.server_resolved

    def hold(self, lock: Any) -> None:
        """Take the lock, and keep it until the transaction is over."""
        lock.acquire()
        try:
            self._held = lock
        except BaseException:  # an interrupt
            lock.release()
            raise

    def close(self) -> None:
        """The transaction is over.  May be repeated."""
        self._data = None
        held, self._held = self._held, None
        if held is not None:
            held.release()
