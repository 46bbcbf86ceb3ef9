"""Each alert of examples/prometheus fires when its fault is made."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import threading
import time
import unittest
from unittest import mock

from prometheus_client import CollectorRegistry
from prometheus_client import generate_latest
from ZODB.FileStorage import FileStorage

from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.metrics import exporters
from fsyncstorage.metrics import pulse
from fsyncstorage.metrics.clients import ClientCollector
from fsyncstorage.pack.progress import Watch
from fsyncstorage.scrub import scrubbing

from ..server.serving import Served
from ..server.serving import record
from ..support import PATIENCE
from ..support import Thread
from ..support import commit
from ..support import until
from .alerting import ALERTS
from .alerting import EXAMPLES
from .alerting import TARGET
from .alerting import Node
from .alerting import Series
from .alerting import rules
from .alerting import samples
from .asking import NothingIsKept
from .asking import get

HERE = '127.0.0.1', 0
DAY = 86400
# Between two scrapes: in seconds, as prometheus.yml has it; and for days.
USUAL, SELDOM = 15, 300

DASHBOARD = EXAMPLES / 'grafana' / 'fsyncstorage.json'


def queries():
    """Those of the dashboard, with values for its variables: the storage of a
    server is called 1, and main by its client."""
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard['panels']:
        for target in panel.get('targets', ()):
            yield (target['expr'].replace('$__rate_interval', '1m')
                   .replace('$storage', '1').replace('$database', 'main')
                   .replace('$instance', '.*'))


class ServedAndShown(NothingIsKept, Served):

    def show(self, **options):
        self.storage = self.open(**options)
        self.server = self.serve(self.storage, metrics=HERE)
        self.address = self.server._shown[0].exporter.address
        return self.storage


class Names(ServedAndShown):
    """What rules and dashboard ask for is there."""

    def setUp(self):
        super().setUp()
        self.show(scrub_rate='2MB', pack_process=False)
        self.client = FsyncClient(
            self.server.addr, wait_timeout=PATIENCE, wait=True,
            blob_dir=self.path('cache'), blob_cache_size=1000)
        self.addCleanup(self.client.close)
        tid = commit(self.storage, {0: record(1)})
        commit(self.storage, {0: record(2)}, {0: tid})
        shown = []
        tell = Watch.tell

        def look(watch, *args):
            tell(watch, *args)
            shown.append(get(self.address, '/metrics')[1])

        with mock.patch.object(Watch, 'tell', look):
            self.storage.pack(time.time(), lambda data: [])
        until(lambda: self.storage.stats()['scrub']['passes'], 'one has ended')
        registry = CollectorRegistry()
        registry.register(ClientCollector({'main': self.client}))
        node = exporters.Showing(HERE, 'node', node=Node())
        self.addCleanup(node.close)
        shown += [get(self.address, '/metrics')[1],
                  generate_latest(registry).decode()]
        #: name -> the values of each label that it has been seen with.
        self.labels = {'up': {name: {TARGET[name]} for name in TARGET}}
        for text in shown:
            for name, labels in samples(text):
                of = self.labels.setdefault(name, {})
                for label, value in labels:
                    of.setdefault(label, set()).add(value)

    def check(self, query):
        names = re.findall(r'\b(?:fsync(?:storage|client)_\w+|up\b)', query)
        self.assertTrue(names, query)
        self.assertLessEqual(set(names), set(self.labels), query)
        every = {label for name in names for label in self.labels[name]}
        grouped = {
            label for labels in re.findall(
                r'\b(?:by|on|without|ignoring) *\(([^)]*)\)', query)
            for label in re.split(r'[, ]+', labels)}
        self.assertLessEqual(grouped, every, query)
        for name, matchers in re.findall(r'(\w+)\{([^}]*)\}', query):
            for label, kind, value in re.findall(
                    r'(\w+)(=~|=)"([^"]*)"', matchers):
                self.assertIn(label, self.labels[name], query)
                self.assertTrue(any(
                    each == value if kind == '=' else re.fullmatch(value, each)
                    for each in self.labels[name][label]), query)

    def test_of_the_alerts(self):
        self.assertEqual(
            len(rules()), ALERTS.read_text().count('- alert:'))
        for name, query in rules().items():
            with self.subTest(name):
                self.check(query)

    def test_of_the_dashboard(self):
        for query in queries():
            with self.subTest(query):
                self.check(query)

    def test_one_that_is_not_there(self):
        for query in ('fsyncstorage_no_such_thing', 'up{joke="x"}',
                      'sum by (oid) (up)',
                      'fsyncstorage_transactions_waiting{phase="nap"}',
                      'fsyncstorage_objects{storage=~"main"}'):
            with self.subTest(query), self.assertRaises(AssertionError):
                self.check(query)


@unittest.skipUnless(
    shutil.which('promtool'), 'promtool (of prometheus) is not installed')
class Faults(ServedAndShown):

    level = 3

    def setUp(self):
        super().setUp()
        beats = mock.patch.object(pulse, 'EVERY', 0.01)
        beats.start()
        self.addCleanup(beats.stop)

    def series(self, interval=USUAL):
        """With one scrape, of a server with which all is well."""
        series = Series(self.address, interval)
        self.take(series)
        return series

    def take(self, series):
        """Behind nearly as many beats of the loop as there usually are."""
        lag = self.server._shown[0].exporter.servers()[0].pulse.lag
        enough = lag.count + 25
        until(lambda: lag.count >= enough, 'it beats')
        series.take()

    def check(self, series, *alerts):
        self.assertEqual(series.firing(), sorted(alerts))

    def test_all_is_well(self):
        storage = self.show(scrub_rate='2MB', pack_process=False)
        for number in range(3):
            commit(storage, {number: record(number)})
        self.pack(storage)
        series = self.series()
        commit(storage, {4: record(4)})
        self.take(series)
        series.it_goes_on(1200)
        self.check(series)

    def pack(self, storage):
        storage.pack(time.time(), lambda data: [])

    def test_a_sync_that_fails(self):
        disk = self.controlled_disk()
        storage = self.show()
        commit(storage, {1: b'x'})
        series = self.series()
        disk.fail_sync(OSError('I/O error'))
        with self.assertRaises(Exception), self.assertLogs('fsyncstorage'):
            commit(storage, {2: b'x'})
        self.take(series)
        self.check(series, 'FsyncstorageWritingStopped')
        with self.assertLogs('fsyncstorage', 'ERROR'):
            storage.close()

    def test_a_sync_that_does_not_end(self):
        disk = self.controlled_disk()
        storage = self.show()
        series = self.series()
        disk.hold_syncs()
        thread = Thread(commit, storage, {1: b'x'})
        disk.wait_for_sync()
        for _ in range(2):
            self.take(series)
        series.it_goes_on(180)
        self.check(series, 'FsyncstorageSyncHangs')
        disk.release_syncs()
        thread.result()
        self.take(series)
        self.check(series)

    def test_slow_syncs(self):
        disk = self.controlled_disk()
        storage = self.show()
        for number in range(3):
            commit(storage, {number: b'x'})
        series = self.series()
        for number in range(3):
            disk.hold_again()
            thread = Thread(commit, storage, {10 + number: b'x'})
            disk.wait_for_sync()
            time.sleep(0.3)  # this is the fault
            disk.release_syncs()
            thread.result()
        self.take(series)
        series.it_goes_on(300)
        self.check(series)
        series.it_goes_on(1200)
        self.check(series, 'FsyncstorageSyncsSlow')

    def test_a_loop_that_is_blocked(self):
        self.show()
        series = self.series()
        self.take(series)
        blocked, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)

        def block():
            blocked.set()
            go_on.wait(PATIENCE)

        self.server.mailbox.post(block)
        self.assertTrue(blocked.wait(PATIENCE))
        for _ in range(2):
            series.take()
        self.check(series)
        series.it_stays_so(60)
        self.check(series, 'FsyncstorageLoopBlocked')
        go_on.set()

    def test_damage(self):
        options = {'scrub_rate': '1GB', 'pack_process': False}
        storage = self.show(**options)
        commit(storage, {1: record('x' * 1000)})
        damaged = storage.getSize() - 200
        for number in 2, 3:
            commit(storage, {number: record('y')})
        series = self.series()
        self.server.close()
        with open(self.path(), 'r+b') as file:
            os.pwrite(file.fileno(), b'damage', damaged)
            os.fsync(file.fileno())
        with mock.patch.object(scrubbing, 'LOOK_AGAIN_AFTER', 0.01), \
                self.assertLogs('fsyncstorage', 'ERROR'):
            storage = self.show(**options)
            series.address = self.address
            until(lambda: storage.stats()['scrub']['damaged'], 'it is found')
            self.take(series)
            self.check(series, 'FsyncstorageDamageFound')
            with self.assertRaises(Exception):
                self.pack(storage)
            self.take(series)
            self.check(
                series, 'FsyncstorageDamageFound', 'FsyncstoragePackFailed')

    def watched(self, days, *scrapes):
        """What fires so many days behind the last of these.  A day before
        them, the server was there already."""
        series = Series(self.address, SELDOM)
        series.take()
        series.it_stayed_so(DAY)
        for scrape in scrapes:
            scrape()
            series.address = self.address
            series.take()
        series.take()
        series.it_stays_so(days * DAY)
        return series.firing()

    def packed_too_late(self, days, *scrapes):
        firing = self.watched(days, *scrapes)
        self.assertLessEqual(set(firing), {'FsyncstoragePackTooOld'})
        return bool(firing)

    def test_a_pack_that_is_too_long_ago(self):
        storage = self.show(pack_process=False)
        tid = commit(storage, {0: record(1)})
        commit(storage, {0: record(2)}, {0: tid})

        self.assertFalse(self.packed_too_late(6.9))
        self.assertTrue(self.packed_too_late(7.1))
        self.assertFalse(
            self.packed_too_late(7.9, lambda: self.pack(storage)))
        self.assertTrue(self.packed_too_late(8.1))

    def test_a_pack_before_a_restart(self):
        """It was seen, though not for long."""
        storage = self.show(pack_process=False)
        tid = commit(storage, {0: record(1)})
        commit(storage, {0: record(2)}, {0: tid})

        def restart():
            self.server.close()
            self.show(pack_process=False)

        def pack():
            self.pack(self.storage)

        self.assertFalse(self.packed_too_late(7.9, pack, restart))
        self.assertTrue(self.packed_too_late(8.1, pack, restart))

    def test_what_nobody_can_pack_here(self):
        """A file that another process writes, and a storage of ZODB's."""

        commit(self.open(), {0: record(1)})
        stock = FileStorage(self.path('stock.fs'))
        for storage in self.open(read_only=True), stock:
            with self.subTest(storage.__class__), contextlib.closing(storage):
                self.server = self.serve(storage, metrics=HERE)
                self.address = self.server._shown[0].exporter.address
                self.assertIn('fsyncstorage_data_bytes{', get(
                    self.address, '/metrics')[1])
                self.assertFalse(self.packed_too_late(9))
                self.server.close()

    def test_a_scrub_that_does_not_get_on(self):
        with mock.patch.object(scrubbing, 'TRY_AGAIN_AFTER', 0.01), \
                mock.patch.object(scrubbing.Scrub, '_read',
                                  side_effect=OSError('it cannot be read')), \
                self.assertLogs('fsyncstorage', 'ERROR'):
            storage = self.show(scrub_rate='1GB')
            series = self.series()
            until(lambda: storage.stats()['scrub']['interrupted'] > 1, 'twice')
            self.take(series)
        self.check(series, 'FsyncstorageScrubInterrupted')

    def test_a_pass_that_never_ends(self):
        with mock.patch.object(
                scrubbing.starting, 'is_possible', return_value=False), \
                self.assertLogs('fsyncstorage', 'WARNING'):
            self.show(scrub_rate='2MB')
        commit(self.storage, {0: record(1)})
        self.assertNotIn('FsyncstorageScrubTooOld', self.watched(6.9))
        self.assertIn('FsyncstorageScrubTooOld', self.watched(7.1))

    def test_a_pass_that_is_too_long_ago(self):
        storage = self.show(scrub_rate='1GB')
        commit(storage, {0: record(1)})
        until(lambda: storage.stats()['scrub']['passes'], 'one has ended')
        self.assertNotIn('FsyncstorageScrubTooOld', self.watched(7.9))
        self.assertIn('FsyncstorageScrubTooOld', self.watched(8.1))

    def test_nodes_of_a_quorum(self):
        for alert, seconds, fault in (
                (None, 600, {}),
                ('FsyncstorageNoPrimary', 120, {'role': 'standby'}),
                ('FsyncstorageNodeLags', 240, {'lag_bytes': 20_000_000}),
                ('FsyncstorageLogSilent', 60,
                 {'seconds_without_contact': 20.0}),
                ('FsyncstorageLogNearLimit', 120, {'log_size': 90})):
            with self.subTest(alert):
                self.check_nodes([{'role': 'primary', **fault}, {}],
                                 seconds, *filter(None, [alert]))
        self.check_nodes([{'role': 'primary'}], 600,
                         'FsyncstorageNodeMissing')

    def check_nodes(self, nodes, seconds, *alerts):
        with contextlib.ExitStack() as stack:
            taken = []
            for number, figures in enumerate(nodes):
                shown = stack.enter_context(contextlib.closing(
                    exporters.Showing(HERE, 'main', node=Node(**figures))))
                with mock.patch.dict(TARGET, instance=f'node {number}'):
                    series = Series(shown.exporter.address, USUAL)
                    series.take()
                    series.take()
                    taken.append(series)
                shown.close()
            first, *others = taken
            for other in others:
                first.beside(other)
            first.it_stays_so(seconds)
            self.check(first, *alerts)

    def test_figures_that_cannot_be_read(self):
        self.show()
        series = self.series()
        with mock.patch.object(
                self.server.services['1'], 'own_status',
                side_effect=ZeroDivisionError), \
                self.assertLogs('fsyncstorage', 'ERROR'):
            self.take(series)
        self.check(series, 'FsyncstorageFiguresUnreadable')

    def test_a_server_of_which_prometheus_knows_nothing(self):
        self.show()
        series = Series(self.address, USUAL)
        self.server.close()
        with mock.patch.dict(TARGET, job='another'):
            series.take()
            series.it_stays_so(90)
            self.check(series, 'FsyncstorageDown')

    def test_a_server_that_is_gone(self):
        self.show()
        series = self.series()
        self.server.close()
        series.take()
        series.it_stays_so(90)
        self.check(series, 'FsyncstorageDown')

    def test_they_are_as_they_should_be(self):
        for what, name in ('rules', 'alerts.yml'), ('config',
                                                    'prometheus.yml'):
            done = subprocess.run(
                ['promtool', 'check', what, name], cwd=ALERTS.parent,
                text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.assertEqual(done.returncode, 0, done.stdout)

    def test_each_has_a_test(self):
        with open(__file__) as file:
            text = file.read()
        self.assertEqual([name for name in rules() if name not in text], [])
