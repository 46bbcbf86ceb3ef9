"""How many connections there are, and which has to leave when it is too many.

A peer is a *newcomer* until it has registered, or its channel is open: it is
*silent* at first, and *speaking* from its first byte on.  There are at most
`MOST_SILENT` and `MOST_SPEAKING` of them: when one more comes, the oldest of
that kind has to leave, of those from the address that has most.  So thousands
of connections that do nothing keep nobody out, and one that speaks has to make
way only for others that speak.

A connection may need descriptors: its socket, and files for what its client
asks for.  What all may need together leaves `RESERVE` of what the process may
have to the storages.  A newcomer for which there is none is not let in; a
client that wants to register then is refused.
"""

import collections
import resource

from . import quiet

logger = quiet.get_logger(__name__)

# A silent one is a socket and costs little; and it has to stay for longer than
# an honest client needs for its first byte, while others come.
MOST_SILENT = 1024
MOST_SPEAKING = 256
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
    """This many may be used for connections."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        limit = 1 << 20
    return max(limit - RESERVE, limit // 2)


class Door:

    def __init__(self):
        self._left = descriptors()
        self._needs = {}  # connection -> descriptors
        self._silent, self._speaking = _Newcomers(), _Newcomers()

    def come(self, newcomer, host):
        """Let it in; or raise Full.  Another one may have to leave."""
        if len(self._silent) >= MOST_SILENT:
            self._send_away(self._silent)
        elif self._left < NEWCOMER:
            self._send_away(self._silent or self._speaking)
        if self._left < NEWCOMER:
            raise Full
        self._take(newcomer, NEWCOMER)
        self._silent.add(newcomer, host)

    def speaks(self, newcomer, connection):
        """It has become a connection; another one may have to leave."""
        host = self._silent.hosts.get(newcomer)
        if host is None:
            return  # it has to leave, and that is under way
        self.leave(newcomer)
        if len(self._speaking) >= MOST_SPEAKING:
            self._send_away(self._speaking)
        self._take(connection, NEWCOMER)
        self._speaking.add(connection, host)

    def stay(self, connection, needs, successor=None):
        """It is no newcomer any more, or its successor is not: from now on it
        may need this many descriptors; or Full."""
        more = needs - self._needs.get(connection, 0)
        while more > self._left and self._silent:
            self._send_away(self._silent)
        if more > self._left:
            raise Full
        self.leave(connection)
        self._take(successor or connection, needs)

    def leave(self, connection):
        """However often it is said."""
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
        self.hosts = {}  # newcomer -> host
        #: host -> newcomers, the oldest first.
        self._of = collections.defaultdict(dict)

    def __len__(self):
        return len(self.hosts)

    def add(self, newcomer, host):
        self.hosts[newcomer] = host
        self._of[host][newcomer] = None

    def remove(self, newcomer):
        host = self.hosts.pop(newcomer, None)
        if host is not None:
            del self._of[host][newcomer]
            if not self._of[host]:
                del self._of[host]

    def oldest_of_most(self):
        """The oldest one from the address that has most."""
        return next(iter(max(self._of.values(), key=len)))
