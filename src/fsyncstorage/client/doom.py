"""Makes transactions fail that have seen what the server then lost.

Under `none` and `interval` a server can come back without the end of its data.
A transaction that began before may have read, or may find in its cache, what
the server no longer has.  Its further reads would show another state; a commit
would mix the two, and could refer to an object that is lost, or whose oid now
belongs to another object.  So the transaction is *doomed*: it can neither read
on (ReadConflictError) nor commit (ConflictError).  Both are errors after which
an application retries, and the next transaction of the same connection is like
any other.

The storage knows a transaction by two things only: the tid before which it
reads, and the MVCCAdapterInstance of ZODB by which its connection calls.
Both are needed:

- *Calls from now on* are refused by the instance: it gets methods of its own
  in place of those of its class, until the connection asks for the
  invalidations of its next transaction.  This is the only way to know which
  transaction a commit belongs to.
- A load that is *under way*, waiting for the server, was called before that.
  It is refused when it returns, by the tid before which it reads.  The tid is
  compared by the identity of the object that the instance passes (`refuses`),
  since a historical connection, or a later transaction, may read before an
  equal tid.

The order of the steps is in docs/internals/session.rst.  A transaction that
begins between the first two of them is doomed, too, which does no harm: it is
retried.

The instances are found through the storage's database: an MVCCAdapter, or a
wrapper around this storage that has its own database as `db` (those of
ZODB's tests and zc.zlibstorage do).

Locks: the adapter's lock is taken before `_lock`, and no lock after it.

The underscore names of ZODB were read from ZODB 6.4; tests/client
and tests/upstream fail when they move.
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
        #: How often `fall` was called.
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
        # Otherwise an instance's next transaction would begin at its old tid.
        adapter.invalidate(last_tid, ())
        with adapter._lock, self._lock:
            for instance in adapter._instances:
                self._doom(instance)
                self._start_of[instance] = instance._start
            self._starts_changed()

    def refuses(self, tid: bytes) -> bool:
        """Is this the object, and not only an equal tid, that a doomed
        transaction reads before?"""
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
        """The instance's transaction is over, with all its loads."""
        with self._lock:
            for name in *READS, *WRITES, BEGINS:
                vars(instance).pop(name, None)
            self._start_of.pop(instance, None)
            self._starts_changed()

    def _starts_changed(self):
        # The tids are kept alive, so that no other object gets their id().
        self._starts = {id(start): start for start in self._start_of.values()}


def _refuse_to_read(oid, *_):
    raise ReadConflictError(REASON, oid=oid)


def _refuse_to_write(transaction):
    raise ConflictError(REASON)


def _adapter(db):
    """The MVCCAdapter; None if no ZODB connections use the storage."""
    while db is not None and not isinstance(db, MVCCAdapter):
        db = getattr(db, 'db', None)
    return db
