"""What each client does, and what it holds: for the operator.

A `Tally` counts what one client does.  It belongs to the event loop, which
adds to plain integers: some 30 ns each, and nothing else is done for it while
nobody asks.  The bytes and messages of its ZEO connection and of its commit
channel are counted by these themselves (connection).

`Clients` may be made and used in any thread, and takes no lock.  That is safe,
because it changes nothing, and all that it reads is one of these:

- an attribute that is replaced by another value, never changed in place: a
  number, a text, a state.  So each is as it was at some moment, though not all
  at the same one: a commit may be counted whose bytes are not yet;
- a list, set or dictionary that the loop changes: it is copied first, by one
  call of `copy` or one slice, during which no other thread changes it.

What a client says of itself is text of a peer: it is cut and made printable
before it is shown.
"""

import math
import operator
import os
import time

from ZODB.utils import oid_repr

from .. import wire
from ..metrics import address
from . import quiet
from .ballot import FINISHING
from .ballot import VOTED
from .ballot import WAITING
from .times import LOG

# What is shown: transactions of a client, oids of a transaction, and
# characters of what a peer has said.
MOST_TRANSACTIONS = 5
MOST_OIDS = 5
LONGEST = 100
# The address of those that have none.
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
        #: On its read channels: requests, and bytes behind the hello.
        self.messages = self.received = self.sent = 0


#: What stands for the commit channel of a client that has none.
_NO_CHANNEL = Tally()


class Shown:
    """Part of a session: what it is to the operator."""

    #: A number that no other client of this run of the server has.
    number = None
    #: By which the read channels of the client name it; nobody else knows it.
    mark = None
    tally = None
    label = address = ''
    #: Of a client of ours, which has said so; None: of any other.
    version = reads_locally = None

    def begin_tally(self):
        """Called when it registers."""
        self.tally = Tally()
        self.address = _address_of(self.connection)
        self.number = next(self.server.numbers)
        self.mark = os.urandom(len(wire.NO_MARK))
        self.server.tallies[self.mark] = self.tally

    @property
    def name(self):
        """Label and address: a label of ZEO's has that of the server."""
        return f'{self.label} {self.address}'.strip()

    def count_commit(self, ballot):
        """One of its own, which is in the file."""
        self.tally.commits += 1
        self.stats.commits += 1
        self.stats.conflicts_resolved += ballot.conflicts_resolved

    def end_tally(self):
        """May be repeated.  A read channel that is left counts for nobody."""
        self.server.tallies.pop(self.mark, None)

    # Calls

    def set_client_label(self, label):
        super().set_client_label(label)
        self.label = said(label)

    def about_client(self, version, reads_locally):
        self.version, self.reads_locally = said(version), bool(reads_locally)


def _address_of(connection):
    """That of the peer."""
    peer = connection.transport.get_extra_info('peername')
    return (address.shown(peer[:2]) if isinstance(peer, tuple)
            else UNIX)


def said(text):
    """What a peer has said, so that it can be shown."""
    return quiet.in_one_line(text[:LONGEST])[:LONGEST]


class Clients:
    """Those of one storage at one moment, by their ranks.

    Those that hold objects come first, then those that wait for some, of each
    the longest; so if not all can be shown, the one because of which others
    wait is shown in any case.
    """

    def __init__(self, service):
        sessions = service.sessions.copy()
        under_way = {}
        for ballot in service.committer.ballots():
            under_way.setdefault(ballot.client.session, []).append(
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
        """So many of them, as JSON has them."""
        return {'clients': [_client(session, states, self._now)
                            for _, session, states in self._clients[:most]],
                'left_out': max(0, len(self._clients) - most)}


def _client(session, states, now):
    tally, own, told = session.tally, session.connection, session.told
    if told is own:
        told = _NO_CHANNEL
    return {
        'number': session.number,
        'label': session.label,
        'address': session.address,
        'version': session.version,
        'read_only': bool(session.read_only),
        'reads_locally': session.reads_locally,
        'seconds': _seconds(now - tally.since),
        'messages': tally.messages + own.messages + told.messages,
        'received': tally.received + own.received + told.received,
        'sent': tally.sent + own.sent + told.sent,
        'loads': tally.loads,
        'commits': tally.commits,
        'conflicts': tally.conflicts,
        'transactions': [
            _transaction(now, *each) for each in states[:MOST_TRANSACTIONS]],
        'transactions_left_out': max(0, len(states) - MOST_TRANSACTIONS),
    }


def _state_of(ballot):
    """What is to be known of one that has asked for its vote: its state may
    be another one in a moment."""
    state, waits_for = ballot.state, ballot.waits_for
    holds = state in (VOTED, FINISHING)
    if state is WAITING and waits_for is LOG:
        state = f'waiting for {LOG}'
    return ballot, state, holds, (
        ballot.held_since if holds else ballot.asked_at)


def _rank(each):
    """Those that hold their objects come first, then those that wait; of
    each, the oldest."""
    _, _, holds, since = each
    return not holds, since


# Behind all of these.
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
