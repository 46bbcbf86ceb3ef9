"""The transaction of a client of the ZEO protocol, which has one at a time.

Its ballot has the state.  A transaction may fail while its client waits for
no answer.  Then it is aborted, what the client still stores in it is ignored,
and the client gets the error when it next asks for a vote or a finish.

All of it runs in the event loop.  Left to others: what a transaction stores
(storing), its states (ballot), the client's other calls (session), clients
that have several transactions at a time (commitchannel).
"""

import logging
from typing import Any

from ZODB.POSException import ReadOnlyError
from ZODB.POSException import StorageError
from ZODB.POSException import StorageTransactionError

from ..errors import LeaderChanged
from ..errors import NotFinishedInTime
from . import answers
from . import calls
from . import quiet
from .ballot import BEGUN
from .ballot import VOTED
from .ballot import Ballot
from .storing import BadFileName
from .storing import OutOfPlace
from .storing import Storing

logger = quiet.get_logger(__name__)

STATUSES = (' ', 'p')


class OneTransaction:
    """Part of a session."""

    transaction: Any
    _ballot = _storing = _answer = None
    #: The id of a transaction that has failed, and the error that its client
    #: does not know yet.
    _failed = None, None

    def tpc_begin(self, id, user, description, ext, tid=None, status=' '):
        if self.read_only:
            raise ReadOnlyError()
        if self.announced_on is not self.connection:
            raise StorageTransactionError(
                'The transactions of this client have a channel.')
        if self._ballot is not None:
            if self.transaction.id == id:
                self.log(f'duplicate tpc_begin({id!r})')
                return
            raise StorageTransactionError(
                'Multiple simultaneous tpc_begin requests from one client.')
        if status not in STATUSES:
            raise ValueError(f'a transaction of status {status!r}')
        self._failed = None, None
        try:
            self._ballot = Ballot(
                self.service.committer, self, id, user, description, ext, tid,
                status, self.client_conflict_resolution)
        except Exception as error:
            self._note_failure(id, error)
            return
        self._storing = Storing(self, self._ballot)
        self.transaction = self._ballot.transaction
        self.stats.active_txns += 1

    # What it stores

    def deleteObject(self, oid, serial, id):
        self._store(id, 'deleteObject', oid, serial)

    def storea(self, oid, serial, data, id):
        self._store(id, 'storea', oid, serial, data)

    def checkCurrentSerialInTransaction(self, oid, serial, id):
        self._store(id, 'checkCurrentSerialInTransaction', oid, serial)

    def restorea(self, oid, serial, data, prev_txn, id):
        self._store(id, 'restorea', oid, serial, data, prev_txn)

    def undoa(self, trans_id, id):
        self._store(id, 'undoa', trans_id)

    def storeBlobStart(self):
        self._store_part('storeBlobStart')

    def storeBlobChunk(self, chunk):
        self._store_part('storeBlobChunk', chunk)

    def storeBlobEnd(self, oid, serial, data, id):
        self._store(id, 'storeBlobEnd', oid, serial, data)

    def storeBlobShared(self, oid, serial, data, filename, id):
        self._store(id, 'storeBlobShared', oid, serial, data, filename)

    def _store(self, id, name, *arguments):
        if id != self._failed[0]:
            self._check_tid(id, exc=StorageTransactionError)
            self._do(name, *arguments)

    def _store_part(self, name, *arguments):
        """Of a blob; the call does not name its transaction."""
        if self._failed[0] is None:
            if self._storing is None:
                raise StorageTransactionError('a blob without a transaction')
            self._do(name, *arguments)

    def _do(self, name, *arguments):
        try:
            getattr(self._storing, name)(*arguments)
        except (OutOfPlace, BadFileName):
            raise
        except Exception as error:
            if isinstance(error, OSError) and not isinstance(
                    error, FileNotFoundError):  # of a blob that a peer named
                directory = (
                    error.filename or self.storage.temporaryDirectory())
                error = StorageError(
                    'the server could not keep what this transaction stores'
                    f' on the disk of {directory}: {error}')
            self._fail(error)

    def _note_failure(self, id, error):
        """Its client gets the error when it asks."""
        logger.error('%s: a transaction failed before its vote: %r',
                     self.log_label, error,
                     exc_info=calls.traceback_of(error))
        # (The traceback would keep what was stored.)
        self._failed = id, error.with_traceback(None)

    def _fail(self, error):
        """Abort it."""
        self._note_failure(self.transaction.id, error)
        self._give_up()

    # Its end

    def vote(self, id):
        return self._ask(
            id, BEGUN, lambda later: self._ballot.vote(self._voted))

    def _ask(self, id, state, ask):
        """Ask the ballot, unless the transaction has failed; raise unless it
        has this id and this state."""
        failed, error = self._failed
        if failed is not None and failed == id:
            self._failed = None, None
            return answers.Later(lambda later: self._tell(later, error))
        self._check_tid(id, exc=StorageTransactionError)
        if self._ballot.state is not state:
            raise StorageTransactionError(f'Already {self._ballot.state}')
        self._answer = answers.Later(ask)
        return self._answer

    def _tell(self, later, error):
        if isinstance(error, NotFinishedInTime):
            # A stock client has this error from the end of its connection
            # alone.  (It ends its connection itself after any error of a
            # finish.)
            self.end()
        else:
            later.done(None, error)

    def _voted(self, result, error):
        answer = self._answer
        if error is not None:
            self._forget()
        if isinstance(error, LeaderChanged):
            # Likewise: only behind the end of a connection it tries again.
            self.end()
        else:
            answer.done(result, error)

    def tpc_finish(self, id):
        return self._ask(
            id, VOTED, lambda later: self._ballot.finish(self._finished))

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
            frames = connection.async_frame(
                'invalidateTransaction', tid, ballot.oids
            ) + connection.error_frame(answer.msgid, error)
        else:
            frames = connection.async_frame(
                'info', self.service.announced_size
            ) + connection.reply_frame(answer.msgid, tid)
        connection.gathers_once_more = True
        connection.outbox.announce(frames)

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
        ballot.abort()

    def _forget(self):
        self._ballot = self._storing = self.transaction = self._answer = None
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
        """Nothing to note: without a channel, a client cannot ask later."""
