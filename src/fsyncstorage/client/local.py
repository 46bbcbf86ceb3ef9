"""Reads the data file of a server on the same machine, without the server.

`LocalReads` belongs to one stream, from the welcome on, and until this client
verifies its cache with a server again.  What the server hands over answers
loads (local.handedover).  When the server ends, the source stays: it reads
only what is durable.

If anything is not certain, the answer is `UNCERTAIN`: then the client asks the
server.  None of the answers goes into the cache.

Left to others: what is certain (format.source).
"""

from ZODB.utils import u64

from ..format import UNCERTAIN
from ..format.objectmap import is_possible
from ..local.handedover import HandedOver
from ..local.handedover import checked_instance
from ..local.handedover import checked_path
from ..local.handedover import named_by_server
from ..local.handedover import say_not_locally


class LocalReads(HandedOver):

    def __init__(self, name, cache, path, instance, blob_dir=None,
                 tell=lambda does: None):
        """`tell(does)` is called in the thread whenever local reads begin or
        end."""
        self._cache = cache
        super().__init__(name, path, instance, blob_dir, tell=tell)

    def load_before(self, oid, tid):
        source = self.source
        if source is None or not self.is_here():
            return UNCERTAIN
        if u64(tid) > u64(self._cache.last_tid) + 1:
            return UNCERTAIN
        found = source.load_before(oid, tid)
        if found is UNCERTAIN and source.is_retired:
            self.look()
        return found

    def prefetch(self, oids):
        """Return the oids for which the server must be asked."""
        source = self.source
        if source is None or not self.is_here():
            return oids
        return source.prefetch(list(oids))

    def blob_path(self, oid, serial):
        """The path at which a blob can be read; None: it must be fetched."""
        blobs = self.blobs
        if blobs is None or not self.is_here():
            return None
        return blobs.path(oid, serial)


def begin(name, cache, about, path=None, blob_dir=None,
          tell=lambda does: None):
    """LocalReads as the server's welcome describes it, or None.

    `path`, `blob_dir`: where the server's socket and its directory of blobs
    are, if the client's configuration says so.  `tell`: see LocalReads.
    """
    if not (is_possible() and isinstance(about, dict)):
        return None
    try:
        return LocalReads(
            name, cache, checked_path(path or named_by_server(about)),
            checked_instance(about.get('instance')),
            blob_dir or about.get('blobs'), tell)
    except (RuntimeError, ValueError) as error:  # (no thread can be started)
        say_not_locally(name, error)
        return None
