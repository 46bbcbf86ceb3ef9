"""What a caller gives to `tpc_finish`, to be told of the outcome."""

from collections.abc import Callable


class AsyncFinish:
    """Passed to `tpc_finish` in place of `f`: append now, tell me later.

    `tpc_finish` returns the tid as soon as the transaction is appended and has
    let go of its objects.  When it is durable (as the policy says), the thread
    that publishes calls `publish(tid)`, and then `done(tid, error)`.

    Without `wait`, `tpc_finish` raises Occupied if it had to wait for the
    append lock.  The transaction stays voted, and can be finished later.

    `id` is what a client asks by if it has lost the answer (wire.sessions).

    It is passed as this argument because storage wrappers (zlib, encryption)
    pass that on.
    """

    def __init__(self, done: Callable[[bytes, BaseException | None], object],
                 publish: Callable[[bytes], object] | None = None,
                 wait: bool = True, id: bytes | None = None) -> None:
        self.done = done
        self.publish = publish
        self.wait = wait
        self.id = id


#: What `tpc_finish` is given to tell of the publishing.
Told = Callable[[bytes], object] | AsyncFinish | None
