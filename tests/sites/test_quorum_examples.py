"""What is in examples/quorum: a node starts from it, and its parts fit.

The members of etcd are threads (tests.quorum.gateway); no container and no
service is started.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

from perf.ports import free_port

from ..commands import SCRIPTS
from ..commands import Commands
from ..metrics.asking import EXAMPLES
from ..metrics.asking import probe
from ..quorum.gateway import Gateways
from ..support import PATIENCE

HERE = EXAMPLES / 'quorum'
MEMBERS = ['one', 'two', 'three']
NODES = ['a', 'b']


def text_of(name):
    return (HERE / name).read_text()


class Fit(Commands):

    level = 2

    def test_the_members_are_the_same_everywhere(self):
        self.assertEqual(
            re.search(r'^    etcd (.*)$', text_of('zeo.conf'),
                      re.MULTILINE)[1].split(),
            [f'http://{name}:2379' for name in MEMBERS])
        cluster = ','.join(f'{name}=http://{name}:2380' for name in MEMBERS)
        for name in 'etcd.service', 'compose.yaml':
            self.assertIn(cluster, text_of(name))

    def test_each_member_and_node_has_its_container(self):
        text = text_of('compose.yaml')
        services = re.findall(r'^  (\w+):$', text, re.MULTILINE)
        self.assertEqual(services, [*NODES, *MEMBERS, 'proxy'])
        for name in MEMBERS:
            self.assertIn(f'ETCD_NAME: {name}\n', text)
            for port in 2379, 2380:
                self.assertEqual(
                    text.count(f'_URLS: http://{name}:{port}\n'), 1)
        self.assertEqual(
            re.findall(r'^    hostname: (\w+)$', text, re.MULTILINE), NODES)

    def test_what_haproxy_asks(self):
        text = text_of('haproxy.cfg')
        self.assertEqual(
            re.findall(r'^    server (\w+) \1:8100 check$', text,
                       re.MULTILINE), NODES)
        self.assertIn('meth GET uri /ready', text)
        for port in 8100, 8190:
            self.assertIn(f':{port}\n', text_of('zeo.conf'))
        self.assertIn('port 8190', text)

    @unittest.skipUnless(shutil.which('haproxy'), 'haproxy is not installed')
    def test_haproxy_understands_it(self):
        path = self.path('haproxy.cfg')
        pathlib.Path(path).write_text(re.sub(
            r'(server \w) \w:', r'\1 127.0.0.1:', text_of('haproxy.cfg')))
        done = subprocess.run(
            ['haproxy', '-c', '-f', path], timeout=PATIENCE, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)

    @unittest.skipUnless(
        shutil.which('systemd-analyze'), 'systemd-analyze is not installed')
    def test_systemd_understands_it(self):
        unit = self.path('etcd.service')
        pathlib.Path(unit).write_text(text_of('etcd.service').replace(
            '/usr/local/bin/etcd', sys.executable))
        found = subprocess.run(
            ['systemd-analyze', 'verify', '--man=no', unit],
            capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual((found.returncode, found.stderr), (0, ''))


class Starts(Commands):

    level = 3

    def test_two_nodes(self):
        """As the comments in zeo.conf tell, each in a directory."""
        gateways = Gateways()
        self.addCleanup(gateways.close)
        for node in NODES:
            home = self.path(node)
            os.mkdir(home)
            port, metrics = free_port(), free_port()
            text = text_of('zeo.conf').replace(
                '0.0.0.0:8100', f'127.0.0.1:{port}').replace(
                '0.0.0.0:8190', f'127.0.0.1:{metrics}').replace(
                '    log mysite', f'    node {node}\n    log mysite')
            for name, address in zip(MEMBERS, gateways.addresses, strict=True):
                text = text.replace(f'http://{name}:2379', address)
            pathlib.Path(home, 'zeo.conf').write_text(text)
            self.options['cwd'] = home
            subprocess.run(
                [*SCRIPTS['fsync-quorum'], 'bootstrap', '-C', 'zeo.conf',
                 *(['--from', self.path('a')] if node != 'a' else [])],
                check=True, timeout=PATIENCE, **self.options)
            self.start([*SCRIPTS['fsync-runzeo'], '-C', 'zeo.conf'],
                       lambda: self.is_up(metrics, leads=node == 'a'))

    def is_up(self, metrics, leads):
        try:
            status, found = probe(('127.0.0.1', metrics), '/ready')
        except OSError:
            return False
        return status == 200 if leads else 'standby, 0 records' in str(found)
