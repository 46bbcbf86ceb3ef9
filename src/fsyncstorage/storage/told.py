"""What a server passes to `tpc_vote` and `tpc_finish`, for one of its clients.
"""

from collections.abc import Callable


class ForAClient:
    """Passed to `tpc_vote`: the vote must not wait for what is not published.

    A conflict with such a transaction raises Unpublished.  Without `resolve`,
    a conflict that might be resolved raises Unresolved: the caller does that
    where nobody else waits for it.  If the client resolves conflicts itself,
    `leaves_conflicts`, those that the storage cannot resolve raise
    ConflictsLeft, all together.
    """

    def __init__(self, resolve: bool = True,
                 leaves_conflicts: bool = False) -> None:
        self.resolve = resolve
        self.leaves_conflicts = leaves_conflicts


class AsyncFinish:
    """Passed to `tpc_finish` in place of `f`: append now, tell me later.

    `tpc_finish` returns the tid as soon as the transaction is appended and has
    let go of its objects.  When the transaction may be published (according to
    its policy), the thread that publishes calls `publish(tid)`, and then
    `done(tid, error)`.

    Without `wait`, `tpc_finish` raises Occupied if it would have to wait for
    the append lock.  The transaction stays voted, and can be finished later.

    A client that has lost the answer asks for the outcome by this `id`
    (wire.sessions).

    The object is passed as the argument `f` because storage wrappers (zlib,
    encryption) pass that argument on.
    """

    def __init__(self, done: Callable[[bytes, BaseException | None], object],
                 publish: Callable[[bytes], object] | None = None,
                 wait: bool = True, id: bytes | None = None) -> None:
        self.done = done
        self.publish = publish
        self.wait = wait
        self.id = id


#: The argument `f` of `tpc_finish`.
Told = Callable[[bytes], object] | AsyncFinish | None
