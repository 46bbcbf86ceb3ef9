"""Figures of clients: a known number of loads gives exactly these."""

import re

from prometheus_client import CollectorRegistry
from ZODB.utils import maxtid

from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.metrics.clients import ClientCollector

from ..server.serving import Served
from ..support import PATIENCE
from ..support import commit
from ..support import oid
from .test_figures import the_page


class Clients(Served):

    def setUp(self):
        super().setUp()
        storage = self.open()
        commit(storage, {1: b'x', 2: b'y', 3: b'z'})
        self.server = self.serve(storage)
        self.client = FsyncClient(
            self.server.addr, wait_timeout=PATIENCE, wait=True)
        self.addCleanup(self.client.close)
        self.registry = CollectorRegistry(auto_describe=True)
        self.registry.register(ClientCollector({'main': self.client}))

    def load(self, *numbers):
        for number in numbers:
            self.client.loadBefore(oid(number), maxtid)

    def check(self, **expected):
        self.assertEqual(
            {name: self.registry.get_sample_value(
                f'fsyncclient_{name}', {'storage': 'main'})
             for name in expected}, expected)

    def by_source(self):
        return {source: self.registry.get_sample_value(
            'fsyncclient_load_duration_seconds_count',
            {'storage': 'main', 'source': source})
            for source in ('channel', 'connection')}

    def test_hits_and_misses(self):
        self.check(connected=1, cache_hits_total=0, cache_misses_total=0)
        self.load(1, 2)
        self.check(cache_hits_total=0, cache_misses_total=2)
        self.load(1, 2, 1)
        self.check(cache_hits_total=3, cache_misses_total=2,
                   cache_evictions_total=0)
        self.assertEqual(self.by_source(), {'channel': 2, 'connection': 0})

    def test_loads_on_the_connection(self):
        reader, self.client._server._reader = (
            self.client._server._reader, None)
        self.load(1)
        self.client._server._reader = reader
        self.load(2, 3)
        self.assertEqual(self.by_source(), {'channel': 2, 'connection': 1})
        self.check(cache_misses_total=3)

    def test_without_a_server(self):
        self.client.close()
        self.check(connected=0)

    def test_the_documents_have_each(self):
        names = {
            family.name.removeprefix('fsyncclient_')
            + '_total' * (family.type == 'counter')
            for family in ClientCollector({}).collect()}
        documented = re.findall(
            r'^``(\w+)`` ', the_page().partition('Of a client')[2],
            re.MULTILINE)
        self.assertEqual(sorted(documented), sorted(names))
