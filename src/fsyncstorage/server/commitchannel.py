"""A commit channel: the transactions of one client of ours, side by side.

It takes the place of the session of its connection, and belongs to the session
of the client's ZEO connection, whose ticket it has.  Each transaction is a
ballot.  What is announced to the client leaves here, in the same outbox as the
answers to its votes, finishes and pings.

An error in one transaction harms no other: the transaction is aborted, and the
client gets the error when it next asks for a vote or a finish.  A frame that
is out of place, or cannot be understood, ends the channel, because nothing
after it can be trusted.  When one of the two connections ends, so does the
other.

In one trip, a transaction is finished in the same step of the loop in which
its vote succeeds.

All of it runs in the event loop.  Left to others: the frames
(wire.commitserver), what a transaction stores and its states (ballot), what
became of it when the channel is gone (outcomes).
"""

import functools

from ZODB.POSException import StorageTransactionError

from .. import wire
from ..storage import outcome
from ..wire import commits
from ..wire import commitserver
from ..wire import sessions
from . import calls
from . import quiet
from .ballot import BEGUN
from .ballot import FINISHING
from .ballot import VOTED
from .ballot import Ballot
from .channel import Unwelcome
from .channel import refuse_unless_meant
from .door import CLIENT
from .door import COMMIT_CHANNEL
from .door import OF_A_TRANSACTION
from .door import Full
from .outcomes import Question
from .outcomes import Record
from .threads import attempt

logger = quiet.get_logger(__name__)

# Questions of one client that may wait for their answers.
MOST_QUESTIONS = 1000


def session_of(server, message):
    """The session that a hello names by its ticket, which is then used up; or
    raise `Unwelcome`."""
    hello = sessions.read_hello(message)
    refuse_unless_meant(server, hello, sessions.VERSION, 'the commit channel')
    session = server.tickets.pop(hello.ticket, None)
    if session is None:
        raise Unwelcome(wire.UNKNOWN_TICKET,
                        'no client has this ticket, or it was used')
    if session.transaction is not None:
        raise Unwelcome(wire.UNKNOWN_TICKET, 'a transaction is under way')
    return session


class _Transaction:
    """A transaction that the client has begun: the `client` of its ballot."""

    #: None: it could not be begun, or has failed, or is over.
    ballot = None
    #: It was voted and finished by one request: it can no longer be aborted.
    is_in_one_trip = False
    #: The outcome of its finish is noted.
    is_settled = False
    #: The frame with its error, kept until its client asks.
    failure = None

    def __init__(self, channel, number):
        self._channel = channel
        self.session = channel.session
        self._committer = channel.session.service.committer
        self.number = number
        self.commit_id = outcome.id_of(sessions.commit_id(
            channel.server.instance, channel.session.ticket, number))

    def begin(self, user, description, extension, tid, status):
        self.ballot = Ballot(
            self._committer.storage, self, self.number, user, description,
            extension, tid, status, self.session.client_conflict_resolution)

    @property
    def is_finishing(self):
        return self.ballot is not None and self.ballot.state is FINISHING

    def end(self, abort=True):
        """May be repeated."""
        ballot, self.ballot = self.ballot, None  # leave no reference cycle
        if ballot is not None and abort:
            self._committer.abort(ballot)

    def vote(self, done):
        self._committer.vote(self.ballot, functools.partial(done, self))

    def finish(self, done):
        self._committer.finish(self.ballot, functools.partial(done, self))

    # What its ballot wants of it

    @property
    def log_label(self):
        return self.session.log_label

    def timed_out(self, ballot):
        self._channel.timed_out(self)

    def enter_files(self, ballot):
        try:
            self.session.server.door.stay(ballot, OF_A_TRANSACTION)
        except Full:
            raise StorageTransactionError(
                'the server has no descriptors left for the files of a large'
                ' transaction, or of one with blobs') from None

    def files_closed(self, ballot):
        self.session.server.door.leave(ballot)

    def finished(self, tid):
        if tid is None and self.is_settled:
            return  # it is published nevertheless
        # (A storage that is not ours may give something that is no tid.)
        self._channel.record.note(
            self.number, tid if calls.is_oid(tid) else None,
            again=self.is_settled)
        self.is_settled = True


class CommitChannel:

    asks_later = True

    def __init__(self, server, connection, session):
        self.server = server
        self._connection = connection
        self.session = session
        self._transactions = {}  # number -> _Transaction
        self.record = Record()
        #: Questions that wait for their answers: number -> Question
        self._questions = {}
        try:
            # It is no newcomer now: no longer closed to make room for others.
            server.door.stay(connection, COMMIT_CHANNEL)
        except Full:
            raise Unwelcome(
                wire.TOO_MANY, 'no descriptors are left') from None

    @property
    def log_label(self):
        return self.session.log_label

    def begin(self):
        """Announcements to this client leave here from now on."""
        self.server.outcomes.begin(self.session.ticket, self)
        connection = self._connection
        # The ZEO connection has no transactions from now on.
        self.server.door.stay(
            self.session.connection, CLIENT - OF_A_TRANSACTION)
        # How announcements are encoded.
        connection.speech = _Speech
        self.session.move(connection)

    def wake(self):
        """The client reads again; nothing waits for that here."""

    def notify_disconnected(self):
        """Called whenever the connection has ended, for any reason."""
        self._end_all()
        self.server.forget(self._connection)
        self.session.follow()

    def end(self):
        """End the client.  Transactions that are finishing go on; no others.

        (Input that was not processed is dropped.  A transaction that a thread
        is voting is aborted when the thread is done, all others at once.)
        """
        self.session.end()
        self._end_all()

    def _end_all(self):
        if self.record.ended_at is not None:
            return
        finishing, aborted = [], []
        for number, transaction in self._transactions.items():
            if transaction.is_settled:
                continue  # its outcome is noted
            (finishing if transaction.is_finishing else aborted).append(number)
        # Before the aborts: one of them may fail.
        self.server.outcomes.end(
            self.session.ticket, self.record, aborted, finishing)
        for transaction in list(self._transactions.values()):
            attempt(self._end, transaction)
        while self._questions:
            self._questions.popitem()[1].drop()

    def say_goodbye(self):
        """The server stops.  Promise that no transaction without an answer is
        committed, or ever will be; but not if one is finishing."""
        may_be_kept = any(
            each.is_finishing or each.is_settled
            for each in self._transactions.values())
        self._end_all()
        if not may_be_kept:
            self._send(commitserver.goodbye())

    # Requests

    def receive(self, message):
        request = commitserver.request(message)
        _METHODS[request.__class__](self, *request)

    def _begin(self, number, message):
        name, arguments = self._decoded(message, calls.BEGIN)
        self._begin_new(number, lambda transaction: transaction.begin(
            *calls.checked(name, arguments, calls.BEGIN)[1:]))

    def _begin_plain(self, number, user, description):
        self._begin_new(number, lambda transaction: transaction.begin(
            user, description, None, None, ' '))

    def _begin_too_long(self, number, size):
        def refuse(transaction):
            raise ValueError(f'a description of {size} bytes')

        self._begin_new(number, refuse)

    def _begin_new(self, number, begin):
        open_ones = len(self._transactions)
        if number in self._transactions or open_ones >= commits.MOST_OPEN:
            raise wire.PeerError(f'a begin; {open_ones} transactions are open')
        transaction = self._transactions[number] = _Transaction(self, number)
        self.session.stats.active_txns += 1
        self._do(transaction, begin, transaction)

    def _store(self, number, data, oid, serial):
        transaction = self._begun(number)
        if transaction is not None:
            self._do(
                transaction, transaction.ballot.storea, oid, serial, data)

    def _stores(self, number, message, size):
        transaction = self._begun(number)
        if transaction is not None:
            self._do(
                transaction, transaction.ballot.batch, message, size)

    def _call(self, number, message):
        transaction = self._begun(number)
        name, arguments = self._decoded(
            message, calls.OF_A_TRANSACTION)
        if transaction is not None:
            self._do(transaction, self._call_it, transaction, name, arguments)

    def _call_it(self, transaction, name, arguments):
        getattr(transaction.ballot, name)(
            *calls.checked(name, arguments, calls.OF_A_TRANSACTION))

    def _decoded(self, message, offered):
        """The name of a call and its arguments, which may have any type."""
        _, _, name, arguments = calls.parts(
            self.session.connection.decode(message))
        if name not in offered:
            raise wire.PeerError(f'a call of {name!r:.100}')
        return name, arguments

    def _begun(self, number):
        """The transaction that something is stored in; None if it has
        failed."""
        transaction = self._transactions.get(number)
        if transaction is None:
            raise wire.PeerError('an operation without a transaction')
        if transaction.failure is not None:
            return None
        if transaction.ballot.state is not BEGUN:
            raise wire.PeerError(
                f'an operation, already {transaction.ballot.state}')
        return transaction

    def _do(self, transaction, step, *arguments):
        """Carry out the step; an error ends this transaction only."""
        try:
            step(*arguments)
        except Exception as error:
            logger.error('%s: a transaction failed before its vote: %r',
                         self.log_label, error,
                         exc_info=calls.traceback_of(error))
            self._give_up(transaction, error)

    def _give_up(self, transaction, error):
        """Abort it; its client gets the error when it asks."""
        transaction.failure = self._error(transaction.number, error)
        transaction.end()

    def _vote(self, number):
        transaction = self._stored(number)
        if transaction is not None:
            transaction.vote(self._voted)

    def _trip(self, number):
        transaction = self._stored(number)
        if transaction is not None:
            transaction.is_in_one_trip = True
            transaction.vote(self._voted_on_trip)

    def _stored(self, number):
        """The transaction that is to be voted; None if it cannot be."""
        transaction = self._asked(number, BEGUN)
        if transaction is not None and transaction.ballot.half_a_blob:
            self._refuse(transaction, 'a blob has not come completely')
            return None
        return transaction

    def _finish(self, number):
        transaction = self._asked(number, VOTED)
        if transaction is not None:
            transaction.finish(self._finished)

    def _asked(self, number, state):
        """The transaction that is to be voted or finished; None if it cannot
        be: then its client is sent the error."""
        transaction = self._transactions.get(number)
        if transaction is None:
            self._fail(number, StorageTransactionError(
                'this transaction is over, or was not begun'))
        elif transaction.failure is not None:
            self._end(transaction)
            self._send(transaction.failure)
        elif transaction.is_finishing:
            # It may be committed: an error would be a false answer.
            raise wire.PeerError('a vote or a finish, behind a finish')
        elif transaction.ballot.state is not state:
            self._refuse(transaction, f'Already {transaction.ballot.state}')
        else:
            return transaction
        return None

    def _refuse(self, transaction, text):
        self._end(transaction)
        self._fail(transaction.number, StorageTransactionError(text))

    def _abort(self, number):
        transaction = self._transactions.get(number)
        if transaction is not None:
            if transaction.is_finishing or transaction.is_in_one_trip:
                raise wire.PeerError('an abort, behind a finish')
            self._end(transaction)
            self.session.stats.aborts += 1
        self._send(commitserver.aborted(number))

    def _ping(self, number):
        """In the outbox, the pong is after all that was announced before."""
        self._send(commitserver.pong(number, self.session.service.last_tid))

    def _ask(self, number, in_doubt):
        """The client asks what became of a commit of an earlier session."""
        id, since = sessions.read_in_doubt(in_doubt)
        commit = sessions.read_commit_id(id)
        if number in self._questions or len(
                self._questions) == MOST_QUESTIONS:
            raise wire.PeerError(f'a question; {len(self._questions)} wait')
        self._questions[number] = question = Question(
            functools.partial(self._tell_outcome, number))
        if commit.instance == self.server.instance:
            self.server.outcomes.ask(commit.ticket, commit.number, question)
        else:
            self.session.service.became_of(
                id, since, question, self.session.questions)

    def _tell_outcome(self, number, outcome, tid):
        del self._questions[number]
        self._send(commitserver.outcome(number, outcome, tid))

    # Outcomes

    def timed_out(self, transaction):
        """It was voted, and not finished in time."""
        self._give_up(transaction, self.session.too_late())

    def _voted(self, transaction, result, error):
        if error is None:
            try:
                answer = self._answer_to_vote(transaction, result)
            except Exception as reason:
                error = self._cannot_be_encoded(reason)
            else:
                self._connection.gathers_once_more = True
                self._send(answer)
                return
        self._end(transaction)
        self._fail(transaction.number, error)

    def _voted_on_trip(self, transaction, result, error):
        """Finish it in this same step: nothing can come between the two."""
        if error is None and transaction.ballot.state is VOTED:
            try:
                resolved = commitserver.joined(result)
            except Exception as reason:
                error = self._cannot_be_encoded(reason)
            else:
                transaction.finish(functools.partial(
                    self._finished, resolved=resolved))
                return
        self._voted(transaction, result, error)

    def _answer_to_vote(self, transaction, result):
        number = transaction.number
        if transaction.ballot.state is BEGUN:
            transaction.is_in_one_trip = False
            return commitserver.conflicts(
                number, self.session.connection.speech.encode(
                    0, 0, '.reply', result))
        return commitserver.voted(number, result)

    def _cannot_be_encoded(self, reason):
        """A storage that is not ours returned something other than oids, or
        conflicts that have no encoding."""
        logger.error('%s: the answer to a vote cannot be encoded',
                     self.log_label, exc_info=reason)
        return reason

    def _finished(self, transaction, tid, error, resolved=b''):
        """If there is a tid, the transaction is being announced."""
        number, ballot = transaction.number, transaction.ballot
        if tid is None:
            answer = self._error(number, error)
            self._end(transaction, abort=False)
            # If `_error` has failed, the transaction is still there: without
            # an answer to it, a goodbye would be a false promise.
            self._send(answer)
            return
        self._end(transaction, abort=False)
        self.session.count_commit(ballot)
        if error is not None:
            frames = commitserver.invalid(tid, ballot.oids) + self._error(
                number, error)
        else:
            size = self.session.service.announced_size
            frames = commitserver.done(
                number, tid, size['length'], size['size'], resolved)
        self._connection.gathers_once_more = True
        self._connection.outbox.announce(frames)

    def _end(self, transaction, abort=True):
        del self._transactions[transaction.number]
        self.session.stats.active_txns -= 1
        transaction.end(abort)

    def _fail(self, number, error):
        self._send(self._error(number, error))

    def _error(self, number, error):
        return commitserver.error(
            number, self.session.connection.speech.error_message(0, error))

    def _send(self, frame):
        self._connection.outbox.send(frame)


class _Speech:
    """How announcements are encoded."""

    encoding = sessions.MAGIC
    invalidation = staticmethod(commitserver.invalid)


_METHODS = {
    commitserver.Begin: CommitChannel._begin,
    commitserver.BeginPlain: CommitChannel._begin_plain,
    commitserver.BeginTooLong: CommitChannel._begin_too_long,
    commitserver.Store: CommitChannel._store,
    commitserver.Stores: CommitChannel._stores,
    commitserver.Call: CommitChannel._call,
    commitserver.Vote: CommitChannel._vote,
    commitserver.Finish: CommitChannel._finish,
    commitserver.Trip: CommitChannel._trip,
    commitserver.Abort: CommitChannel._abort,
    commitserver.Ping: CommitChannel._ping,
    commitserver.Ask: CommitChannel._ask,
}
