"""The conflicts of one vote that its client has to resolve.

The answer has the data of each, so they are in memory until it has left, and
there may only be so much of them.  A vote with more fails with the conflict
that is too many: its client can try the transaction again, as after any
conflict.
"""

# Bytes of all together, and what is counted for each besides its data.
MOST = 16 << 20
OVERHEAD = 1000


class Conflicts:

    def __init__(self):
        self._by_oid = {}
        self._bytes = 0

    def __bool__(self):
        return bool(self._by_oid)

    def add(self, oid, data, error):
        """Note a ConflictError for what was stored; or raise it."""
        self._bytes += OVERHEAD + len(data)
        if self._bytes > MOST:
            raise error
        self._by_oid[oid] = dict(oid=oid, serials=error.serials, data=data)

    def resolved(self, oid):
        """The client has stored it again, without a conflict."""
        self._by_oid.pop(oid, None)

    def told(self):
        """In the form in which clients are told."""
        return list(self._by_oid.values())
