"""One address, at which some storages of this process are shown.

A thread of its own answers there (answering).  Other threads may begin or stop
to show a storage at any time.  `_mutex` guards the tables; it is a leaf.

Without prometheus_client there are only the probes and the page.  If the
process cannot listen at the address, nobody gets an answer, and the code that
shows a storage does not notice.

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

from . import probes
from . import served
from .address import is_loopback
from .address import shown as in_words
from .answering import TEXT
from .answering import Answer
from .answering import Answering
from .page import FILES
from .page import Page
from .page import page_file
from .past import EVERY
from .pulse import Pulse
from .pulse import Serving
from .shown import Failures
from .shown import Shown

logger = logging.getLogger(__name__)

METRICS = 'text/plain; version=0.0.4; charset=utf-8'
# Seconds for which an answer is kept, before it is made anew.
KEPT = 1.0

EXTRA = "pip install 'fsyncstorage[metrics]'"

_FAILED = Answer(500, TEXT, b'an error: see the log\n')


class Exporter:

    def __init__(self, address: tuple[str, int],
                 phase: Callable[[], str]) -> None:
        """`phase()` returns what the process is doing (probes)."""
        self._phase = phase
        self._mutex = threading.Lock()
        self._storages: list[Shown] = []
        self._servers: dict[asyncio.AbstractEventLoop, Serving] = {}
        self._failures = Failures()  # used only by the thread
        #: By path: the last answer, and when it was made.  Used only by the
        #: thread.
        self._made: dict[str, tuple[float, Answer]] = {}
        self._page = Page(phase, self.storages, self.servers)
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
    def address(self) -> tuple[str, int] | None:
        """Where it answers; if the port was 0, with the port chosen for it."""
        return None if self._answering is None else self._answering.address

    def _say_where(self, address: tuple[str, int]) -> None:
        logger.info('a live page, metrics and probes at http://%s',
                    in_words(address))
        if not is_loopback(address[0]):
            logger.warning(
                'metrics at %s: whoever can reach this address can read the'
                ' figures of the storages, and what each client does: their'
                ' labels, addresses and versions, and the oids that they'
                ' hold', in_words(address))

    def _metrics_or_none(self, address: tuple[str, int]
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

    def servers(self) -> list[Serving]:
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
                self._servers[loop] = Serving(Pulse(loop), traffic)

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
        if path not in FILES and path not in self._PAGES:
            return None
        with self._failures.said(f'{path} of the metrics could not be made'):
            return (page_file(path) if path in FILES
                    else self._PAGES[path](self))
        return _FAILED

    def _sample(self) -> None:
        with self._failures.said('a sample could not be taken'):
            self._page.sample()

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
        '/now': lambda self: self._kept('/now', self._page.now),
        '/clients': lambda self: self._kept(
            '/clients', lambda: served.clients(self.storages())),
        '/startup': lambda self: probes.startup(self._phase()),
        '/live': lambda self: probes.live(
            each.pulse for each in self.servers()),
        '/ready': lambda self: probes.ready(self._phase(), self.storages()),
    }
