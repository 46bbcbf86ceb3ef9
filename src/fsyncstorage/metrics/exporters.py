"""Which address shows which storages of this process, and what it answers.

Storages that name the same address share it: it is opened for the first
storage, and closed with the last.  No exception is raised because of an
address: data are kept without metrics, too.  The child of a fork shows
nothing, since it gives up the storages of its parent.

A thread of its own answers at each address (answering).  Other threads may
begin or stop to show a storage at any time.  Without prometheus_client there
are only the probes and the page.  If the process cannot listen at the address,
nobody gets an answer, and the code that shows a storage does not notice.

The figures are read at most once in `KEPT` seconds, however often they are
asked for: to read them takes mutexes that commits need.  The probes are
answered anew each time, and take no mutex while all is well.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from .. import forks
from . import page
from . import probes
from .address import is_loopback
from .address import shown as in_words
from .answering import TEXT
from .answering import Answer
from .answering import Answering
from .past import EVERY
from .shown import Failures
from .shown import Shown

Address = tuple[str, int]

logger = logging.getLogger(__name__)

METRICS = 'text/plain; version=0.0.4; charset=utf-8'
# Seconds for which an answer is kept, before it is made anew.
KEPT = 1.0

EXTRA = "pip install 'fsyncstorage[metrics]'"

_FAILED = Answer(500, TEXT, b'an error: see the log\n')


class Exporter:

    def __init__(self, address: Address,
                 phase: Callable[[], str]) -> None:
        """`phase()` returns what the process is doing (probes)."""
        self._phase = phase
        #: How many hold it; under the mutex of `_Exporters`.
        self.holds = 0
        self._mutex = threading.Lock()
        self._storages: list[Shown] = []
        self._servers: dict[asyncio.AbstractEventLoop, probes.Serving] = {}
        self._failures = Failures()  # used only by the thread
        #: By path: the last answer, and when it was made.  Used only by the
        #: thread.
        self._made: dict[str, tuple[float, Answer]] = {}
        self._generate = self._metrics_or_none(address)
        self._answering: Answering | None = None
        try:
            self._answering = Answering(address, self._answer)
            self._answering.each(EVERY, self._sample)
        except (OSError, RuntimeError, ValueError) as error:
            # (RuntimeError: no thread could be started.  ValueError: the name
            # is not a valid one.)
            logger.warning('no metrics at %s, and no probes: %s',
                           in_words(address), error)
        else:
            self._say_where(self._answering.address)

    @property
    def address(self) -> Address | None:
        """Where it answers; if the port was 0, with the port chosen for it."""
        return None if self._answering is None else self._answering.address

    def _say_where(self, address: Address) -> None:
        logger.info('a live page, metrics and probes at http://%s',
                    in_words(address))
        if not is_loopback(address[0]):
            logger.warning(
                'metrics at %s: whoever can reach this address can read the'
                ' figures of the storages, and what each client does: their'
                ' labels, addresses and versions, and the oids that they'
                ' hold', in_words(address))

    def _metrics_or_none(self, address: Address
                         ) -> Callable[[], bytes] | None:
        try:
            from prometheus_client import generate_latest

            from .collector import Collector
            collector: Any = Collector(self.storages, self.servers)
        except Exception as error:  # it is absent, or cannot be used
            logger.warning('no metrics at %s, only probes: %s; %s',
                           in_words(address), error, EXTRA)
            return None
        return lambda: generate_latest(collector)

    # What is shown

    def storages(self) -> list[Shown]:
        with self._mutex:
            return list(self._storages)

    def servers(self) -> list[probes.Serving]:
        with self._mutex:
            return list(self._servers.values())

    def show(self, name: str, storage: Any, node: Any = None) -> Shown:
        with self._mutex:
            taken = {each.name for each in self._storages}
            number, free = 1, name
            while free in taken:  # two time series must not look the same
                number += 1
                free = f'{name} ({number})'
            shown = Shown(free, storage, node)
            self._storages.append(shown)
            return shown

    def shows(self, node: Any) -> bool:
        return any(each.node is node for each in self.storages())

    def hide(self, shown: Shown) -> None:
        """Show it no more.  May be called again."""
        with self._mutex:
            self._storages = [
                each for each in self._storages if each is not shown]

    def watch(self, loop: asyncio.AbstractEventLoop, traffic: Any) -> None:
        """A server runs in this loop; may be called again."""
        with self._mutex:
            if loop not in self._servers:
                self._servers[loop] = probes.Serving(
                    probes.Pulse(loop), traffic)

    def watch_no_more(self, loop: asyncio.AbstractEventLoop) -> None:
        """Its server is about to end; may be called again."""
        with self._mutex:
            serving = self._servers.pop(loop, None)
        if serving is not None:
            serving.pulse.end()

    def close(self) -> None:
        if self._answering is not None:
            self._answering.close()

    def abandon(self) -> None:
        """Called in the child of a fork: everything belongs to the parent."""
        self._mutex = threading.Lock()  # another thread may have held it
        if self._answering is not None:
            self._answering.abandon()

    # Answering, in the thread

    def _answer(self, path: str) -> Answer | None:
        if path not in page.FILES and path not in self._PAGES:
            return None
        with self._failures.said(f'{path} of the metrics could not be made'):
            return (page.file(path) if path in page.FILES
                    else self._PAGES[path](self))
        return _FAILED

    def _sample(self) -> None:
        with self._failures.said('a sample could not be taken'):
            for shown in self.storages():
                shown.sample()

    def _kept(self, path: str, make: Callable[[], Answer]) -> Answer:
        now = time.monotonic()
        if path not in self._made or now - self._made[path][0] >= KEPT:
            self._made[path] = now, make()
        return self._made[path][1]

    def _metrics(self) -> Answer:
        generate = self._generate
        if generate is None:
            return Answer(501, TEXT, f'no metrics: {EXTRA}\n'.encode())
        return self._kept(
            '/metrics', lambda: Answer(200, METRICS, generate()))

    # The pages that the thread makes, by their paths.
    _PAGES: dict[str, Callable[['Exporter'], Answer]] = {
        '/metrics': _metrics,
        '/now': lambda self: self._kept('/now', lambda: page.now(
                self._phase(), self.storages(), self.servers())),
        '/clients': lambda self: self._kept(
            '/clients', lambda: page.clients(self.storages())),
        '/startup': lambda self: probes.startup(self._phase()),
        '/live': lambda self: probes.live(self.servers()),
        '/ready': lambda self: probes.ready(self._phase(), self.storages()),
    }


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
        self._open: dict[Address, Exporter] = {}

    def take(self, address: Address) -> Exporter:
        with self._mutex:
            if not self._open:
                forks.give_up_in_a_fork(self)
            if address not in self._open:
                self._open[address] = Exporter(address, lambda: self.phase)
            self._open[address].holds += 1
            return self._open[address]

    def give_back(self, address: Address, exporter: Exporter) -> None:
        with self._mutex:
            if self._open.get(address) is not exporter:
                return  # in the child of a fork: it is that of the parent
            exporter.holds -= 1
            if exporter.holds:
                return
            del self._open[address]
        # (Without the mutex, so that nobody else waits for its thread.)
        exporter.close()

    def give_up(self) -> None:
        """Called in the child of a fork."""
        self._mutex = threading.Lock()
        for exporter in self._open.values():
            exporter.abandon()
        self._open = {}


_exporters = _Exporters()


def process_is(phase: str) -> None:
    """A server calls this to say what it is doing.

    Any other process is always serving.
    """
    _exporters.phase = phase
