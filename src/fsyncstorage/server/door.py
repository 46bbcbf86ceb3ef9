"""How many connections there are, and which is closed if they are too many.

A peer is a *newcomer* until it has registered, or is handed to a process that
reads.  It is *silent* at first, and *speaking* from its first few bytes on,
which may be of a TLS handshake.  At most `MOST_SILENT` newcomers are silent,
and at most `MOST_SPEAKING` are speaking.  If one more comes, one of its kind
is closed: the oldest from the address that has the most of them.  So
connections that do nothing do not keep clients out.

A connection needs file descriptors: for its socket, and for the files that its
client needs.  Of the descriptors that the process may have, `RESERVE` are kept
for the storages.  When none are left for connections, a newcomer is not let
in, and a client that wants to register is refused.
"""

import collections
import resource

from . import quiet

logger = quiet.get_logger(__name__)

# A silent newcomer costs little.  There may be many, so that an honest client
# is not closed before its first byte, while others keep arriving.
MOST_SILENT = 1024
MOST_SPEAKING = 256
# Descriptors for the storages: data, packs, index, blobs, syncs.
RESERVE = 256

# Files that may be open for one client: blobs that are sent to it ...
MOST_STREAMS = 2
# ... and files of a transaction: its stores, and a blob that it sends.
OF_A_TRANSACTION = 2

# Descriptors that each kind of connection may need.
NEWCOMER = 1
# (Transactions that have files are counted one by one.)
CLIENT = 1 + MOST_STREAMS


class Full(Exception):
    """There are no descriptors left."""


def descriptors():
    """Return how many may be used for connections."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        limit = 1 << 20
    return max(limit - RESERVE, limit // 2)


class Door:
    """Counts the descriptors of each connection.

    A transaction that has files is counted here like a connection.
    """

    def __init__(self):
        self._left = descriptors()
        self._needs = {}  # connection -> descriptors
        self._silent, self._speaking = _Newcomers(), _Newcomers()

    def set_aside(self, descriptors):
        """These descriptors are used for something other than connections."""
        self._left -= descriptors

    def come(self, newcomer, host):
        """Let it in, or raise Full.  Another newcomer may have to leave."""
        if len(self._silent) >= MOST_SILENT:
            self._send_away(self._silent)
        elif self._left < NEWCOMER:
            self._send_away(self._silent or self._speaking)
        if self._left < NEWCOMER:
            raise Full
        self._take(newcomer, NEWCOMER)
        self._silent.add(newcomer, host)

    def speaks(self, newcomer):
        """It is no longer silent.  Another newcomer may have to leave."""
        host = self._silent.remove(newcomer)
        if len(self._speaking) >= MOST_SPEAKING:
            self._send_away(self._speaking)
        self._speaking.add(newcomer, host)

    def replace(self, newcomer, connection):
        """The connection takes the newcomer's place."""
        if not self._speaking.replace(newcomer, connection):
            return  # it is already being closed
        self.leave(newcomer)
        self._take(connection, NEWCOMER)

    def stay(self, connection, needs):
        """It is no longer a newcomer: from now on it may need `needs`
        descriptors.  Raise Full if too few are left."""
        more = needs - self._needs.get(connection, 0)
        while more > self._left and self._silent:
            self._send_away(self._silent)
        if more > self._left:
            raise Full
        self.leave(connection)
        self._take(connection, needs)

    def leave(self, connection):
        """May be called repeatedly."""
        self._left += self._needs.pop(connection, 0)
        self._silent.remove(connection)
        self._speaking.remove(connection)

    def _take(self, connection, needs):
        self._left -= needs
        self._needs[connection] = needs

    def _send_away(self, newcomers):
        if newcomers:
            logger.warning('too many connections that have not registered;'
                           ' the oldest one has to leave')
            oldest = newcomers.oldest_of_most()
            self.leave(oldest)
            oldest.abort()


class _Newcomers:

    def __init__(self):
        self._hosts = {}  # newcomer -> host
        #: host -> newcomers, the oldest first.
        self._of = collections.defaultdict(dict)

    def __len__(self):
        return len(self._hosts)

    def add(self, newcomer, host):
        self._hosts[newcomer] = host
        self._of[host][newcomer] = None

    def remove(self, newcomer):
        """Return its host, or None if it is unknown."""
        host = self._hosts.pop(newcomer, None)
        if host is not None:
            del self._of[host][newcomer]
            if not self._of[host]:
                del self._of[host]
        return host

    def replace(self, newcomer, other):
        """The other one is as old.  False: the newcomer is unknown."""
        host = self._hosts.pop(newcomer, None)
        if host is None:
            return False
        self._hosts[other] = host
        self._of[host] = {
            other if each is newcomer else each: None
            for each in self._of[host]}
        return True

    def oldest_of_most(self):
        """Return the oldest one from the address that has most."""
        return next(iter(max(self._of.values(), key=len)))
