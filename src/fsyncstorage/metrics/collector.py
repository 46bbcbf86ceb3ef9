"""The figures as metrics, by the library of Prometheus.

A collector reads the figures when it is asked for them, and keeps nothing.

Names end with their unit, in seconds or bytes, and with `_total` if they only
grow until the process ends.  The only labels are `storage`, `phase`, `source`
and `node`, so that no client can make new time series; the version of a build
is the one exception.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.core import Metric
from prometheus_client.utils import floatToGoString

from ..histogram import Histogram
from ..version import own_version
from .figures import COUNTER
from .figures import FIGURES
from .figures import GAUGE
from .figures import HISTOGRAMS
from .figures import LABELS
from .probes import Pulse
from .shown import Shown

PREFIX = 'fsyncstorage_'

# The bound of each bucket of a histogram, as text.
_BOUNDS = [floatToGoString(bound)
           for bound in [*Histogram.ROUND_BOUNDS, float('inf')]]

_KINDS: dict[str, type[Any]] = {
    COUNTER: CounterMetricFamily, GAUGE: GaugeMetricFamily}


class Collector:

    def __init__(self, storages: Callable[[], Iterable[Shown]],
                 pulses: Callable[[], Iterable[Pulse]]) -> None:
        self._storages = storages
        self._pulses = pulses

    def collect(self) -> Iterator[Metric]:
        return (family for family in self.describe() if family.samples)

    def describe(self) -> Iterator[Metric]:
        """All metrics, also those that no storage has."""
        readings = [(shown.name, shown.now()) for shown in self._storages()]
        readable = GaugeMetricFamily(
            PREFIX + 'figures_readable',
            '0 when the other figures of the storage cannot be read: the log'
            ' says why.',
            labels=['storage'])
        for name, reading in readings:
            readable.add_metric([name], reading is not None)
        yield readable
        storages = [reading for _, reading in readings if reading is not None]
        for kind, name, path, words in FIGURES:
            labels = [LABELS[name]] if name in LABELS else []
            family = _KINDS[kind](
                PREFIX + name, words, labels=['storage', *labels])
            for figures in storages:
                found = figures.at(path)
                for of, value in (
                        found.items() if labels else [(None, found)]):
                    if value is not None:
                        family.add_metric(
                            [figures.name, *([of] if labels else [])], value)
            yield family
        for name, words, key in HISTOGRAMS:
            family = HistogramMetricFamily(
                PREFIX + name, words, labels=['storage'])
            for figures in storages:
                if key in figures.histograms:
                    add_histogram(
                        family, [figures.name], figures.histograms[key])
            yield family
        yield from self._of_the_process()

    def _of_the_process(self) -> Iterator[Metric]:
        pulses = list(self._pulses())
        lag = HistogramMetricFamily(
            PREFIX + 'loop_lag_seconds',
            'By how much the event loop of the server was late, twice a'
            ' second.', labels=[])
        received = CounterMetricFamily(
            PREFIX + 'received_bytes', 'Bytes that were received on all'
            ' connections but readers.', labels=[])
        sent = CounterMetricFamily(
            PREFIX + 'sent_bytes',
            'Bytes that were sent on these connections.', labels=[])
        if pulses:
            add_histogram(lag, [], [each.lag for each in pulses])
            received.add_metric([], sum(
                each.traffic.received for each in pulses))
            sent.add_metric([], sum(each.traffic.sent for each in pulses))
        yield from (lag, received, sent)
        build = GaugeMetricFamily(
            PREFIX + 'build_info', 'The version of fsyncstorage.',
            labels=['version'])
        build.add_metric([own_version()], 1)
        yield build


def add_histogram(family: HistogramMetricFamily, labels: list[str],
                  histograms: Iterable[Histogram]) -> None:
    """Add the sum of several histograms, which count different commits."""
    read = [histogram.at_most() for histogram in histograms]
    family.add_metric(
        labels,
        [(bound, sum(counts))
         for bound, *counts in zip(_BOUNDS, *(seen for seen, _ in read))],
        sum(total for _, total in read))
