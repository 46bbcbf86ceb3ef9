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
# Seconds for which an answer at these paths is kept, before it is made anew.
KEPT = 1.0
_KEPT = '/metrics', '/now', '/clients'

EXTRA = 'install the extra: fsyncstorage[metrics]'

_FAILED = Answer(500, TEXT, b'an error: see the log\n')


class Exporter:

    def __init__(self, address: Address) -> None:
        #: Who holds it; under the mutex of `_Exporters`.
        self.holders: set[Hold] = set()
        self._mutex = threading.Lock()
        self._storages: list[Shown] = []
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
        logger.info('a live page%s and probes at http://%s',
                    ', metrics' if self._generate else '', in_words(address))
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
            collector: Any = Collector(self.storages, self.pulses)
        except Exception as error:  # it is absent, or cannot be used
            logger.warning('no metrics at %s, only a live page and probes: %s;'
                           ' %s', in_words(address), error, EXTRA)
            return None
        return lambda: generate_latest(collector)

    # What is shown

    def storages(self) -> list[Shown]:
        with self._mutex:
            return list(self._storages)

    def pulses(self) -> list[probes.Pulse]:
        """Of the servers of these storages: one for each loop."""
        return list({pulse.loop: pulse for each in self.storages()
                     if (pulse := each.pulse) is not None}.values())

    def show(self, shown: Shown) -> None:
        with self._mutex:
            taken = {each.name for each in self._storages}
            number, name = 1, shown.name
            while shown.name in taken:  # two time series must not look alike
                number += 1
                shown.name = f'{name} ({number})'
            self._storages.append(shown)

    def shows(self, node: Any) -> bool:
        return any(each.node is node for each in self.storages())

    def hide(self, shown: Shown) -> None:
        """Show it no more.  May be called again."""
        with self._mutex:
            self._storages = [
                each for each in self._storages if each is not shown]

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
        if path in page.FILES:
            return page.file(path)
        if path not in self._PAGES:
            return None
        with self._failures.said(f'{path} of the metrics could not be made'):
            make = self._PAGES[path]
            return self._kept(path, make) if path in _KEPT else make(self)
        return _FAILED

    def _sample(self) -> None:
        with self._failures.said('a sample could not be taken'):
            for shown in self.storages():
                shown.sample()

    def _kept(self, path: str, make: Callable[['Exporter'], Answer]) -> Answer:
        now = time.monotonic()
        if path not in self._made or now - self._made[path][0] >= KEPT:
            self._made[path] = now, make(self)
        return self._made[path][1]

    def _metrics(self) -> Answer:
        if self._generate is None:
            return Answer(501, TEXT, f'no metrics: {EXTRA}\n'.encode())
        return Answer(200, METRICS, self._generate())

    # The pages that the thread makes, by their paths.
    _PAGES: dict[str, Callable[['Exporter'], Answer]] = {
        '/metrics': _metrics,
        '/now': lambda self: page.now(
            _exporters.phase, self.storages(), self.pulses()),
        '/clients': lambda self: page.clients(self.storages()),
        '/startup': lambda self: probes.startup(_exporters.phase),
        '/live': lambda self: probes.live(self.pulses()),
        '/ready': lambda self: probes.ready(_exporters.phase, {
            each.name: each.trouble() for each in self.storages()}),
        '/node': lambda self: probes.node(_exporters.phase, {
            each.name: each.trouble_as_node() for each in self.storages()}),
    }


class Hold:
    """Keeps an address open until it is closed."""

    def __init__(self, address: Address) -> None:
        #: As it was configured: the port may be 0.
        self.address = address
        self.exporter = _exporters.take(self)

    def close(self) -> None:
        """May be called again."""
        _exporters.give_back(self)


class Showing(Hold, Shown):
    """A storage that is shown until this is closed."""

    def __init__(self, address: Address, name: str, storage: Any = None,
                 node: Any = None) -> None:
        """`node` (storage.host) is shown in place of a storage that cannot be
        opened yet."""
        Shown.__init__(self, name, storage, node)
        Hold.__init__(self, address)
        self.exporter.show(self)

    def hide(self) -> None:
        """Called when the storage begins to close; may be called again."""
        self.served_no_more()
        self.exporter.hide(self)

    def close(self) -> None:
        self.hide()
        super().close()


class _Exporters:

    def __init__(self) -> None:
        #: What the process is doing (probes).
        self.phase: str = probes.SERVING
        self._mutex = threading.Lock()
        self._open: dict[Address, Exporter] = {}

    def take(self, hold: Hold) -> Exporter:
        with self._mutex:
            if not self._open:
                forks.in_child(self)
            if hold.address not in self._open:
                self._open[hold.address] = Exporter(hold.address)
            exporter = self._open[hold.address]
            exporter.holders.add(hold)
            return exporter

    def give_back(self, hold: Hold) -> None:
        exporter = hold.exporter
        with self._mutex:
            if self._open.get(hold.address) is not exporter:
                return  # closed already; or that of the parent, in a fork
            exporter.holders.discard(hold)
            if exporter.holders:
                return
            del self._open[hold.address]
        # (Without the mutex, so that nobody else waits for its thread.)
        exporter.close()

    def forked(self) -> None:
        """Called in the child of a fork."""
        self._mutex = threading.Lock()
        for exporter in self._open.values():
            exporter.abandon()
        self._open = {}


_exporters: _Exporters = _Exporters()


def process_is(phase: str) -> None:
    """A server calls this to say what it is doing.

    Any other process is always serving.
    """
    _exporters.phase = phase
