"""The figures of clients as metrics, for the registry of their process.

    registry.register(ClientCollector({'main': client}))

Nothing is kept here: the clients are asked whenever the metrics are.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.core import Metric

from .collector import add_histogram

COUNTER, GAUGE = CounterMetricFamily, GaugeMetricFamily

PREFIX = 'fsyncclient_'

#: Each figure: its kind, its name in `FsyncClient.stats()`, and its
#: description.  Figures of something that a client does not have (a blob
#: cache, for example) are missing there.
FIGURES: list[tuple[type[Any], str, str]] = [
    (GAUGE, 'connected', 'Whether there is a server.'),
    (COUNTER, 'cache_hits', 'Loads that were answered from the cache.'),
    (COUNTER, 'cache_misses', 'Loads for which the server was asked.'),
    (COUNTER, 'cache_evictions',
     'Objects that were dropped from the cache for others.'),
    (GAUGE, 'reads_locally',
     'Whether objects are read from the data file, without the server.'),
    (COUNTER, 'local_reads', 'Loads that were answered from the data file.'),
    (GAUGE, 'blob_cache_bytes', 'Bytes of the blobs in the blob cache.'),
    (COUNTER, 'blob_cache_evictions',
     'Blobs that were removed from the blob cache for others.'),
]


class ClientCollector:

    def __init__(self, clients: Mapping[str, Any]) -> None:
        """`clients` are by their names; each is an FsyncClient."""
        self._clients = clients

    def describe(self) -> Iterator[Metric]:
        """Only the names: a registry asks for them when this is registered."""
        return ClientCollector({}).collect()

    def collect(self) -> Iterator[Metric]:
        read = {name: client.stats()
                for name, client in self._clients.items()}
        for kind, key, words in FIGURES:
            family = kind(PREFIX + key, words, labels=['storage'])
            for name, figures in read.items():
                if key in figures:
                    family.add_metric([name], figures[key])
            yield family
        times = HistogramMetricFamily(
            PREFIX + 'load_duration_seconds',
            'How long loads took that the cache did not answer, by source:'
            ' local, the data file (one in 16 is timed), or server.',
            labels=['storage', 'source'])
        for name, client in self._clients.items():
            for source, histogram in client.load_times().items():
                add_histogram(times, [name, source], [histogram])
        yield times
