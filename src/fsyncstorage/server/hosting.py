"""fsync-runzeo as the host of a node (storage.host).

While the node follows, there is no server yet.  The process tells the service
manager that it is ready and alive; its probes and figures show the node.

When the node has to retreat, the server closes its port and all connections;
when the node is asked to step down, the server closes as at its end.  Then the
process begins anew by `exec`, with the same process id, arguments and
environment.  So nothing is left of the time in which the node led, and a
supervisor of the process notices nothing.  An `exec` closes all files that
Python has opened, and so releases their locks.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from ..commit.replica import Replica
from ..metrics import exporters
from ..metrics import probes
from ..storage.host import Host
from ..storage.host import Node
from .manager import Manager

logger = logging.getLogger(__name__)

#: Signals that end a server.
ENDING = signal.SIGTERM, signal.SIGINT, signal.SIGHUP


def nodes_among(openers: Sequence[Any]) -> list[str]:
    """The names of storages that are nodes."""
    return [each.name for each in openers
            if getattr(getattr(each, 'config', None), 'quorum', None)
            is not None]


def replica_of(storage: Any) -> Any:
    """The replica of a storage whose node leads; None: it is no node."""
    found = getattr(storage, 'replica', None)
    # (In a storage that is not ours, the attribute may be anything.)
    return found if isinstance(found, Replica) else None


def refuse_two_nodes(openers: Sequence[Any]) -> None:
    nodes = nodes_among(openers)
    if len(nodes) > 1:
        raise ValueError(
            f'the storages {", ".join(nodes)} are nodes of a log (durability'
            ' quorum), and a server can have one of them: two nodes could'
            ' wait for each other')


class Hosting(Host):

    may_leave = True
    _again = False
    #: A signal has come that ends the process.
    was_signalled = False
    #: No server is to run any more; its exit status.
    is_over = False
    status = 0

    def __init__(self, manager: Manager, name: str) -> None:
        """`name` is that of the storage."""
        self._manager = manager
        self._name = name
        #: The address at which the process shows all of its storages.
        self.metrics: exporters.Hold | None = None
        self.server: Any = None
        self._is_silent = False
        self._silence = threading.Lock()
        self._ending = threading.Lock()

    def serves(self, server: Any) -> None:
        """The server is made, and has accepted no connection yet."""
        with self._silence:
            self.server = server
            if self._is_silent:
                server.hang_up()

    def wait(self, opened: threading.Event, node: Node) -> None:
        exporters.process_is(probes.FOLLOWING)
        shown = self._shown(node)
        try:
            self._manager.wait(opened)
        finally:
            if shown is not None:
                shown.close()
            exporters.process_is(probes.STARTING)

    def _shown(self, node: Node) -> exporters.Showing | None:
        """Show the node, unless the section of its storage does that."""
        if self.metrics is None or self.metrics.exporter.shows(node):
            return None
        return exporters.Showing(
            self.metrics.address, self._name, node=node)

    def hang_up(self) -> None:
        with self._silence:
            self._is_silent = True
            if self.server is not None:
                self.server.hang_up()

    def go_on(self) -> None:
        with self._silence:
            self._is_silent = False
            if self.server is not None:
                self.server.soon(self._open_the_port)

    def _open_the_port(self) -> None:
        with self._silence:  # it may have been closed again meanwhile
            if not self._is_silent:
                self.server.acceptor.go_on()

    def end(self, reason: str, again: bool) -> None:
        with self._ending:
            self.begins_anew, self.status = again, int(not again)
            self.is_over = True  # a server that is being made does not run
        if self.server is not None:
            self.server.stop()

    @property
    def begins_anew(self) -> bool:
        """Is the process to begin anew when all is closed?  Not if a signal
        to end has arrived, whether before that was decided or after."""
        return self._again and not self.was_signalled

    @begins_anew.setter
    def begins_anew(self, again: bool) -> None:
        self._again = again


def begin_anew(hosting: Hosting, environment: Mapping[str, str]) -> None:
    """Return only if a signal that ends the process has arrived.

    A signal that arrives from now on is kept pending, and ends the process
    that begins (`let_signals_come`).
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    if not hosting.begins_anew:
        let_signals_come()
        return
    logger.info('the process begins anew, as a node that follows')
    logging.shutdown()
    try:
        os.execve(sys.executable, sys.orig_argv, environment)
    except OSError as error:
        sys.exit(f'fsync-runzeo: the process cannot begin anew: {error}')


def let_signals_come() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
