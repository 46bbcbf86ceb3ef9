"""What a transaction wrote, for the cache when it is finished.

Replaces ZEO's TransactionBuffer, whose file for each transaction costs more
than most transactions.  What is written is held in memory, up to a limit; for
objects beyond that, the cache is only told that they have changed.
"""

# Bytes of objects that go into the cache when they are written.
KEPT = 4 << 20


class Written:

    #: Stock's way to report a failed store; here it raises at once.
    exception = None

    def __init__(self, connection_generation):
        #: That of the connection over which the transaction was begun.
        self.connection_generation = connection_generation
        self.server_resolved = set()
        self.client_resolved = set()
        self.blobs = []  # (oid, file name)
        self._data = {}  # oid -> data; None if not kept, or deleted
        self._room = KEPT

    def store(self, oid, data):
        if data is not None:
            self._room -= len(data)
            if self._room < 0:
                data = None
        self._data[oid] = data

    def resolve(self, oid, data):
        """A conflict was resolved by this client."""
        self.store(oid, data)
        self.client_resolved.add(oid)

    def server_resolve(self, oid):
        """The server resolved a conflict; the new data is not known here."""
        self.server_resolved.add(oid)
        self._data.setdefault(oid)

    def storeBlob(self, oid, file_name):
        self.blobs.append((oid, file_name))

    def __iter__(self):
        """Yield (oid, data, whether that is not what was stored)."""
        if self._data is None:
            # An empty list would hide from the cache a commit that goes on
            # although its thread was interrupted.
            raise ValueError('the transaction is over')
        for oid, data in self._data.items():
            yield oid, data, oid in self.server_resolved

    def close(self):
        self._data = None
