"""Examples for those that watch and route: as it is said, and as it is asked.

What these programs would ask is there: at a server in a thread, with the paths
and ports of the examples.
"""

import re
import shutil
import subprocess
import unittest

from ..metrics.asking import EXAMPLES
from ..metrics.asking import probe
from ..server.serving import Served
from ..support import PATIENCE

HAPROXY = EXAMPLES / 'haproxy' / 'haproxy.cfg'
KUBERNETES = EXAMPLES / 'kubernetes' / 'fsyncstorage.yaml'

#: Probes of Kubernetes, and what each asks for.
PROBES = {'startup': '/startup', 'liveness': '/live', 'readiness': '/ready'}


class Watching(Served):

    level = 2

    def check_it_is_there(self, *paths):
        server = self.serve(metrics=('127.0.0.1', 0))
        address = server._shown[0].exporter.address
        for path in paths:
            self.assertEqual(probe(address, path)[0], 200)

    def test_what_haproxy_asks(self):
        path, = re.findall(r'meth GET uri (\S+)', HAPROXY.read_text())
        self.assertEqual(path, '/ready')
        self.check_it_is_there(path)

    @unittest.skipUnless(shutil.which('haproxy'), 'haproxy is not installed')
    def test_haproxy_understands_it(self):
        done = subprocess.run(
            ['haproxy', '-c', '-f', str(HAPROXY)], timeout=PATIENCE,
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertNotIn('WARNING', done.stdout)

    def test_clients_of_haproxy_come_back_to_the_primary(self):
        lines = [line.split() for line in HAPROXY.read_text().splitlines()]
        primary, reading = (line for line in lines if line[:1] == ['server'])
        self.assertEqual(primary[-2:], [
            'on-marked-up', 'shutdown-backup-sessions'])
        self.assertEqual(reading[-1], 'backup')

    def test_what_kubernetes_asks(self):
        text = KUBERNETES.read_text()
        found = dict(re.findall(
            r'(\w+)Probe:\n +httpGet: \{path: (\S+), port: metrics\}', text))
        self.assertEqual(found, PROBES)
        self.check_it_is_there(*found.values())

    def test_one_port_of_the_metrics(self):
        text = KUBERNETES.read_text()
        port, = re.findall(r'name: metrics, containerPort: (\d+)', text)
        self.assertIn(f'FSYNC_METRICS, value: "0.0.0.0:{port}"', text)
        self.assertIn(f'prometheus.io/port: "{port}"', text)
        self.assertIn(f'default-server port {port} ', HAPROXY.read_text())
        self.assertIn(
            f'"127.0.0.1:{port}"',
            (EXAMPLES / 'prometheus' / 'prometheus.yml').read_text())
