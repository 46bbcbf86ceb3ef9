"""The figures of clients for plone.observability, as a provider of metrics.

`configure.zcml` registers it for Zope's application object if
plone.observability is installed.  That package then asks the provider for each
answer of `@@metrics`.  The clients are those databases of the application that
are clients of ours, by the names that zope.conf gives them.

plone.observability has no histograms.  So each histogram is given to it in the
form that it has in Prometheus' text: as counters with three names.
prometheus_client is not needed.
"""

from collections.abc import Iterator
from typing import Any

from plone.observability.interfaces import IMetricProvider
from plone.observability.metric import Metric
from zope.interface import implementer

from ..histogram import Histogram
from .clientfigures import COUNTER
from .clientfigures import FIGURES
from .clientfigures import PREFIX
from .clientfigures import TIMES
from .clientfigures import TIMES_SAY

_BOUNDS = [*(f'{bound:g}' for bound in Histogram.ROUND_BOUNDS), '+Inf']


@implementer(IMetricProvider)
class ClientMetrics:

    name = 'fsyncclient'
    #: Each process has its own figures.
    scope = 'instance'

    def __init__(self, application: Any) -> None:
        self._application = application

    def collect(self) -> Iterator[Metric]:
        """Metrics of the same name are together, as Prometheus demands."""
        clients = self._clients()
        read = {name: client.stats() for name, client in clients.items()}
        for kind, key, words in FIGURES:
            ending = '_total' if kind == COUNTER else ''
            for name, figures in read.items():
                if key in figures:
                    yield self._metric(
                        key + ending, figures[key], kind, words, storage=name)
        yield from self._times(clients)

    def _clients(self) -> dict[str, Any]:
        databases = self._application._p_jar.db().databases
        return {name: database.storage for name, database in databases.items()
                if hasattr(database.storage, 'load_times')}

    def _times(self, clients: dict[str, Any]) -> Iterator[Metric]:
        buckets, sums, counts = [], [], []
        for name, client in clients.items():
            for source, histogram in client.load_times().items():
                of = {'storage': name, 'source': source}
                seen, total = histogram.at_most()
                buckets += [(number, {**of, 'le': bound})
                            for bound, number in zip(_BOUNDS, seen)]
                sums.append((total, of))
                counts.append((seen[-1], of))
        for ending, found in (
                ('_bucket', buckets), ('_sum', sums), ('_count', counts)):
            for value, labels in found:
                yield self._metric(
                    TIMES + ending, value, COUNTER, TIMES_SAY, **labels)

    def _metric(self, name: str, value: float, kind: str, words: str,
                **labels: str) -> Metric:
        return Metric(name=PREFIX + name, value=float(value), type=kind,
                      scope=self.scope, help=words, labels=labels)
