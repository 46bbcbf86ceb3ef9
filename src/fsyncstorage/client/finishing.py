"""What a finish changes here, when its Done has arrived.

These changes are made by the thread that has the turn of the stream, in the
order of the stream.  They are also made when the thread that asked for the
finish was interrupted and no longer waits.  The connection of that thread does
not know that it has committed, and may read on: so it is told of the objects
of the commit, as it is of those of another client.

If the Done was lost with its stream, the client asks on its next stream
whether the transaction is committed (outcome).  By then, the client has heard
of its changes as if another client had made them: when the cache was verified,
or after that as an invalidation.  All connections were told, also the one that
commits.  So only `f` is left.  It is called in the order of the new stream:
after the invalidation of this transaction, and perhaps after later ones.  It
is not known then which conflicts the server has resolved, so the connection
that commits drops all objects that it has changed.

An error of `f` concerns only the committer: the transaction is kept, and
others are not disturbed.  But some connections may not have been told, so all
of them drop the objects that they hold.  Any other error leaves the cache half
changed.
"""

from ZODB.POSException import StorageError

from ..wire import PeerError
from ..wire import commits


class Finishing:

    #: If set, it is committed, even if the changes here have failed.
    tid = None
    #: The oids whose conflicts the server has resolved; None: not known here.
    resolved = None
    #: All changes here were made.
    is_complete = False
    #: The thread that has asked for it no longer waits.
    is_left = False
    #: `f` was called; it is called only once.
    _is_told = False
    #: What `f` has raised.
    _error = None

    def __init__(self, storage, cache, updates, f):
        self._storage = storage
        self._cache = cache
        # A list: another thread may need it when this one was interrupted.
        self._updates = list(updates)
        self._f = f

    def check(self):
        """Called when it is committed: raise what `f` has raised, if anything.
        """
        if self._error is not None:
            raise self._error

    def refuse_repeating(self, error):
        """Raise another error if it is committed: after this one, an
        application would retry."""
        if self.tid is not None:
            raise StorageError(
                f'it is committed, as {self.tid.hex()}, and after that:'
                f' {error!r}') from error

    def complete(self, done):
        """Make the changes; return what `f` has raised, or None."""
        self.resolved = done.oids
        self.tid = done.tid
        if done.oids:
            self._resolved_by_server(done.oids)
        self._storage.info({'length': done.length, 'size': done.size})
        self._cache.committed(done.tid, self._updates, self._tell)
        self.is_complete = True
        return self._error

    def learn(self, outcome):
        """The same, where the Done was lost, and this Outcome has come."""
        if outcome.outcome == commits.COMMITTED:
            if outcome.tid > self._cache.getLastTid():
                raise PeerError(f'{outcome.tid.hex()}, not announced before')
            self.tid = outcome.tid
            if not self._is_told:
                try:
                    self._call(outcome.tid)
                finally:
                    self._catch_up(outcome.tid)
        return self._error

    def _catch_up(self, tid):
        """If others have committed later, `f` has set the last tid of the
        connections back.  A transaction that began since may lack the changes
        of the others."""
        last = self._cache.getLastTid()
        if last > tid:
            self._storage.invalidateTransaction(last, ())
            self._storage.invalidateCache()

    def _resolved_by_server(self, oids):
        """The resolved states of these objects are not known here."""
        resolved = set(oids)
        self._updates = [
            each for each in self._updates if each[0] not in resolved
        ] + [(oid, None, True) for oid in resolved]

    def _tell(self, tid):
        """Called under the lock of the cache.

        If the thread left before this, its next transaction may have begun at
        an earlier tid, and may have read what is changed here.  If it leaves
        from now on, it gets the last tid only when this has ended: its next
        transaction begins at `tid`, with the objects that the abort has left,
        and none of the changed ones is among them.
        """
        if self.is_left:
            # Before `f`, which lets the connection begin at `tid`.
            self._storage.invalidateTransaction(
                tid, [oid for oid, _, _ in self._updates])
        self._call(tid)

    def _call(self, tid):
        self._is_told = True
        try:
            self._f(tid)
        except BaseException as error:
            # Before any transaction can begin at `tid`.
            self._storage.invalidateCache()
            if not isinstance(error, Exception):
                raise
            self._error = error
