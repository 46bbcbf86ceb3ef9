"""The figures of clients for plone.observability, as a provider of metrics.

`configure.zcml` registers it for Zope's application object if
plone.observability is installed, and prometheus_client.  The former then asks
the provider for each answer of `@@metrics`.  The clients are those databases
of the application that are clients of ours, by the names that zope.conf gives
them.

plone.observability has no histograms.  So each histogram is given to it in the
form that it has in Prometheus' text: as counters with three names.
"""

import operator
from collections.abc import Iterator
from typing import Any

from plone.observability.interfaces import IMetricProvider
from plone.observability.metric import Metric
from zope.interface import implementer

from .clients import ClientCollector


@implementer(IMetricProvider)
class ClientMetrics:

    name = 'fsyncclient'
    #: Each process has its own figures.
    scope = 'instance'

    def __init__(self, application: Any) -> None:
        self._application = application

    def collect(self) -> Iterator[Metric]:
        """Metrics of the same name are together, as Prometheus demands."""
        databases = self._application._p_jar.db().databases
        clients = ClientCollector({
            name: database.storage for name, database in databases.items()
            if hasattr(database.storage, 'load_times')})
        for family in clients.collect():
            for sample in sorted(
                    family.samples, key=operator.attrgetter('name')):
                yield Metric(
                    name=sample.name, value=float(sample.value),
                    type='gauge' if family.type == 'gauge' else 'counter',
                    scope=self.scope, help=family.documentation,
                    labels=sample.labels)
