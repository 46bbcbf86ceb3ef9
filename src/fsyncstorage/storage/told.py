"""What a server passes to `tpc_vote` and `tpc_finish`, for one of its clients.
"""

from collections.abc import Callable

from ZODB.POSException import ConflictError

# Most bytes of all conflicts that a client gets to resolve, and bytes that are
# counted for each in addition to its data.  (The answer to the vote has the
# data, which stay in memory until it has left.)
MOST_TO_RESOLVE = 16 << 20
OF_A_CONFLICT = 1000


class ForAClient:
    """Passed to one call of `tpc_vote`: the vote must not wait for what is not
    published.

    A conflict with such a transaction raises Unpublished.  Without `resolve`,
    a conflict that might be resolved raises Unresolved: the caller does that
    where nobody else waits for it.  If the client resolves conflicts itself,
    `leaves_conflicts`, those that the storage cannot resolve raise
    ConflictsLeft, all together.
    """

    def __init__(self, resolve: bool = True,
                 leaves_conflicts: bool = False) -> None:
        self.resolve = resolve
        self._leaves_conflicts = leaves_conflicts
        #: Those that are left, in the form in which they are sent to clients.
        self.conflicts: list[dict[str, object]] = []
        self._bytes = 0

    def leave(self, oid: bytes, data: bytes, error: ConflictError) -> None:
        """Leave a conflict of data that were stored to the client.

        Raise it if the client does not want it.  A vote with more conflicts
        than fit into its answer fails with the first one that is too much: its
        client can try the transaction again, as after any conflict."""
        self._bytes += OF_A_CONFLICT + len(data)
        if (not self._leaves_conflicts or not error.serials
                or self._bytes > MOST_TO_RESOLVE):
            try:
                raise error
            finally:
                del error  # as conflicts.leave
        self.conflicts.append(dict(oid=oid, serials=error.serials, data=data))


class AsyncFinish:
    """Passed to `tpc_finish` in place of `f`: append now, tell me later.

    `tpc_finish` returns the tid as soon as the transaction is appended and has
    let go of its objects.  When the transaction may be published (according to
    its policy), the thread that publishes calls `publish(tid)`, and then
    `done(tid, error)`.

    Without `wait`, `tpc_finish` raises Occupied if it would have to wait for
    the append lock.  The transaction stays voted, and can be finished later.

    The object is passed as the argument `f` because storage wrappers (zlib,
    encryption) pass that argument on.
    """

    def __init__(self, done: Callable[[bytes, BaseException | None], object],
                 publish: Callable[[bytes], object] | None = None,
                 wait: bool = True) -> None:
        self.done = done
        self.publish = publish
        self.wait = wait


#: The argument `f` of `tpc_finish`.
Told = Callable[[bytes], object] | AsyncFinish | None
