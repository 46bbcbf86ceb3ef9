"""Transactions that have seen what the server lost: they come to nothing.

Under `none` and `interval` a server can come back without the end of its data.
A transaction that began before has read, or will find in its cache, what is
there no more.  What it reads from then on is of another state; what it commits
would mix the two, and an object that it refers to may be lost, and its oid
given to another one.  So it is *doomed*: it reads no more (ReadConflictError),
and does not commit (ConflictError).  Both are errors after which an
application tries again, and the next transaction of the same connection is
like any other.

A transaction is known to the storage by two things only: the tid before which
it reads, and the MVCCAdapterInstance of ZODB by which its connection calls.
Both are needed:

- what is *called* from now on is refused by the instance: methods of its own
  stand before those of its class, until the connection asks for the
  invalidations of its next transaction.  This is the only way to know whose
  commit it is;
- what is *under way*, a load that waits for the server, was called before
  that.  It is refused when it returns, by the tid that it reads before.  Each
  instance makes a bytes object of its own of that, when a transaction begins,
  and passes this one with each load.  So it is known by what it *is*
  (`refuses`): a historical connection, or a transaction to come, may read
  before an equal one, and instances that lie idle stay doomed for long.

The order: first the client's cache is empty, and at the last transaction that
the server has (`link`), and the connections shall forget the objects that they
have in memory; then every instance is doomed (`fall`); then the new connection
can be used.  A transaction that begins between the first two is doomed, too,
which does no harm: it is tried again.  One that begins afterwards gets the new
state.

The instances are found by way of the storage's database: an MVCCAdapter, or a
wrapper around this storage that has its own database as `db` (those of
ZODB's tests and zc.zlibstorage do).

Locks: `_lock` is a leaf, but for that of the adapter, which comes before it.

The underscore names of ZODB were read from ZODB 6.4;
tests/upstream/test_stock_hooks.py fails when they move.
"""

import threading
import weakref
from typing import Any

from ZODB.mvccadapter import MVCCAdapter
from ZODB.POSException import ConflictError
from ZODB.POSException import ReadConflictError

REASON = ('the server has lost what this transaction has seen; the next one'
          ' goes on')

READS = 'load', 'loadBlob', 'openCommittedBlobFile'
# The vote, too: the begin of this commit may have been called before.
WRITES = 'tpc_begin', 'tpc_vote'
BEGINS = 'poll_invalidations'


class Doom:

    def __init__(self) -> None:
        #: How often it fell.
        self.falls = 0
        # The tids that doomed transactions read before, by their id().
        self._starts: dict[int, bytes] = {}
        # Of doomed instances.
        self._start_of: weakref.WeakKeyDictionary[Any, bytes]
        self._start_of = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def fall(self, db: Any, last_tid: bytes) -> None:
        """Doom all transactions; the server's last one is `last_tid`."""
        self.falls += 1
        adapter = _adapter(db)
        if adapter is None:
            return
        # Else an instance begins where it began before.
        adapter.invalidate(last_tid, ())
        with adapter._lock, self._lock:
            for instance in adapter._instances:
                self._doom(instance)
                self._start_of[instance] = instance._start
            self._starts_changed()

    def refuses(self, tid: bytes) -> bool:
        """Is it what a doomed transaction reads before?"""
        return id(tid) in self._starts

    def _doom(self, instance):
        def begin():
            self._lift(instance)
            return instance.poll_invalidations()

        vars(instance).update(
            dict.fromkeys(READS, _refuse_to_read)
            | dict.fromkeys(WRITES, _refuse_to_write)
            | {BEGINS: begin})

    def _lift(self, instance):
        """Its transaction is over, and so is all that it was waiting for."""
        with self._lock:
            for name in *READS, *WRITES, BEGINS:
                vars(instance).pop(name, None)
            self._start_of.pop(instance, None)
            self._starts_changed()

    def _starts_changed(self):
        # They are held: nothing else gets the id() of one.
        self._starts = {id(start): start for start in self._start_of.values()}


def _refuse_to_read(oid, *_):
    raise ReadConflictError(REASON, oid=oid)


def _refuse_to_write(transaction):
    raise ConflictError(REASON)


def _adapter(db):
    """None: the storage is used without ZODB's connections."""
    while db is not None and not isinstance(db, MVCCAdapter):
        db = getattr(db, 'db', None)
    return db
