"""What each client does, and which objects it holds: for the operator.

A `Tally` counts what one client does; the event loop adds to plain integers.

`Clients` may be made and used in any thread, and takes no lock.  That is safe,
because it changes nothing, and everything that it reads is an attribute that
is replaced and never changed in place, or is copied first by one call, during
which no other thread changes it.  The moments of the values differ: a commit
may be counted before its bytes are.

What a client says of itself is text from a peer.  So it is cut and made
printable before it is shown.
"""

import math
import operator
import time

from ZODB.utils import oid_repr

from ..metrics import address
from . import quiet
from .ballot import FINISHING
from .ballot import VOTED

# Shown at most: transactions of a client, oids of a transaction, and
# characters of a text that a peer has sent.
MOST_TRANSACTIONS = 5
MOST_OIDS = 5
LONGEST = 100
# Shown for a client that has no address.
UNIX = 'a unix socket'


class Tally:
    """What one client has done since it registered."""

    __slots__ = ('since', 'loads', 'commits', 'conflicts', 'messages',
                 'received', 'sent')

    def __init__(self):
        self.since = time.monotonic()
        #: Objects that it asked for, on any of its connections.
        self.loads = 0
        #: Transactions that are committed; votes that met a conflict.
        self.commits = self.conflicts = 0
        #: Requests on its readers, and the bytes there.
        self.messages = self.received = self.sent = 0


def label_of(transport):
    """What log lines about this peer begin with: its address.  (ZEO's own
    label has the server's.)"""
    peer = transport.get_extra_info('peername')
    if not isinstance(peer, tuple):
        return quiet.Label(UNIX, UNIX)
    return quiet.Label(address.shown(peer[:2]), peer[0])


def said(text):
    """Text from a peer, in a form that can be shown."""
    return quiet.in_one_line(text[:LONGEST])[:LONGEST]


class Clients:
    """The clients of one storage at one moment, sorted by rank.

    First come those that hold objects, then those that wait; in both groups,
    the one that has held or waited longest is first.  So the client for which
    others wait is shown even if not all clients can be.
    """

    def __init__(self, service):
        sessions = service.sessions.copy()
        under_way = {}
        for ballot in service.committer.ballots():
            under_way.setdefault(ballot.session, []).append(
                _state_of(ballot))
        self._now = time.monotonic()
        self._clients = []
        for session in sessions:
            states = sorted(under_way.get(session, ()), key=_rank)
            rank = _rank(states[0]) if states else _IDLE
            self._clients.append((rank, session, states))
        self._clients.sort(key=operator.itemgetter(0))

    @property
    def ranks(self):
        """In their order, and comparable with those of other storages."""
        return [rank for rank, _, _ in self._clients]

    def first(self, most):
        """The first `most` of them, in a form for JSON."""
        return {'clients': [_client(session, states, self._now)
                            for _, session, states in self._clients[:most]],
                'left_out': max(0, len(self._clients) - most)}


def _client(session, states, now):
    tally = session.tally
    stream = session.connection
    return {
        'number': session.number,
        'label': session.label,
        'address': session.address,
        'version': session.version,
        'read_only': bool(session.read_only),
        'reads_locally': session.reads_locally,
        'seconds': _seconds(now - tally.since),
        'messages': stream.messages + tally.messages,
        'received': stream.received + tally.received,
        'sent': stream.sent + tally.sent,
        'loads': tally.loads,
        'commits': tally.commits,
        'conflicts': tally.conflicts,
        'transactions': [
            _transaction(now, *each) for each in states[:MOST_TRANSACTIONS]],
        'transactions_left_out': max(0, len(states) - MOST_TRANSACTIONS),
    }


def _state_of(ballot):
    """The ballot with its state, read once: it may change at any moment."""
    state = ballot.state
    holds = state in (VOTED, FINISHING)
    return ballot, state, holds, (
        ballot.held_since if holds else ballot.asked_at)


def _rank(each):
    """Ballots that hold their objects come first, then those that wait; in
    each group the oldest is first."""
    _, _, holds, since = each
    return not holds, since


# The rank after all of these.
_IDLE = True, math.inf


def _transaction(now, ballot, state, holds, since):
    oids = ballot.oids  # (A repeated vote has new ones.)
    return {
        'state': state,
        'holds': holds,
        'seconds': _seconds(now - since),
        'objects': len(oids),
        'oids': [oid_repr(oid) for oid in oids[:MOST_OIDS]],
    }


def _seconds(duration):
    return round(duration, 3) if duration > 0 else 0.0
