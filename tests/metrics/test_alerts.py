"""The alerts and the dashboard of examples/: they ask for what there is, and
each alert fires when the figures say that its fault is there."""

import json
import re
import shutil
import subprocess
import time
import unittest
from unittest import mock

from prometheus_client import CollectorRegistry
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.metrics import backups
from fsyncstorage.metrics import exporters
from fsyncstorage.metrics.clients import ClientCollector
from fsyncstorage.pack.progress import PackWatch

from ..server.serving import Served
from ..server.serving import record
from ..support import PATIENCE
from ..support import commit
from ..support import until
from .asking import EXAMPLES
from .asking import NothingIsKept
from .asking import get

HERE = '127.0.0.1', 0
ALERTS = EXAMPLES / 'prometheus' / 'alerts.yml'
DASHBOARD = EXAMPLES / 'grafana' / 'fsyncstorage.json'

#: What Prometheus adds to all that it has scraped.
TARGET = {'job': 'fsyncstorage', 'instance': 'here'}


class Node:
    """One of a quorum, as its storage is not open yet."""

    trouble = 'this node is a standby'

    def stats(self):
        return {
            'role': 'standby', 'node': 'a', 'trouble': self.trouble,
            'epoch': 1, 'sequence': 1, 'generation': 0, 'lag_records': 0,
            'lag_bytes': 0, 'seconds_without_contact': 0.0, 'log_size': 0,
            'log_limit': 100}


def rules():
    """name -> expression, of all alerts."""
    found = re.findall(
        r'^      - alert: (\w+)\n(?: +#.*\n)* +expr: (?:\|\n((?: {10}.*\n)+)'
        r'|(.*)\n)', ALERTS.read_text(), re.MULTILINE)
    return {name: block or line for name, block, line in found}


def queries():
    """Those of the dashboard, with values for its variables: the storage of a
    server is called 1, and main by its client."""
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard['panels']:
        for target in panel.get('targets', ()):
            yield (target['expr'].replace('$__rate_interval', '1m')
                   .replace('$storage', '1').replace('$database', 'main')
                   .replace('$instance', '.*'))


class Names(NothingIsKept, Served):
    """What rules and dashboard ask for is there."""

    level = 2

    def setUp(self):
        super().setUp()
        storage = self.open(scrub_rate='2MB', pack_process=False)
        server = self.serve(storage, metrics=HERE)
        address = server._shown[0].exporter.address
        client = FsyncClient(
            server.addr, wait_timeout=PATIENCE, wait=True,
            blob_dir=self.path('cache'), blob_cache_size=1000)
        self.addCleanup(client.close)
        tid = commit(storage, {0: record(1)})
        commit(storage, {0: record(2)}, {0: tid})
        shown = []
        tell = PackWatch.tell

        def look(watch, *args):
            tell(watch, *args)
            shown.append(get(address, '/metrics')[1])

        with mock.patch.object(PackWatch, 'tell', look):
            storage.pack(time.time(), lambda data: [])
        until(lambda: storage.stats()['scrub']['passes'], 'one has ended')
        backups.write(self.path(), backups.Said(1.0, 2, 3.0))
        registry = CollectorRegistry()
        registry.register(ClientCollector({'main': client}))
        node = exporters.Showing(HERE, 'node', node=Node())
        self.addCleanup(node.close)
        shown += [get(address, '/metrics')[1],
                  generate_latest(registry).decode()]
        #: name -> the values of each label that it has been seen with.
        self.labels = {'up': {name: {TARGET[name]} for name in TARGET}}
        for text in shown:
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    of = self.labels.setdefault(sample.name, {})
                    for label, value in {**sample.labels, **TARGET}.items():
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

    def test_of_the_alerts_and_of_the_dashboard(self):
        self.assertEqual(
            len(rules()), ALERTS.read_text().count('- alert:'))
        for query in (*rules().values(), *queries()):
            with self.subTest(query):
                self.check(query)
        for query in ('fsyncstorage_no_such_thing', 'up{joke="x"}',
                      'sum by (oid) (up)',
                      'fsyncstorage_transactions_waiting{phase="nap"}',
                      'fsyncstorage_objects{storage=~"main"}'):
            with self.subTest(query), self.assertRaises(AssertionError):
                self.check(query)


#: Alert -> figures, as promtool writes series, that make it fire; when it does
#: not fire yet, and when it does.
SHORT = {
    'FsyncstorageWritingStopped': (
        {'writing_stopped': '0 1x4'}, '0s', '15s'),
    'FsyncstorageSyncHangs': (
        {'transactions_waiting{phase="sync"}': '0 1x40',
         'sync_duration_seconds_count': '4 5x40'}, '75s', '5m'),
    'FsyncstorageSyncsSlow': (
        {'sync_duration_seconds_bucket{le="0.1"}': '0x80',
         'sync_duration_seconds_bucket{le="0.5"}': '0+10x80',
         'sync_duration_seconds_bucket{le="+Inf"}': '0+10x80'}, '9m', '12m'),
    'FsyncstorageLoopBlocked': (
        {'loop_lag_seconds_count': '0+30x4 120x20'}, '60s', '2m'),
    'FsyncstorageBackupBehind': (
        {'backup_shipped_timestamp_seconds': '0x80'}, '2m', '4m'),
    'FsyncstorageDamageFound': (
        {'scrub_damaged_transactions': '0 1x4'}, '0s', '15s'),
    'FsyncstorageScrubInterrupted': (
        {'scrub_interruptions': '1 2x4'}, '0s', '15s'),
    'FsyncstoragePackFailed': (
        {'last_pack_succeeded': '1 0x4'}, '0s', '15s'),
    'FsyncstorageNoPrimary': (
        {'quorum_primary{node="a"}': '1 0x9',
         'quorum_primary{node="b"}': '0x10'}, '60s', '90s'),
    'FsyncstorageNodeMissing': (
        {'quorum_primary{node="a"}': '1x40'}, '4m', '6m'),
    'FsyncstorageNodeLags': (
        {'quorum_lag_bytes': '0 20000000x20'}, '90s', '3m'),
    'FsyncstorageLogSilent': (
        {'quorum_silence_seconds': '15 20x4'}, '0s', '15s'),
    'FsyncstorageLogNearLimit': (
        {'quorum_log_bytes': '79 81x9', 'quorum_log_limit_bytes': '100x10'},
        '60s', '90s'),
    'FsyncstorageFiguresUnreadable': (
        {'figures_readable': '1 0x4'}, '0s', '15s'),
    'FsyncstorageDown': ({'up': '1 0x9'}, '60s', '90s'),
}
#: The same, with a scrape an hour, for which promtool does less.
LONG = {
    'FsyncstorageDrillTooOld': (
        {'backup_drill_timestamp_seconds': '0x300'}, '191h', '193h'),
    'FsyncstorageScrubTooOld': (
        {'scrub_last_pass_timestamp_seconds': '0x300'}, '191h', '193h'),
    'FsyncstoragePackTooOld': (
        {'data_bytes': '1x300', 'writing_stopped': '0x300',
         'last_pack_success_timestamp_seconds': '0x300'}, '191h', '193h'),
}
#: Neither a pass nor a pack has ever ended.
NEVER = {
    'FsyncstorageDrillTooOld': (
        {'backup_shipped_timestamp_seconds': '0+3600x300'}, '191h', '193h'),
    'FsyncstorageScrubTooOld': (
        {'scrub_passes_total': '0x300'}, '191h', '193h'),
    'FsyncstoragePackTooOld': (
        {'data_bytes': '1x300', 'writing_stopped': '0x300'},
        '191h', '193h'),
}


@unittest.skipUnless(
    shutil.which('promtool'), 'promtool (of prometheus) is not installed')
class Faults(unittest.TestCase):

    def promtool(self, *arguments, **options):
        done = subprocess.run(
            ['promtool', *arguments], cwd=ALERTS.parent, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=PATIENCE, **options)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_they_are_as_they_should_be(self):
        self.promtool('check', 'rules', 'alerts.yml')
        self.promtool('check', 'config', 'prometheus.yml')

    def test_each_fires_when_its_fault_is_there_and_no_other(self):
        self.assertEqual(set(rules()), {*SHORT, *LONG})
        for interval, faults in ('15s', SHORT), ('1h', LONG), ('1h', NEVER):
            tests = {
                'rule_files': [str(ALERTS)], 'evaluation_interval': interval,
                'tests': [self.fault(interval, alert, *fault)
                          for alert, fault in faults.items()]}
            # YAML is a superset of JSON.
            self.promtool(
                'test', 'rules', '/dev/stdin', input=json.dumps(tests))

    def fault(self, interval, alert, figures, quiet, loud):
        figures = {'up': '1x300', **figures}
        return {
            'name': alert, 'interval': interval,
            'input_series': [
                {'series': self.labelled(name), 'values': values}
                for name, values in figures.items()],
            'promql_expr_test': [{
                'expr': 'count by (alertname) (ALERTS{alertstate="firing"})',
                'eval_time': when, 'exp_samples': [
                    {'labels': f'{{alertname="{each}"}}', 'value': 1}
                    for each in firing]}
                for when, firing in ((quiet, []), (loud, [alert]))]}

    @staticmethod
    def labelled(name):
        name, _, labels = name.partition('{')
        labels = [f'{each}="{value}"' for each, value in TARGET.items()
                  ] + [label for label in [labels.rstrip('}')] if label]
        if name != 'up':
            name = 'fsyncstorage_' + name
            labels.append('storage="main"')
        return f'{name}{{{",".join(labels)}}}'
