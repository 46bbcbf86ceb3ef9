"""The process that has a storage, which may have to wait before it is opened,
and to end before it is closed.

Under `durability quorum` a storage is opened only when its node leads, which
may be after months, and another node may lead from then on.  A `Host` is what
the process does meanwhile.  A server is one (server.runzeo); any other process
only waits, and then goes on without writing.
"""

import threading
import typing


class Node(typing.Protocol):
    """What there is in place of a storage that is not open yet."""

    @property
    def trouble(self) -> str | None:
        """Why there is no storage, in words."""

    def stats(self) -> dict[str, object]:
        """Figures, as those of the storage under `quorum`."""


class Host:
    """Of a process that does nothing of its own."""

    #: Can it begin anew, by itself?
    may_leave = False

    def wait(self, opened: threading.Event, node: Node) -> None:
        """Return when the event is set: then a storage can be opened, or never
        will be.  Called in the thread that opens the storage."""
        opened.wait()

    def leave(self, seconds: float) -> bool:
        """Close the storage as if the process ended, and begin anew; but only
        at a moment at which no transaction is voted and not finished.

        False: there was none for so long, and all goes on.  Called in any
        thread, if it `may_leave`.
        """
        raise NotImplementedError

    def be_silent(self, silent: bool) -> None:
        """End all connections at once, as nobody who is connected may go on
        to read from a cache, and accept no others; or accept them again.
        Called in any thread."""

    def hang_up(self) -> None:
        """Answer nobody any more, but what was answered already.  Called in
        any thread."""

    def end(self, reason: str, again: bool) -> None:
        """The storage is to be closed; the process should begin anew, if
        `again`, and end otherwise.  Called in any thread, behind `hang_up`."""


_host = Host()


def host() -> Host:
    return _host


def host_is(new: Host) -> None:
    global _host
    _host = new
