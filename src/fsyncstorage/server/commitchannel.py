"""A commit channel: the transactions of one client of ours, side by side.

It takes the place of the session of its connection, and belongs to the session
of the client's ZEO connection, whose ticket it has.  Each transaction is a
ballot.  What is announced to the client leaves here, in the same outbox as the
answers to its votes, finishes and pings.

Whichever of the two connections ends, ends the other one.  All of it runs in
the event loop.  Left to others: the frames (wire.commitserver), what a
transaction stores (storing), its states (ballot).
"""

import functools

from ZODB.POSException import StorageTransactionError

from .. import wire
from ..wire import commits
from ..wire import commitserver
from . import calls
from . import quiet
from .ballot import BEGUN
from .ballot import FINISHING
from .ballot import VOTED
from .ballot import Ballot
from .channel import Unwelcome
from .door import OF_A_TRANSACTION
from .door import Full
from .session import STATUSES
from .storing import Storing

logger = quiet.get_logger(__name__)

# The calls of a transaction that are encoded as on the ZEO connection, and how
# many of their arguments are wanted: the last one may be the id.
CALLS = {
    'storea': 3,  # whose serial has another form, or data that are wrong
    'restorea': 4,
    'deleteObject': 2,
    'checkCurrentSerialInTransaction': 2,
    'undoa': 1,
    'storeBlobStart': 0,
    'storeBlobChunk': 1,
    'storeBlobEnd': 3,
    'storeBlobShared': 4,
}


def session_of(server, message):
    """The session whose ticket a hello has, once; or raise `Unwelcome`."""
    hello = commits.read_hello(message)
    if hello.version != commits.VERSION:
        raise Unwelcome(
            wire.OTHER_VERSION,
            f'this server speaks version {commits.VERSION} of the commit'
            f' channel, not {hello.version}')
    if hello.instance != server.instance:
        raise Unwelcome(wire.OTHER_INSTANCE,
                        'the server was restarted: reconnect')
    session = server.tickets.pop(hello.ticket, None)
    if session is None:
        raise Unwelcome(wire.UNKNOWN_TICKET,
                        'no client has this ticket, or it was used')
    if session.transaction is not None:
        raise Unwelcome(wire.UNKNOWN_TICKET, 'a transaction is under way')
    return session


class _Transaction:

    def __init__(self, number, ballot, storing):
        self.number = number
        self.ballot = ballot
        self.storing = storing


class CommitChannel:

    def __init__(self, server, connection, session):
        self.server = server
        self._connection = connection
        self._session = session
        self._transactions = {}  # number -> _Transaction
        # Until it is registered, a newcomer may have to make room for others.
        self._enter(0)

    @property
    def log_label(self):
        return self._session.log_label

    def _enter(self, others):
        """Enter the descriptors that it may need.  One transaction has those
        that were entered for the session's; each other has its own."""
        try:
            self.server.door.stay(
                self._connection, 1 + OF_A_TRANSACTION * others)
        except Full:
            raise Unwelcome(
                wire.TOO_MANY, 'no descriptors are left') from None

    def begin(self):
        """The client is welcome: it is told here of what is announced."""
        connection = self._connection
        # What encodes the announcements, and how.
        connection.protocol_version = commits.MAGIC
        connection.invalidation = commitserver.invalid
        self._session.move(connection)

    def wake(self):
        """The client reads again: nothing waits for that here."""

    def notify_disconnected(self):
        """Runs however the connection ended."""
        for transaction in list(self._transactions.values()):
            self._end(transaction)
            transaction.ballot.abort()
        self.server.forget(self._connection)
        self._session.follow()

    # Requests

    def receive(self, message):
        request = commitserver.request(message)
        _METHODS[request.__class__](self, *request)

    def _begin(self, number, message):
        others = len(self._transactions)
        if number in self._transactions or others >= commits.MOST_OPEN:
            raise wire.PeerError(f'a begin; {others} transactions are open')
        _, user, description, extension, tid, status = self._arguments(
            message, {'tpc_begin': 6})[1]
        if status not in STATUSES:
            raise ValueError(f'a transaction of status {status!r}')
        if others:
            self._enter(others)
        session = self._session
        ballot = Ballot(
            session.service.committer, session, number, user, description,
            extension, tid, status, session.client_conflict_resolution)
        self._transactions[number] = _Transaction(
            number, ballot, Storing(session, ballot))
        session.stats.active_txns += 1

    def _store(self, number, data, oid, serial):
        self._of(number).storing.storea(oid, serial, data)

    def _call(self, number, message):
        name, arguments = self._arguments(message, CALLS)
        getattr(self._of(number).storing, name)(*arguments)

    def _arguments(self, message, offered):
        """The name of a call and its arguments, of the right types."""
        _, _, name, arguments = calls.parts(
            self._session.connection.decode(message))
        if name not in offered:
            raise wire.PeerError(f'a call of {name!r:.100}')
        calls.REGISTERED[name].check(name, arguments)
        if len(arguments) < offered[name]:
            raise wire.PeerError(f'a call of {name} without all arguments')
        return name, arguments[:offered[name]]

    def _of(self, number):
        transaction = self._transactions.get(number)
        if transaction is None:
            raise wire.PeerError('an operation without a transaction')
        return transaction

    def _vote(self, number):
        transaction = self._in_state(number, BEGUN)
        if transaction is not None:
            transaction.ballot.vote(
                functools.partial(self._voted, transaction))

    def _finish(self, number):
        transaction = self._in_state(number, VOTED)
        if transaction is not None:
            transaction.ballot.finish(
                functools.partial(self._finished, transaction))

    def _in_state(self, number, state):
        """The transaction; None if it is in another state, which its client
        is told."""
        transaction = self._transactions.get(number)
        if transaction is None:
            self._fail(number, StorageTransactionError(
                'this transaction is over, or was not begun'))
        elif transaction.ballot.state is not state:
            found = transaction.ballot.state
            self._end(transaction)
            transaction.ballot.abort()
            self._fail(number, StorageTransactionError(f'Already {found}'))
        else:
            return transaction
        return None

    def _abort(self, number):
        transaction = self._transactions.get(number)
        if transaction is not None:
            if transaction.ballot.state is FINISHING:
                raise wire.PeerError('an abort, behind a finish')
            self._end(transaction)
            transaction.ballot.abort()
            self._session.stats.aborts += 1
        self._send(commitserver.aborted(number))

    def _ping(self, number):
        self._send(commitserver.pong(number, self._session.service.last_tid))

    # Outcomes

    def _voted(self, transaction, result, error):
        number = transaction.number
        if error is not None:
            self._end(transaction)
            self._fail(number, error)
        elif transaction.ballot.state is BEGUN:
            self._send(commitserver.conflicts(
                number, self._session.connection.encode(
                    0, 0, '.reply', result)))
        else:
            try:
                self._send(commitserver.voted(number, result))
            except wire.CallerError as error:
                # The vote of another storage gave something else than oids.
                self._end(transaction)
                transaction.ballot.abort()
                self._fail(number, error)

    def _finished(self, transaction, tid, error):
        """If it has a tid, it is announced now."""
        number, oids = transaction.number, transaction.ballot.oids
        self._end(transaction)
        if tid is None:
            self._fail(number, error)
            return
        self._session.stats.commits += 1
        if error is not None:
            frames = commitserver.invalid(tid, oids) + self._error(
                number, error)
        else:
            size = self._session.service.announced_size
            frames = commitserver.done(
                number, tid, int(size['length']), int(size['size']))
        self._connection.outbox.announce(frames)

    def _end(self, transaction):
        del self._transactions[transaction.number]
        transaction.storing.close()
        if self._transactions:
            self._enter(len(self._transactions) - 1)
        self._session.stats.active_txns -= 1

    def _fail(self, number, error):
        self._send(self._error(number, error))

    def _error(self, number, error):
        return commitserver.error(
            number, self._session.connection.error_message(0, error))

    def _send(self, frame):
        self._connection.outbox.send(frame)


_METHODS = {
    commitserver.Begin: CommitChannel._begin,
    commitserver.Store: CommitChannel._store,
    commitserver.Call: CommitChannel._call,
    commitserver.Vote: CommitChannel._vote,
    commitserver.Finish: CommitChannel._finish,
    commitserver.Abort: CommitChannel._abort,
    commitserver.Ping: CommitChannel._ping,
}
