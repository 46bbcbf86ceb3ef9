"""What a finish changes here, when its Done has come.

It is done by whichever thread has the turn of the stream, in the order of the
stream, and also when the thread that has asked for it was interrupted, and
waits no more.  The connection of that thread does not know that it has
committed, and may read on: the objects of the commit are told to it as those
of another client are.

An error of `f` is the committer's own: the transaction is kept, and others are
not disturbed.  But some connections may not have been told, so all of them
drop what they hold.  Any other error leaves the cache half changed.
"""


class Finishing:

    #: The thread that has asked for it waits no more.
    is_left = False
    #: What `f` has raised.
    _error = None

    def __init__(self, storage, cache, updates, f):
        self._storage = storage
        self._cache = cache
        # A list: another thread may need it when this one was interrupted.
        self._updates = list(updates)
        self._f = f

    def complete(self, done):
        """Return what `f` has raised; None: nothing."""
        self._storage.info({'length': done.length, 'size': done.size})
        self._cache.committed(done.tid, self._updates, self._tell)
        return self._error

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
        try:
            self._f(tid)
        except BaseException as error:
            # Before any transaction can begin at `tid`.
            self._storage.invalidateCache()
            if not isinstance(error, Exception):
                raise
            self._error = error
