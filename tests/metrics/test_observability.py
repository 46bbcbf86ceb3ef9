"""The figures of clients at `@@metrics` of plone.observability.

Plone is too much to install for this: the two names of that package which are
used here are written down below, as release 1.0 has them.
"""

import dataclasses
import sys
import types
from unittest import mock

import OFS.interfaces
import ZODB
import zope.component
import zope.component.testing
import zope.configuration.xmlconfig
from ZODB.MappingStorage import MappingStorage
from ZODB.utils import maxtid
from ZODB.utils import z64
from zope.interface import Attribute
from zope.interface import Interface
from zope.interface import implementer

import fsyncstorage.metrics
from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.metrics.clients import ClientCollector

from ..server.serving import Served
from ..support import PATIENCE


class IMetricProvider(Interface):

    name = Attribute('Its name')
    scope = Attribute('global or instance')

    def collect():
        """Yield metrics."""


@dataclasses.dataclass
class Metric:
    name: str
    value: float
    type: str
    scope: str
    help: str
    labels: dict = dataclasses.field(default_factory=dict)


def as_installed():
    """Modules as those of the package are."""
    modules = {name: types.ModuleType(name) for name in (
        'plone', 'plone.observability', 'plone.observability.interfaces',
        'plone.observability.metric')}
    modules['plone'].observability = modules['plone.observability']
    modules['plone.observability.interfaces'].IMetricProvider = IMetricProvider
    modules['plone.observability.metric'].Metric = Metric
    return modules


@implementer(OFS.interfaces.IApplication)
class Application:

    def __init__(self, connection):
        self._p_jar = connection


class ObservabilityTestCase(Served):

    def setUp(self):
        super().setUp()
        zope.component.testing.setUp()
        self.addCleanup(zope.component.testing.tearDown)
        # It is imported by each test, with the package or what stands for it.
        ours = 'fsyncstorage.metrics.observability'
        self.addCleanup(sys.modules.pop, ours, None)
        self.addCleanup(fsyncstorage.metrics.__dict__.pop, 'observability',
                        None)
        self.client = FsyncClient(
            self.serve().addr, wait_timeout=PATIENCE, wait=True)
        databases = {}
        for name, storage in [
                ('main', self.client), ('temporary', MappingStorage())]:
            database = ZODB.DB(
                storage, database_name=name, databases=databases)
            self.addCleanup(database.close)
        connection = databases['main'].open()
        self.addCleanup(connection.close)
        self.application = Application(connection)
        self.client._cache.clear()
        self.client.loadBefore(z64, maxtid)

    def load_zcml(self):
        context = zope.configuration.xmlconfig.file(
            'meta.zcml', zope.component)
        zope.configuration.xmlconfig.file(
            'configure.zcml', fsyncstorage.metrics, context=context)

    def provided(self, interface):
        return dict(zope.component.getAdapters(
            (self.application,), interface))


class AsWrittenDown(ObservabilityTestCase):

    def setUp(self):
        super().setUp()
        modules = mock.patch.dict(sys.modules, as_installed())
        modules.start()
        self.addCleanup(modules.stop)

    def test_the_figures(self):
        self.load_zcml()
        (name, provider), = self.provided(IMetricProvider).items()
        self.assertEqual((name, provider.name), ('fsyncclient',) * 2)
        self.assertTrue(IMetricProvider.providedBy(provider))
        metrics = list(provider.collect())
        self.assertEqual({each.scope for each in metrics}, {'instance'})
        # No other storage than a client is asked.
        self.assertEqual(
            {each.labels['storage'] for each in metrics}, {'main'})
        # They are what the collector collects; there are no histograms.
        self.assertEqual(
            [(each.name, each.value, each.labels) for each in metrics],
            [(sample.name, sample.value, sample.labels)
             for family in ClientCollector({'main': self.client}).collect()
             for sample in sorted(family.samples, key=lambda one: one.name)])
        types = {each.name: each.type for each in metrics}
        for name, expected in (
                ('connected', 'gauge'), ('cache_misses_total', 'counter'),
                *((f'load_duration_seconds_{each}', 'counter')
                  for each in ('bucket', 'sum', 'count'))):
            self.assertEqual(types[f'fsyncclient_{name}'], expected, name)

    def test_all_of_a_name_follow_each_other(self):
        self.load_zcml()
        self.application._p_jar.db().databases['second'] = mock.Mock(
            storage=self.client)
        provider, = self.provided(IMetricProvider).values()
        names = [each.name for each in provider.collect()]
        changes = sum(a != b for a, b in zip(names, names[1:]))
        self.assertEqual(changes + 1, len(set(names)))
        self.assertEqual(names.count('fsyncclient_connected'), 2)


class WithoutThePackage(ObservabilityTestCase):

    def test_nothing_is_registered(self):
        for name in 'plone.observability', 'prometheus_client':
            with mock.patch.dict(
                    sys.modules, {**as_installed(), name: None}):
                self.load_zcml()
            self.assertNotIn('fsyncstorage.metrics.observability', sys.modules)
