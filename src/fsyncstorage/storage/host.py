"""The process that has a storage: it may have to wait before it can open it,
and may be told to close it.

Under `durability quorum` a storage is opened only when its node leads.  That
may be after months, and later another node may lead.  A `Host` says what the
process does in these cases.  A server has its own (server.runzeo); any other
process only waits, and then goes on without writing when it no longer leads.
"""

import threading
import typing


class Node(typing.Protocol):
    """Takes the place of a storage that is not open yet."""

    @property
    def trouble(self) -> str | None:
        """Why there is no storage, in words."""

    @property
    def why_not_following(self) -> str | None:
        """Why it does not stand by for the node that leads; None: it does."""

    def stats(self) -> dict[str, object]:
        """Figures, like those of the storage under `quorum`."""


class Host:
    """The host of a process that does nothing of its own."""

    #: Can the process close the storage, and begin anew?
    may_leave = False

    def wait(self, opened: threading.Event, node: Node) -> None:
        """Return when the event is set: then a storage can be opened, or never
        will be.  Called in the thread that opens the storage."""
        opened.wait()

    def hang_up(self) -> None:
        """Close the port and all connections at once, because no client may go
        on to read from its cache.  Called in any thread; it waits for nothing,
        and for no disk."""

    def go_on(self) -> None:
        """After `hang_up`: open the port again.  Called in any thread."""

    def end(self, reason: str, again: bool) -> None:
        """Close the storage as if the process ended: what is finishing still
        reaches the disk.  Then the process should begin anew, if `again`, and
        end otherwise.  Called in any thread."""


_host = Host()


def host() -> Host:
    return _host


def host_is(new: Host) -> None:
    global _host
    _host = new
