"""What one stock client may ask for.

The methods are those of the ZEO protocol, called in the event loop.  A call
that may wait for a disk or for a lock is given to a thread, and answered
later.

A client has one transaction at a time.  Its ballot has the state.  It may fail
while its client waits for no answer.  Then it is aborted, what the client
still stores in it is ignored, and the client gets the error when it next asks
for a vote or a finish.

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
from .ballot import BadFileName
from .ballot import Ballot
from .ballot import BytesInMemory
from .ballot import OutOfPlace
from .blobstream import BlobStreams
from .blobstream import ZeoBlob
from .clients import Tally
from .clients import said
from .door import CLIENT
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
    #: What its connection may need.
    DESCRIPTORS = CLIENT
    service = None
    #: None: only a client of ours can ask about a lost answer.
    commit_id = None
    _readers = _slow_calls = questions = None
    _lines = ()
    #: Its transaction, and the answer that the client waits for.
    _ballot = _answer = None
    #: The id of a transaction that has failed, and the error that its client
    #: does not know yet.
    _failed = None, None
    #: A number that no other client of this run of the server has.
    number = None
    tally = None
    label = address = ''
    #: What a client of ours says of itself; None: any other client.
    version: str | None = None
    reads_locally: bool | None = None

    # Coming and going

    def notify_connected(self, connection):
        self.connected = True

    def notify_disconnected(self):
        """Called whenever the connection has ended, for any reason."""
        self.connected = False
        self.server.close_conn(self)
        if self._ballot is None:
            self.log('disconnected')
        else:
            self.log(f'disconnected during a transaction'
                     f' ({self._ballot.state})')
            self._give_up()
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

    def get_size_info(self):
        return self.service.size_info()

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

    # The transaction

    def tpc_begin(self, id, user, description, ext, tid=None, status=' '):
        if self.read_only:
            raise ReadOnlyError()
        if self._ballot is not None:
            if self.transaction.id == id:
                self.log(f'duplicate tpc_begin({id!r})')
                return
            raise StorageTransactionError(
                'Multiple simultaneous tpc_begin requests from one client.')
        self._failed = None, None
        try:
            self._ballot = Ballot(
                self.service.committer.storage, self, id, user, description,
                ext, tid, status, self.client_conflict_resolution)
        except Exception as error:
            self._note_failure(id, error)
            return
        self.transaction = self._ballot.transaction
        self.stats.active_txns += 1

    def store(self, name, arguments):
        """A call that stores something.  A part of a blob does not name its
        transaction; of any other call, its id is the last argument."""
        used = calls.OF_A_TRANSACTION[name]
        failed, _ = self._failed
        if len(arguments) > used:
            id = arguments[used]
            if id == failed:
                return
            if self._ballot is None or self.transaction.id != id:
                self._check_tid(id, exc=StorageTransactionError)
        elif failed is not None:
            return
        elif self._ballot is None:
            raise StorageTransactionError('a blob without a transaction')
        if self._ballot.state is not BEGUN:
            raise OutOfPlace(f'Already {self._ballot.state}')
        try:
            getattr(self._ballot, name)(*arguments[:used])
        except (OutOfPlace, BadFileName):
            raise
        except Exception as error:
            self._fail(error)

    def _fail(self, error):
        """Abort it."""
        if isinstance(error, OSError) and not isinstance(
                error, FileNotFoundError):  # of a blob that a peer named
            directory = error.filename or self.storage.temporaryDirectory()
            error = StorageError(
                'the server could not keep what this transaction stores'
                f' on the disk of {directory}: {error}')
        self._note_failure(self.transaction.id, error)
        self._give_up()

    def _note_failure(self, id, error):
        """Its client gets the error when it asks."""
        own_logger.error('%s: a transaction failed before its vote: %r',
                         self.log_label, error,
                         exc_info=calls.traceback_of(error))
        # (The traceback would keep what was stored.)
        self._failed = id, error.with_traceback(None)

    def vote(self, id):
        return self._ask(id, BEGUN, self.service.committer.vote, self._voted)

    def tpc_finish(self, id):
        return self._ask(
            id, VOTED, self.service.committer.finish, self._finished)

    def _ask(self, id, state, ask, done):
        """Ask for a vote or a finish, unless the transaction has failed; raise
        unless it has this id and this state."""
        answer = answers.Later(self.connection)
        failed, error = self._failed
        if failed is not None and failed == id:
            self._failed = None, None
            self._tell(answer, error)
            return answer
        if self._ballot is None or self.transaction.id != id:
            self._check_tid(id, exc=StorageTransactionError)
        if self._ballot.state is not state:
            raise StorageTransactionError(f'Already {self._ballot.state}')
        self._answer = answer
        ask(self._ballot, done)
        return answer

    def _tell(self, answer, error):
        if isinstance(error, NotFinishedInTime | LeaderChanged):
            # A stock client has these errors from the end of its connection
            # alone.  (It ends its connection itself after any error of a
            # finish.)
            self.end()
        else:
            answer.done(None, error)

    def _voted(self, result, error):
        answer = self._answer
        if error is None:
            answer.done(result, None)
        else:
            self._forget()
            self._tell(answer, error)

    def _finished(self, tid, error):
        """If there is a tid, the transaction is being announced."""
        connection, answer, ballot = (
            self.connection, self._answer, self._ballot)
        self._forget()
        if tid is None:
            answer.done(None, error)
            return
        self.count_commit(ballot)
        if error is not None:
            first = connection.speech.invalidation(tid, ballot.oids)
        else:
            first = connection.speech.sizes(self.service.announced_size)
        connection.gathers_once_more = True
        connection.outbox.announce(first + answer.frame(tid, error))

    def count_commit(self, ballot):
        """A transaction of this client has been committed."""
        self.tally.commits += 1
        self.stats.commits += 1
        self.stats.conflicts_resolved += ballot.conflicts_resolved

    def tpc_abort(self, id):
        if id == self._failed[0]:
            self._failed = None, None
        elif self._check_tid(id):
            self.stats.aborts += 1
            self._give_up()

    def _give_up(self):
        """Abort what can still be aborted."""
        ballot = self._ballot
        self._forget()
        self.service.committer.abort(ballot)

    def _forget(self):
        self._ballot = self.transaction = self._answer = None
        self.stats.active_txns -= 1

    # What its ballot wants of it

    @property
    def session(self):
        return self

    def timed_out(self, ballot):
        self._failed = self.transaction.id, self.too_late()
        self._give_up()

    def too_late(self):
        """Log that a transaction was not finished in time; return the error
        for its client."""
        self.log('Transaction timeout after'
                 f' {self.service.timeout} seconds', logging.CRITICAL)
        return NotFinishedInTime(
            'this transaction is not committed: it was not finished within the'
            f' transaction-timeout of the server, {self.service.timeout}'
            ' seconds')

    def enter_files(self, ballot):
        """Their descriptors were counted when the client registered."""

    def files_closed(self, ballot):
        """They stay counted until the client goes."""

    def finished(self, tid):
        """Nothing to note: a stock client cannot ask later."""

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
