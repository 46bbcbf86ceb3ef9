"""What one stock client may ask for.

The methods are those of the ZEO protocol, called in the event loop.  A call
that may wait for a disk or for a lock is given to a thread, and answered
later.

A client has one transaction at a time.  Its ballot has the state.  It may fail
while its client waits for no answer.  Then it is aborted, what the client
still stores in it is ignored, and the client gets the error when it next asks
for a vote or a finish.  (A client of ours has several; what is the same for
these is here.)

Left to others: what a transaction stores, and its states (ballot), clients of
ours, which have several transactions at a time (oursession).
"""

import functools
import logging
import sys

from ZEO.StorageServer import ZEOStorage
from ZODB.POSException import POSKeyError
from ZODB.POSException import ReadOnlyError
from ZODB.POSException import StorageError
from ZODB.POSException import StorageTransactionError

from ..errors import LeaderChanged
from ..errors import NotFinishedInTime
from ..format import extension
from . import answers
from . import calls
from . import listing
from . import quiet
from .ballot import BEGUN
from .ballot import VOTED
from .ballot import Ballot
from .ballot import BytesInMemory
from .blobstream import BlobStreams
from .blobstream import ZeoBlob
from .clients import Tally
from .clients import said
from .threads import attempt


def _named_as_stock(record):
    record.name = 'ZEO.StorageServer'
    return True


# The log lines of sessions bear the name of stock's logger, under which
# operators look for them; stock's logger itself is not changed.
logger = quiet.get_logger('ZEO.StorageServer.session')
logger.addFilter(_named_as_stock)
# Of what stock does not log.
own_logger = quiet.get_logger(__name__)

# Iterators that one client may have open: for one more, the least recently
# used is closed.
MOST_ITERATORS = 100


class Session(ZEOStorage):

    #: What its client may call when it has registered.
    OFFERED = calls.REGISTERED
    service = None
    _readers = _slow_calls = questions = None
    _lines = ()
    #: A number that no other client of this run of the server has.
    number = None
    tally = None
    label = address = ''
    #: What a client of ours says of itself; None: any other client.
    version: str | None = None
    reads_locally: bool | None = None

    def __init__(self, server, read_only):
        super().__init__(server, read_only)
        self._ballots = {}   # of the transactions that are open, by their ids
        #: Of transactions that have failed: the errors that the client does
        #: not know yet.
        self._failures = {}

    # Coming and going

    def notify_connected(self, connection):
        self.connected = True

    def notify_disconnected(self):
        """Called whenever the connection has ended, for any reason."""
        self.connected = False
        self.server.close_conn(self)
        states = [ballot.state for ballot in self._ballots.values()]
        self.log(f'disconnected during a transaction ({states[0]})'
                 if states else 'disconnected')
        self.give_up_all()
        if self.service is not None:
            for line in self._lines:
                line.close()
            self.service.packs.left(self)
        iterators, self._iterators = self._iterators, {}
        for iterator in list(iterators.values()):
            _close(iterator)

    def end(self):
        """Disconnect it at once, and tell it nothing more."""
        self.connection.abort()

    def turn_away(self):
        """There are no descriptors for it."""
        self.end()

    def wake(self):
        """The client reads again: go on with its requests."""
        if self.service is not None:
            for line in self._lines:
                attempt(line.wake)

    def log(self, message, level=logging.INFO, exc_info=False):
        logger.log(level, '(%s) %s', self.log_label, message,
                   exc_info=exc_info, stacklevel=2)

    def register(self, storage_id, read_only):
        result = super().register(storage_id, read_only)
        self.connection.registered()
        return result

    def setup_delegation(self):
        """A hook of stock's `register`.  (Stock delegates to the storage; we
        do not.)"""
        self.service = service = self.server.services[self.storage_id]
        self.kept = BytesInMemory()
        self.address = self.log_label.text
        self.number = next(self.server.numbers)
        self.tally = Tally()
        account = self.connection.account
        self._readers = service.readers.line(account)
        self._slow_calls = service.slow.line(account, at_once=1)
        self.questions = service.questions.line(account, at_once=1)
        self._lines = self._readers, self._slow_calls, self.questions
        self._streams = BlobStreams(self.connection, self._readers)
        if not hasattr(self.storage, 'record_iternext'):
            self.record_iternext = None

    @property
    def name(self):
        """Label and address."""
        return f'{self.label} {self.address}'.strip()

    def set_client_label(self, label):
        self.label = said(label)
        self.log_label.text = self.name

    def lastTransaction(self):
        return self.service.last_tid

    def tpc_transaction(self):
        return self.storage.tpc_transaction()

    def get_info(self):
        info = super().get_info()
        info['supports_record_iternext'] = self.record_iternext is not None
        return info

    # Reads

    def loadBefore(self, oid, tid):
        self.stats.loads += 1
        self.tally.loads += 1
        if self.service.load_cached:
            try:
                found = self.service.load_cached(oid, tid)
                self.service.figures.loads_from_memory += 1
                return found
            except BlockingIOError:
                pass  # the record is not cached
        self.service.figures.loads_from_disk += 1
        answer = answers.Load(
            self.connection, self.connection.outbox.begin_load)
        self._readers.submit(answer.done, self.storage.loadBefore, oid, tid)
        return answer

    def _read(self, method, *arguments):
        answer = answers.Read(self.connection)
        self._readers.submit(answer.done, method, *arguments)
        return answer

    def _slow(self, method, *arguments):
        answer = answers.Read(self.connection)
        self._slow_calls.submit(answer.done, method, *arguments)
        return answer

    def loadSerial(self, oid, serial):
        return self._read(self.storage.loadSerial, oid, serial)

    def getTid(self, oid):
        return self._read(self.storage.getTid, oid)

    def history(self, oid, size=1):
        if oid is None:
            raise POSKeyError(oid)
        size = min(size, listing.MOST_ENTRIES)
        ask = functools.partial(self.storage.history, oid, size)
        if self.service.own_publishing:
            return self._slow(listing.listed, ask, 0, size)
        return self._slow(ask)

    def record_iternext(self, next=None):
        return self._read(self.storage.record_iternext, next)

    def undoLog(self, first, last):
        return self.undoInfo(first, last, None)

    def undoInfo(self, first, last, spec):
        if not getattr(self.storage, 'supportsUndo', bool)():
            return ()
        last = listing.limited(first, last)
        if self.service.own_publishing:  # a filter may end a list of ours
            return self._slow(
                listing.listed, functools.partial(
                    self.storage.undoLog, 0, sys.maxsize), first, last, spec)
        return self._slow(self.storage.undoInfo, first, last, spec)

    def getInvalidations(self, tid):
        known = self.service.invalidations_since(tid)
        if known is not None or not self.service.young_enough(tid):
            return known
        # Later announcements leave after the answer.
        answer = answers.Load(
            self.connection, self.connection.outbox.reserve)
        self._slow_calls.submit(
            answer.done, self.service.look_up_invalidations, tid,
            self.service.last_tid)
        return answer

    # (No locks: the slow calls of a client run one at a time.)

    def iterator_start(self, start, stop):
        return self._slow(
            self._start_one, super().iterator_start, start, stop)

    def iterator_record_start(self, txn_iid, tid):
        return self._slow(
            self._start_one, super().iterator_record_start, txn_iid, tid)

    def _start_one(self, start, *arguments):
        self._make_room()
        iterator_id = start(*arguments)
        self._iterators[iterator_id] = _Shown(self._iterators[iterator_id])
        return iterator_id

    def _make_room(self):
        """Close the oldest: a stock client tells us only when it commits which
        iterators it has dropped."""
        while len(self._iterators) >= MOST_ITERATORS:
            self._end_iterators([next(iter(self._iterators))])

    def iterator_next(self, iid):
        return self._slow(self._next_of, super().iterator_next, iid)

    def iterator_record_next(self, iid):
        return self._slow(self._next_of, super().iterator_record_next, iid)

    def _next_of(self, method, iid):
        # It becomes the most recently used.  KeyError, as in stock, if it is
        # not open.
        self._iterators[iid] = self._iterators.pop(iid)
        return method(iid)

    def iterator_gc(self, iids):
        if not all(map(calls.is_number, iids)):
            raise TypeError('iterator_gc with something that is no number')
        self.connection.unanswered += 1
        self._slow_calls.submit(
            lambda result, error: self.connection.answered(),
            self._end_iterators, iids)

    def _end_iterators(self, iids):
        for iid in iids:
            self._txn_iterators_last.pop(iid, None)
            _close(self._iterators.pop(iid, None))

    def sendBlob(self, oid, serial):
        answer = answers.Read(self.connection)
        self._streams.add(ZeoBlob(
            self.connection, self.storage.loadBlob, oid, serial, answer.done))
        return answer

    def new_oids(self, n=100):
        if self.read_only:
            raise ReadOnlyError()
        n = max(1, min(n, 100))
        return self._read(
            lambda: [self.storage.new_oid() for _ in range(n)])

    # Transactions, also those of a client that has several at a time

    def begin(self, id, *described):
        self._ballots[id] = Ballot(
            self.service.committer.storage, self, id, *described)
        self.stats.active_txns += 1

    def do(self, id, step, *arguments):
        """Carry out a step of this transaction before its vote.  An error
        aborts it, and its client gets the error when it asks."""
        try:
            step(*arguments)
        except Exception as error:
            error = self._of_the_disk(error)
            own_logger.error('%s: a transaction failed before its vote: %r',
                             self.log_label, error,
                             exc_info=calls.traceback_of(error))
            self._fail(id, error)

    def _of_the_disk(self, error):
        if not isinstance(error, OSError) or isinstance(
                error, FileNotFoundError):  # of a blob that a peer named
            return error
        directory = error.filename or self.storage.temporaryDirectory()
        return StorageError(
            'the server could not keep what this transaction stores on the'
            f' disk of {directory}: {error}')

    def _fail(self, id, error):
        # (The traceback would keep what was stored.)
        self._failures[id] = error.with_traceback(None)
        if id in self._ballots:
            self.give_up(self._ballots[id])

    def timed_out(self, ballot):
        self.log('Transaction timeout after'
                 f' {self.service.timeout} seconds', logging.CRITICAL)
        self._fail(ballot.id, NotFinishedInTime(
            'this transaction is not committed: it was not finished within the'
            f' transaction-timeout of the server, {self.service.timeout}'
            ' seconds'))

    def give_up(self, ballot):
        """Abort what can still be aborted."""
        self.over(ballot)
        self.service.committer.abort(ballot)

    def give_up_all(self):
        for ballot in list(self._ballots.values()):
            attempt(self.give_up, ballot)

    def over(self, ballot):
        del self._ballots[ballot.id]
        self.stats.active_txns -= 1

    def settled(self, ballot):
        """Nothing to note: a stock client cannot ask later."""

    def finish(self, ballot, number, resolved=b''):
        """The answer has this number, and names what was resolved."""
        self.service.committer.finish(ballot, functools.partial(
            self._finished, ballot, number, resolved))

    def _finished(self, ballot, number, resolved, tid, error):
        """If there is a tid, the transaction is being announced."""
        connection, speech = self.connection, self.connection.speech
        if tid is None:
            answer = speech.error(number, error)
            self.over(ballot)
            # If that has failed, the transaction is still there: without an
            # answer to it, a goodbye would be a false promise.
            connection.outbox.send(answer)
            return
        self.over(ballot)
        self.tally.commits += 1
        self.stats.commits += 1
        self.stats.conflicts_resolved += ballot.conflicts_resolved
        if error is not None:
            answer = (speech.invalidation(tid, ballot.oids)
                      + speech.error(number, error))
        else:
            answer = speech.done(
                number, tid, self.service.announced_size, resolved)
        connection.gathers_once_more = True
        connection.outbox.announce(answer)

    # Its transaction

    def tpc_begin(self, id, user, description, ext, tid=None, status=' '):
        if self.read_only:
            raise ReadOnlyError()
        if id in self._ballots:
            self.log(f'duplicate tpc_begin({id!r})')
            return
        if self._ballots:
            raise StorageTransactionError(
                'Multiple simultaneous tpc_begin requests from one client.')
        self._failures.clear()
        self.do(id, self.begin, id, user, description, ext, tid, status)

    def store(self, name, arguments):
        """A call that stores something.  A part of a blob does not name its
        transaction; of any other call, its id is the last argument."""
        used = calls.OF_A_TRANSACTION[name]
        id, = arguments[used:] or [
            *self._ballots, *self._failures, None][:1]
        if id in self._failures:
            return
        ballot = self._ballot_of(id, BEGUN)
        self.do(id, getattr(ballot, name), *arguments[:used])

    def _ballot_of(self, id, state):
        ballot = self._ballots.get(id)
        if ballot is None:
            raise StorageTransactionError(
                'this transaction is over, or was not begun')
        if ballot.state is not state:
            raise StorageTransactionError(f'Already {ballot.state}')
        return ballot

    def vote(self, id):
        return self._ask(id, BEGUN, self._vote)

    def tpc_finish(self, id):
        return self._ask(id, VOTED, lambda ballot, answer: self.finish(
            ballot, answer.message_id))

    def _ask(self, id, state, ask):
        """Ask for a vote or a finish, unless the transaction has failed."""
        answer = answers.Later(self.connection)
        if id in self._failures:
            self._tell(answer, self._failures.pop(id))
        else:
            ask(self._ballot_of(id, state), answer)
        return answer

    def _vote(self, ballot, answer):
        self.service.committer.vote(
            ballot, functools.partial(self._voted, ballot, answer))

    def _tell(self, answer, error):
        if isinstance(error, NotFinishedInTime | LeaderChanged):
            # A stock client has these errors from the end of its connection
            # alone.  (It ends its connection itself after any error of a
            # finish.)
            self.end()
        else:
            answer.done(None, error)

    def _voted(self, ballot, answer, result, error):
        if error is None:
            answer.done(result, None)
        else:
            self.over(ballot)
            self._tell(answer, error)

    def tpc_abort(self, id):
        self._failures.pop(id, None)
        if id in self._ballots:
            self.stats.aborts += 1
            self.give_up(self._ballots[id])

    # Packs: as in stock, a client that only reads may also call `pack`

    def pack(self, pack_time, wait=1):
        answer = answers.Later(self.connection) if wait else None
        self.service.packs.pack(self, pack_time, answer)
        return answer


class _Shown:
    """Transactions, whose extensions are decoded without calling anything, or
    records."""

    def __init__(self, found):
        self._found = found

    def __iter__(self):
        return self

    def __next__(self):
        found = next(self._found)
        pickle = getattr(found, 'extension_bytes', None)
        if pickle is not None:  # else the storage gives a dictionary
            found.extension = extension.shown(pickle)
        return found

    def close(self):
        _close(self._found)


def _close(iterator):
    close = getattr(iterator, 'close', None)
    if close is not None:
        close()
