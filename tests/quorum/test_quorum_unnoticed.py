"""A planned change of the node that leads, under load: no commit fails."""

import json
import os
import subprocess
import sys

import ZODB

from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.quorum.roles import stepdown

from ..support import until
from .pair import OnEtcd
from .pair import Pair


class Unnoticed(Pair):

    level = 3
    times = 2

    def setUp(self):
        super().setUp()
        for each in self.nodes:
            each.configure(f'blob-dir {each.home}/blobs')

    def test_nobody_notices(self):
        self.both()
        clients = [self.start_counting(trips) for trips in ('one', 'two')]
        for _ in range(self.times):
            self.step_down()
        counted = {}
        for each in clients:
            said, _ = each.communicate()
            self.assertEqual(each.returncode, 0, self.said())
            told = json.loads(said.splitlines()[-1])  # behind log lines
            self.assertEqual(told['errors'], [])
            counted |= told['counted']
        self.check(counted)
        self.ends_equal()

    def start_counting(self, trips):
        ports = ','.join(str(each.address[1]) for each in self.nodes)
        process = subprocess.Popen(
            [sys.executable, '-m', 'tests.quorum.counting', ports, trips,
             self.path(f'cache {trips}')], **{
                 **self.options, 'cwd': os.getcwd(),
                 'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), b'counting\n')
        return process

    def step_down(self):
        first, second = sorted(self.nodes, key=lambda each: not each.leads)
        self.assertTrue(stepdown.ask(self.log()))
        until(lambda: second.leads, 'the other one leads')
        until(lambda: first.stands_by, 'it follows now')

    def check(self, counted):
        client = FsyncClient([each.address for each in self.nodes])
        db = ZODB.DB(client)
        with db.transaction() as connection:
            self.assertEqual(
                {name: connection.root()[name]['value'] for name in counted},
                counted)
        db.close()


class UnnoticedOnEtcd(OnEtcd, Unnoticed):

    times = 20
