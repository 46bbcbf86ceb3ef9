"""Which address shows which storages of this process.

Storages that name the same address share it: it is opened for the first
storage, and closed with the last.  No exception is raised because of an
address: data are kept without metrics, too.

The child of a fork shows nothing, since it gives up the storages of its
parent.
"""

import threading
from typing import Any

from .. import forks
from . import probes
from .exporter import Exporter

Address = tuple[str, int]


class Hold:
    """Keeps an address open until it is closed."""

    def __init__(self, address: Address) -> None:
        #: As it was configured: the port may be 0.
        self.address = address
        self._is_closed = False
        self.exporter = _exporters.take(address)

    def close(self) -> None:
        """May be called again."""
        if not self._is_closed:
            self._is_closed = True
            _exporters.give_back(self.address, self.exporter)


class Showing(Hold):
    """A storage that is shown until this is closed."""

    def __init__(self, address: Address, name: str, storage: Any = None,
                 node: Any = None) -> None:
        """`node` (storage.host) is shown in place of a storage that cannot be
        opened yet."""
        super().__init__(address)
        self._shown = self.exporter.show(name, storage, node)

    def has_opened(self, storage: Any) -> None:
        """The storage is open now, and shown in place of its node."""
        self._shown.has_opened(storage)

    def served_by(self, service: Any, traffic: Any) -> None:
        """A server (server.service) serves the storage now.

        `traffic` counts the bytes on the server's connections.
        """
        self._shown.service = service
        self.exporter.watch(service.loop, traffic)

    def served_no_more(self) -> None:
        """Called when the server begins to end; may be called again."""
        service, self._shown.service = self._shown.service, None
        if service is not None:
            self.exporter.watch_no_more(service.loop)

    def hide(self) -> None:
        """Called when the storage begins to close; may be called again."""
        self.served_no_more()
        self.exporter.hide(self._shown)

    def close(self) -> None:
        self.hide()
        super().close()


class _Exporters:

    def __init__(self) -> None:
        self.phase = probes.SERVING
        self._mutex = threading.Lock()
        self._open: dict[Address, tuple[Exporter, int]] = {}

    def take(self, address: Address) -> Exporter:
        with self._mutex:
            if address not in self._open:
                if not self._open:
                    forks.give_up_in_a_fork(self)
                self._open[address] = Exporter(
                    address, lambda: self.phase), 0
            exporter, holds = self._open[address]
            self._open[address] = exporter, holds + 1
            return exporter

    def give_back(self, address: Address, exporter: Exporter) -> None:
        with self._mutex:
            known, holds = self._open.get(address, (None, 0))
            if known is not exporter:
                return  # in the child of a fork: it is that of the parent
            if holds > 1:
                self._open[address] = exporter, holds - 1
                return
            del self._open[address]
        # (Without the mutex, so that nobody else waits for its thread.)
        exporter.close()

    def give_up(self) -> None:
        """Called in the child of a fork."""
        self._mutex = threading.Lock()
        for exporter, _ in self._open.values():
            exporter.abandon()
        self._open = {}


_exporters = _Exporters()


def process_is(phase: str) -> None:
    """A server calls this to say what it is doing.

    Any other process is always serving.
    """
    _exporters.phase = phase
