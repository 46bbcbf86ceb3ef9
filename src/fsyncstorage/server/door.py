"""How many connections there are, and who leaves when there are too many.

A peer is a *newcomer* until it has registered, or its channel is open.  There
are `MOST_NEWCOMERS` at most: when one more comes, the oldest one has to leave,
of those from the address that has most.  So those who do nothing make way for
those who work, and whoever opens thousands of connections for his own.

A connection may need descriptors: its socket, and files for what its client
asks for.  What all may need together leaves `RESERVE` of what the process may
have to the storages.  A newcomer for which there is none is not let in; a
client that wants to register then is refused.
"""

import collections
import resource

from . import quiet

logger = quiet.get_logger(__name__)

MOST_NEWCOMERS = 256
# Descriptors that are the storages' own: data, packs, index, blobs, syncs.
RESERVE = 256

# Files that one client may have open: of blobs that are sent to it, ...
MOST_STREAMS = 2
# ... and of a transaction, for its stores and for a blob that comes.
_OF_A_TRANSACTION = 2

# Descriptors that each kind of connection may need.
NEWCOMER = 1
CHANNEL = 2
CLIENT = 1 + MOST_STREAMS + _OF_A_TRANSACTION


class Full(Exception):
    """There are no descriptors left."""


def descriptors():
    """So many may be used for connections."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        limit = 1 << 20
    return max(limit - RESERVE, limit // 2)


class Door:

    def __init__(self):
        self._left = descriptors()
        self._needs = {}  # connection -> descriptors
        self._hosts = {}  # newcomer -> host
        #: host -> newcomers, the oldest first.
        self._newcomers = collections.defaultdict(dict)

    def enter(self, newcomer, host):
        """Let it in; or raise Full.  Another one may have to leave."""
        if len(self._hosts) >= MOST_NEWCOMERS or self._left < NEWCOMER:
            self._send_one_away()
        if self._left < NEWCOMER:
            raise Full
        self._left -= NEWCOMER
        self._needs[newcomer] = NEWCOMER
        self._hosts[newcomer] = host
        self._newcomers[host][newcomer] = None

    def _send_one_away(self):
        if self._hosts:
            most = max(self._newcomers.values(), key=len)
            oldest = next(iter(most))
            logger.warning('too many connections that have not registered;'
                           ' the oldest one has to leave')
            self.leave(oldest)
            oldest.abort()

    def stay(self, newcomer, needs, successor=None):
        """It is one no more, or its successor is not: from now on so many
        descriptors may be needed; or Full."""
        more = needs - self._needs.get(newcomer, 0)
        if more > self._left:
            raise Full
        self.leave(newcomer)
        self._left -= needs
        self._needs[successor or newcomer] = needs

    def close(self, connections):
        """Send newcomers away that are not even connections."""
        for newcomer in list(self._hosts):
            if newcomer not in connections:
                newcomer.abort()

    def leave(self, connection):
        """However often it is said."""
        self._left += self._needs.pop(connection, 0)
        self._forget(connection)

    def _forget(self, newcomer):
        host = self._hosts.pop(newcomer, None)
        if host is not None:
            del self._newcomers[host][newcomer]
            if not self._newcomers[host]:
                del self._newcomers[host]
