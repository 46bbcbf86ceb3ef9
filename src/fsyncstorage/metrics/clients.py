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

PREFIX = 'fsyncclient_'


class ClientCollector:

    def __init__(self, clients: Mapping[str, Any]) -> None:
        """By their names; each is an FsyncClient."""
        self._clients = clients

    def describe(self) -> Iterator[Metric]:
        """The names alone: a registry asks for them when it gets this."""
        return ClientCollector({}).collect()

    def collect(self) -> Iterator[Metric]:
        connected = GaugeMetricFamily(
            PREFIX + 'connected', 'Whether there is a server.',
            labels=['storage'])
        hits = CounterMetricFamily(
            PREFIX + 'cache_hits', 'Loads that were answered from the cache.',
            labels=['storage'])
        misses = CounterMetricFamily(
            PREFIX + 'cache_misses', 'Loads that were not.',
            labels=['storage'])
        evictions = CounterMetricFamily(
            PREFIX + 'cache_evictions',
            'Objects that were dropped from the cache for others.',
            labels=['storage'])
        times = HistogramMetricFamily(
            PREFIX + 'load_duration_seconds',
            'How long loads took that the cache could not answer.',
            labels=['storage', 'source'])
        for name, client in self._clients.items():
            figures = client.stats()
            load_times = client.load_times()
            connected.add_metric([name], figures['connected'])
            hits.add_metric([name], figures['cache_hits'])
            misses.add_metric([name], sum(
                each.summary()['count'] for each in load_times.values()))
            evictions.add_metric([name], figures['cache_evictions'])
            for source, histogram in load_times.items():
                add_histogram(times, [name, source], [histogram])
        yield from (connected, hits, misses, evictions, times)
