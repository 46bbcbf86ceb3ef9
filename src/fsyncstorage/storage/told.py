"""What a caller passes to `tpc_finish`, to be told of the outcome."""

from collections.abc import Callable


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
