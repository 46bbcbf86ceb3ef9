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

from .clientfigures import COUNTER
from .clientfigures import FIGURES
from .clientfigures import GAUGE
from .clientfigures import PREFIX
from .clientfigures import TIMES
from .clientfigures import TIMES_SAY
from .collector import add_histogram

_FAMILIES: dict[str, type[Any]] = {
    COUNTER: CounterMetricFamily, GAUGE: GaugeMetricFamily}


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
            family = _FAMILIES[kind](PREFIX + key, words, labels=['storage'])
            for name, figures in read.items():
                if key in figures:
                    family.add_metric([name], figures[key])
            yield family
        times = HistogramMetricFamily(
            PREFIX + TIMES, TIMES_SAY, labels=['storage', 'source'])
        for name, client in self._clients.items():
            for source, histogram in client.load_times().items():
                add_histogram(times, [name, source], [histogram])
        yield times
