"""The figures as metrics, by the library of Prometheus.

A collector keeps nothing: it asks for the figures when it is asked.  So it can
be in any registry, and is in none by itself.

Names end with their unit, in seconds or bytes, and with `_total` if they only
grow until the process ends.  The only labels are `storage`, `phase` and
`source`, so that no client can make new time series; the version of a build is
the one exception.
"""

import importlib.metadata
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
from .pulse import Serving
from .shown import Reading
from .shown import Shown

PREFIX = 'fsyncstorage_'

# Text before each value of a histogram.
_BOUNDS = [floatToGoString(bound)
           for bound in [*Histogram.ROUND_BOUNDS, float('inf')]]

#: Of each figure: its kind, its name and what it says; how it is read, None
#: where a storage has none; and the label by which it is divided, if it is.
_FIGURES: list[tuple[type[Any], str, str, Callable[[Reading], Any],
                     str | None]] = [
    (CounterMetricFamily, 'commits',
     'Transactions that were committed.',
     lambda of: of.any_of('commits'), None),
    (CounterMetricFamily, 'committed_bytes',
     'Bytes that these have in the data file.',
     lambda of: of.any_of('committed_bytes'), None),
    (CounterMetricFamily, 'conflicts',
     'Commits that failed because another transaction had changed an object.',
     lambda of: of.conflicts, None),
    (CounterMetricFamily, 'conflicts_resolved',
     'Objects whose conflicts were resolved in a commit.',
     lambda of: of.any_of('conflicts_resolved'), None),
    (CounterMetricFamily, 'loads',
     'Objects that clients have loaded, by where they were read from.',
     lambda of: of.loads, 'source'),
    (CounterMetricFamily, 'invalidations',
     'Messages that told a client of the transaction of another.',
     lambda of: of.any_of('invalidations'), None),
    (CounterMetricFamily, 'channel_received_bytes',
     'Bytes that came on read channels.',
     lambda of: of.any_of('channel-bytes-received'), None),
    (CounterMetricFamily, 'channel_sent_bytes',
     'Bytes that were sent on read channels.',
     lambda of: of.any_of('channel-bytes-sent'), None),
    (GaugeMetricFamily, 'clients',
     'Clients that are connected.',
     lambda of: of.any_of('connections'), None),
    (GaugeMetricFamily, 'read_channels',
     'Read channels of these clients.',
     lambda of: of.any_of('channels'), None),
    (GaugeMetricFamily, 'transactions_waiting',
     'Transactions that wait for their vote, or for a sync.',
     lambda of: of.waiting, 'phase'),
    (GaugeMetricFamily, 'reads_waiting',
     'Reads from the disk that wait for a thread.',
     lambda of: of.any_of('reader-threads-waiting'), None),
    (GaugeMetricFamily, 'data_bytes',
     'Size of the data file.',
     lambda of: of.size.get('size'), None),
    (GaugeMetricFamily, 'objects',
     'Objects in the data file.',
     lambda of: of.size.get('length'), None),
    (GaugeMetricFamily, 'last_durable_commit_timestamp_seconds',
     'Time of the last commit that is durable.',
     lambda of: of.last_durable, None),
    (GaugeMetricFamily, 'writing_stopped',
     'Whether writing has stopped, as after a failed sync.',
     lambda of: (of.storage['writing_stopped'] is not None
                 if 'writing_stopped' in of.storage else None), None),
    (GaugeMetricFamily, 'pack_phase_progress_ratio',
     'How far the pack that is under way is in its phase.',
     lambda of: of.pack, 'phase'),
    (GaugeMetricFamily, 'last_pack_timestamp_seconds',
     'When the last pack since the start ended.',
     lambda of: of.last_pack and of.last_pack[0], None),
    (GaugeMetricFamily, 'last_pack_duration_seconds',
     'How long that pack took.',
     lambda of: of.last_pack and of.last_pack[1], None),
    (GaugeMetricFamily, 'last_pack_succeeded',
     'Whether that pack did what it should: it did not fail, and was not'
     ' cancelled.',
     lambda of: of.last_pack and of.last_pack[2], None),
    (GaugeMetricFamily, 'scrub_progress_ratio',
     'How far this pass of the scrub is.',
     lambda of: of.scrubbed, None),
    (CounterMetricFamily, 'scrub_passes',
     'Passes of the scrub that have ended.',
     lambda of: of.scrub.get('passes'), None),
    (GaugeMetricFamily, 'scrub_last_pass_timestamp_seconds',
     'When the last pass of the scrub ended.',
     lambda of: of.scrub.get('last_pass_ended'), None),
    (GaugeMetricFamily, 'scrub_damaged_transactions',
     'Damaged transactions that the scrub has found.',
     lambda of: of.scrub.get('damaged'), None),
]

#: Of each histogram: its name, what it says, and what its storage calls it.
_HISTOGRAMS = [
    ('sync_duration_seconds', 'How long each sync took.', 'sync_latency'),
    ('commit_duration_seconds',
     'From the request to vote to the answer that it is committed.',
     'commit_latency'),
    ('lock_wait_duration_seconds',
     'How long votes waited for objects that others held, if they waited.',
     'lock_wait'),
]


class Collector:

    def __init__(self, storages: Callable[[], Iterable[Shown]],
                 servers: Callable[[], Iterable[Serving]]) -> None:
        self._storages = storages
        self._servers = servers
        self._version = importlib.metadata.version('fsyncstorage')

    def collect(self) -> Iterator[Metric]:
        return (family for family in self._families() if family.samples)

    def _families(self) -> Iterator[Metric]:
        storages = [reading for shown in self._storages()
                    if (reading := shown.now()) is not None]
        for kind, name, words, read, label in _FIGURES:
            family = kind(PREFIX + name, words, labels=[
                'storage', *([label] if label else [])])
            for figures in storages:
                _add(family, figures.name, read(figures), label)
            yield family
        for name, words, key in _HISTOGRAMS:
            family = HistogramMetricFamily(
                PREFIX + name, words, labels=['storage'])
            for figures in storages:
                if key in figures.histograms:
                    add_histogram(
                        family, [figures.name], figures.histograms[key])
            yield family
        yield from self._of_the_process()

    def _of_the_process(self) -> Iterator[Metric]:
        servers = list(self._servers())
        lag = HistogramMetricFamily(
            PREFIX + 'loop_lag_seconds',
            'By how much the event loop of the server was late.', labels=[])
        received = CounterMetricFamily(
            PREFIX + 'received_bytes',
            'Bytes that came on all connections but read channels.', labels=[])
        sent = CounterMetricFamily(
            PREFIX + 'sent_bytes',
            'Bytes that were sent on these connections.', labels=[])
        if servers:
            add_histogram(lag, [], [each.pulse.lag for each in servers])
            received.add_metric(
                [], sum(each.traffic.received for each in servers))
            sent.add_metric([], sum(each.traffic.sent for each in servers))
        build = GaugeMetricFamily(
            PREFIX + 'build_info', 'The version of fsyncstorage.',
            labels=['version'])
        build.add_metric([self._version], 1)
        yield from (lag, received, sent, build)


def _add(family: Any, storage: str, value: Any, label: str | None) -> None:
    if value is None:
        return
    if label is None:
        family.add_metric([storage], value)
        return
    for each, number in value.items():
        family.add_metric([storage, each], number)


def add_histogram(family: HistogramMetricFamily, labels: list[str],
                  histograms: Iterable[Histogram]) -> None:
    """The sum of several, that are of different commits."""
    read = [histogram.at_most() for histogram in histograms]
    family.add_metric(
        labels,
        [(bound, sum(counts))
         for bound, *counts in zip(_BOUNDS, *(seen for seen, _ in read))],
        sum(total for _, total in read))
