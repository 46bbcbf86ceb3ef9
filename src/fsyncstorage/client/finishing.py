"""What a finish changes here, when its Done has come.

It is done by whichever thread has the turn of the stream, in the order of the
stream, and also when the thread that has asked for it was interrupted, and
waits no more.  The connection of that thread does not know that it has
committed, and may read on: the objects of the commit are told to it as those
of another client are.

If the Done was lost with its stream, the client asks on its next one (outcome)
whether it is committed.  By then, what it has changed has come, as of a
transaction of another client: when the cache was verified, or behind that as
an invalidation.  All connections have been told, also the one that commits: it
drops its objects when its next transaction begins, and with them those whose
conflicts the server has resolved.  So only `f` is left, which is called in the
order of that stream, too: behind it, and perhaps behind later ones.

An error of `f` is the committer's own: the transaction is kept, and others are
not disturbed.  But some connections may not have been told, so all of them
drop what they hold.  Any other error leaves the cache half changed.
"""

from ZODB.POSException import StorageError

from ..wire import PeerError
from ..wire import commits


class Finishing:

    #: It is committed, whatever has come of completing that here.
    tid = None
    #: The thread that has asked for it waits no more.
    is_left = False
    #: `f` is called once.
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
        """It is committed: raise what `f` has raised, if anything."""
        if self._error is not None:
            raise self._error

    def refuse_repeating(self, error):
        """Raise another one if it is committed: behind this one, an
        application would try again."""
        if self.tid is not None:
            raise StorageError(
                f'it is committed, as {self.tid.hex()}, and behind that:'
                f' {error!r}') from error

    def complete(self, done):
        """Return what `f` has raised; None: nothing."""
        self.tid = done.tid
        if done.oids:
            self._resolved_by_server(done.oids)
        self._storage.info({'length': done.length, 'size': done.size})
        self._cache.committed(done.tid, self._updates, self._tell)
        return self._error

    def learn(self, outcome):
        """The same, where the Done was lost, and this is the answer."""
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
        """`f` has set the last tid of the connections back, if others have
        committed behind it.  What a connection has begun meanwhile may lack
        what they have changed."""
        last = self._cache.getLastTid()
        if last > tid:
            self._storage.invalidateTransaction(last, ())
            self._storage.invalidateCache()

    def _resolved_by_server(self, oids):
        """What it has stored is not known here."""
        resolved = set(oids)
        self._updates = [
            each for each in self._updates if each[0] not in resolved
        ] + [(oid, None, True) for oid in resolved]

    def _tell(self, tid):
        """Called under the lock of the cache.

        A transaction of a thread that left before begins at an earlier tid,
        and may have read what is changed here.  One that leaves from now on
        finds the last tid when this is over: its next transaction begins at
        `tid`, with what the abort has left, which is nothing of these objects.
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
