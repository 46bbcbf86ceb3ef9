"""What one client may ask for.

The methods are those of the ZEO protocol, called in the event loop.  A call
that may wait for a disk or for a lock is given to a thread, and answered
later.

Left to others: the transaction of a client (onetransaction).
"""

import functools
import logging
import os
import sys
from typing import Any

from ZEO.StorageServer import ZEOStorage
from ZODB.POSException import POSKeyError
from ZODB.POSException import ReadOnlyError

from .. import wire
from ..format import extension
from ..wire import commits
from ..wire import sessions
from . import answers
from . import listing
from . import quiet
from .ballot import Kept
from .blobstream import BlobStreams
from .clients import Shown
from .hosting import replica_of
from .mailbox import attempt
from .onetransaction import OneTransaction


def _named_as_stock(record):
    record.name = 'ZEO.StorageServer'
    return True


# The log lines of sessions bear the name of stock's logger, under which
# operators look for them; stock's logger itself is not changed.
logger = quiet.get_logger('ZEO.StorageServer.session')
logger.addFilter(_named_as_stock)

# Iterators that one client may have open: for one more, the least recently
# used is closed.
MOST_ITERATORS = 100


class Session(OneTransaction, Shown, ZEOStorage):

    service = None
    #: The connection on which transactions are announced to it: its own one,
    #: or that of its commit channel.
    announced_on: Any
    #: The name by which the client may open a commit channel.
    ticket = None
    #: None: only a client with a commit channel can ask about a lost answer.
    commit_id = None
    _readers = _slow_calls = questions = None
    _lines = ()

    # Coming and going

    def notify_connected(self, connection):
        self.connected = True
        self.call_soon_threadsafe = connection.call_soon_threadsafe

    def notify_disconnected(self):
        """Called whenever the connection has ended, for any reason."""
        self.connected = False
        self.server.close_conn(self)
        self.follow()
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
        """Disconnect it at once, and tell it nothing more.

        First ends the connection that brings the announcements.  A client that
        has missed a transaction must not hear of a later one: when it connects
        again, it asks only for those after the last one that it knows of.
        """
        self.server.tickets.pop(self.ticket, None)
        self.end_tally()
        self.announced_on.abort()
        self.connection.abort()

    def follow(self):
        """One of its connections has ended: end the other one."""
        if not self.server.said_farewell:  # else its last answers still leave
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
        self.kept = Kept()
        self.begin_tally()
        account = self.connection.account
        self._readers = service.readers.line(account)
        self._slow_calls = service.slow.line(account, at_once=1)
        #: For its commit channel.
        self.questions = service.questions.line(account, at_once=1)
        self._lines = self._readers, self._slow_calls, self.questions
        self._streams = BlobStreams(self.connection, self._readers)
        if not hasattr(self.storage, 'record_iternext'):
            self.record_iternext = None

    def alive(self):
        """For a client that has heard nothing for a while: the answer leaves
        at once, even if a `ping` would have to wait in the outbox."""
        return answers.AtOnce(lambda answer: answer.done(None, None))

    def lastTransaction(self):
        return self.service.last_tid

    def tpc_transaction(self):
        return self.storage.tpc_transaction()

    def get_info(self):
        info = super().get_info()
        info['supports_record_iternext'] = self.record_iternext is not None
        info['fsyncstorage'] = about = {
            'instance': self.server.instance, 'channel': wire.VERSION,
            'mark': self.mark, 'alive': wire.ALIVE,
            'lost': getattr(self.storage, 'may_have_lost', False)}
        handout = self.service.handout
        local = None if handout is None else handout.about
        if local is not None:
            about['local'] = local
        if self.service.packs.are_offered:
            about['packs'] = wire.PACKS
        if not self.read_only:
            about['ticket'] = self._ticket()
            if (replica := replica_of(self.storage)) is not None:
                about['log'] = replica.log_identity
        return info

    def _ticket(self):
        if self.ticket is None:
            self.ticket = os.urandom(sessions.TICKET)
            self.server.tickets[self.ticket] = self
        return self.ticket

    def move(self, connection):
        """From now on, transactions are announced on this connection."""
        self.announced_on = connection
        self.connection.outbox.announce(
            self.connection.async_frame('info', {commits.MOVED: True}))

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
        return answers.Load(lambda load: self._readers.submit(
            load.done, self.storage.loadBefore, oid, tid))

    def _read(self, method, *arguments):
        return answers.Read(lambda later: self._readers.submit(
            later.done, method, *arguments))

    def _slow(self, method, *arguments):
        return answers.Read(lambda later: self._slow_calls.submit(
            later.done, method, *arguments))

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
        return answers.InPlace(lambda answer: self._slow_calls.submit(
            answer.done, self.service.look_up_invalidations, tid,
            self.service.last_tid))

    # (No locks: the slow calls of a client run one at a time.)

    def iterator_start(self, start, stop):
        return self._slow(self._start_iterator, start, stop)

    def _start_iterator(self, start, stop):
        self._make_room()
        iterator_id = super().iterator_start(start, stop)
        self._iterators[iterator_id] = _Shown(self._iterators[iterator_id])
        return iterator_id

    def _make_room(self):
        """Close the oldest: a stock client tells us only when it commits which
        iterators it has dropped."""
        while len(self._iterators) >= MOST_ITERATORS:
            self._end_iterators([next(iter(self._iterators))])

    def iterator_next(self, iid):
        return self._slow(self._next_of, super().iterator_next, iid)

    def iterator_record_start(self, txn_iid, tid):
        return self._slow(self._start_record_iterator, txn_iid, tid)

    def _start_record_iterator(self, txn_iid, tid):
        self._make_room()
        return super().iterator_record_start(txn_iid, tid)

    def iterator_record_next(self, iid):
        return self._slow(self._next_of, super().iterator_record_next, iid)

    def _next_of(self, method, iid):
        # It becomes the most recently used.  KeyError, as in stock, if it is
        # not open.
        self._iterators[iid] = self._iterators.pop(iid)
        return method(iid)

    def iterator_gc(self, iids):
        self.connection.unanswered += 1
        self._slow_calls.submit(
            lambda result, error: self.connection.answered(),
            self._end_iterators, iids)

    def _end_iterators(self, iids):
        for iid in iids:
            self._txn_iterators_last.pop(iid, None)
            _close(self._iterators.pop(iid, None))

    def sendBlob(self, oid, serial):
        return answers.Read(lambda later: self._streams.add(
            self.storage.loadBlob, oid, serial, later.done))

    def new_oids(self, n=100):
        if self.read_only:
            raise ReadOnlyError()
        n = max(1, min(n, 100))
        return self._read(
            lambda: [self.storage.new_oid() for _ in range(n)])

    # Packs: as in stock, a client that only reads may also call `pack`

    def pack(self, pack_time, wait=1):
        answer = self.service.packs.pack(self, pack_time)
        return answer if wait else None

    def pack_status(self):
        return self.service.packs.of_storage.status()

    def pack_cancel(self):
        self._refuse_a_reader()
        self.service.packs.of_storage.cancel()

    def pack_forecast(self, pack_time):
        self._refuse_a_reader()
        return self.service.packs.forecast(self, pack_time)

    def _refuse_a_reader(self):
        if self.read_only:
            raise ReadOnlyError()


class _Shown:
    """Transactions whose extensions are decoded without calling anything."""

    def __init__(self, transactions):
        self._transactions = transactions

    def __iter__(self):
        return self

    def __next__(self):
        transaction = next(self._transactions)
        pickle = getattr(transaction, 'extension_bytes', None)
        if pickle is not None:  # else the storage gives a dictionary
            transaction.extension = extension.shown(pickle)
        return transaction

    def close(self):
        _close(self._transactions)


def _close(iterator):
    close = getattr(iterator, 'close', None)
    if close is not None:
        close()
