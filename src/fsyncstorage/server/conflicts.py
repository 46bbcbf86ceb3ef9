"""The conflicts of one vote that its client has to resolve.

The answer to the vote contains the data of each conflict, which stay in memory
until the answer has left.  So their size has a limit.  A vote that exceeds it
fails with the first conflict that is too much: its client can try the
transaction again, as after any conflict.
"""

# Most bytes of all conflicts together, and bytes that are counted for each in
# addition to its data.
MOST = 16 << 20
OVERHEAD = 1000


class Conflicts:

    def __init__(self):
        self._by_oid = {}
        self._bytes = 0

    def __bool__(self):
        return bool(self._by_oid)

    def add(self, oid, data, error):
        """Note a ConflictError for data that were stored; or raise it."""
        self._bytes += OVERHEAD + len(data)
        if self._bytes > MOST:
            raise error
        self._by_oid[oid] = dict(oid=oid, serials=error.serials, data=data)

    def resolved(self, oid):
        """The client has stored it again, without a conflict."""
        self._by_oid.pop(oid, None)

    def told(self):
        """The conflicts, in the form in which they are sent to clients."""
        return list(self._by_oid.values())
