"""Real members of etcd, for tests: processes on the loopback, each with a
directory of its own.

The program is ``build/etcd/etcd``, which ``make etcd`` builds, or that of the
system, if it is new enough.  Where there is none, tests are skipped
(`needed`).
Members end with their test, and with the process of the tests.
"""

import contextlib
import functools
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import unittest

from fsyncstorage.quorum.etcd.checks import OLDEST
from perf.ports import free_port

ROOT = pathlib.Path(__file__).parents[2]
BUILT = ROOT / 'build' / 'etcd' / 'etcd'
WITHOUT = ('there is no etcd 3.5.6 or newer here: build one with "make etcd",'
           ' which needs Go, or install etcd-server')
MEMBERS = 3
#: Seconds until all members answer.
STARTING = 60


@functools.cache
def program():
    """Where it is; None: there is none that is new enough."""
    for path in str(BUILT), shutil.which('etcd'):
        if path is not None and os.access(path, os.X_OK):
            said = subprocess.run(
                [path, '--version'], capture_output=True, text=True,
                check=False, timeout=STARTING).stdout
            found = re.search(r'etcd Version: (\d+)\.(\d+)\.(\d+)', said)
            if found and tuple(map(int, found.groups())) >= OLDEST:
                return path
    return None


def needed(test):
    """A class of tests that is skipped without it."""
    return unittest.skipIf(program() is None, WITHOUT)(test)


def asked(host, port, path, tls=None, **fields):
    """The answer of a member, by its gateway of JSON; None: it gave none."""
    connection = (
        http.client.HTTPConnection(host, port, timeout=2) if tls is None else
        http.client.HTTPSConnection(host, port, timeout=2, context=tls))
    with contextlib.closing(connection):
        try:
            connection.request('POST', path, json.dumps(fields))
            with connection.getresponse() as response:
                answer = json.loads(response.read())
        except (OSError, ValueError, http.client.HTTPException):
            return None
    return None if 'error' in answer or 'code' in answer else answer


class Process:
    """A member."""

    def __init__(self, cluster, number, client, peer):
        self.cluster = cluster
        self.name = f'm{number}'
        self.port = client
        self.address = f'{cluster.scheme}://127.0.0.1:{client}'
        self.peer = f'http://127.0.0.1:{peer}'
        self.directory = os.path.join(cluster.directory, self.name)
        self.process = None

    def start(self, *options):
        log = os.path.join(self.cluster.directory, f'{self.name}.log')
        with open(log, 'ab') as output:
            self.process = subprocess.Popen(
                # (A function of Python would run in a fork of this process,
                # and grpcio may abort that.)
                ['setpriv', '--pdeathsig', 'KILL', program(),
                 '--name', self.name,
                 '--data-dir', self.directory,
                 '--listen-client-urls', self.address,
                 '--advertise-client-urls', self.address,
                 '--listen-peer-urls', self.peer,
                 '--initial-advertise-peer-urls', self.peer,
                 '--initial-cluster', self.cluster.initial,
                 '--log-level', 'warn',
                 *self.cluster.options, *options],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                cwd=self.cluster.directory)

    def kill(self):
        """As if its machine had lost its power, but for its disk."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def ask(self, path, **fields):
        """Its answer, straight from it; None: it gave none."""
        return asked('127.0.0.1', self.port, path, self.cluster.tls, **fields)

    @property
    def is_leader(self):
        status = self.ask('/v3/maintenance/status') or {}
        leader = status.get('leader', '0')
        return leader != '0' and leader == status['header']['member_id']

    @property
    def is_ready(self):
        """It answers what a majority has to confirm."""
        return self.ask('/v3/cluster/member/list') is not None


class EtcdCluster:

    def __init__(self, directory, *options, members=MEMBERS, files=None):
        """`files`: of TLS (`tlsfiles`)."""
        self.directory = directory
        self.options = options
        self.scheme = 'http' if files is None else 'https'
        self.tls = None
        if files is not None:
            self.tls = ssl.create_default_context(cafile=files.ca)
            self.tls.load_cert_chain(files.cert, files.key)
            self.options += files.options
        self.members = [
            Process(self, number, free_port(), free_port())
            for number in range(members)]
        self.initial = ','.join(
            f'{each.name}={each.peer}' for each in self.members)

    @property
    def addresses(self):
        return [each.address for each in self.members]

    def start(self):
        try:
            for each in self.members:
                each.start()
            self.wait_until_ready()
        except BaseException:
            self.close()
            raise

    def wait_until_ready(self):
        deadline = time.monotonic() + STARTING
        for each in self.members:
            while not each.is_ready:
                if (time.monotonic() > deadline
                        or each.process.poll() is not None):
                    log = pathlib.Path(self.directory, f'{each.name}.log')
                    raise AssertionError(
                        f'a member does not start: {log.read_text()[-2000:]}')
                time.sleep(0.05)

    @property
    def leader(self):
        deadline = time.monotonic() + STARTING
        while time.monotonic() < deadline:
            for each in self.members:
                if each.process is not None and each.is_leader:
                    return each
            time.sleep(0.05)
        raise AssertionError('no member leads')

    @property
    def followers(self):
        leader = self.leader
        return [each for each in self.members if each is not leader]

    def close(self):
        for each in self.members:
            each.kill()


class Layer:
    """A cluster for the tests of some classes, as zope.testrunner has it."""

    __bases__ = ()

    def __init__(self, name, *options, files=None, prepare=None):
        """`files` makes those of TLS in a directory; `prepare` is called with
        the cluster when it runs."""
        self.__name__ = name
        self.__module__ = __name__
        self._options = options
        self._make_files = files
        self._prepare = prepare
        self.files = self.cluster = self._directory = None

    def setUp(self):
        if program() is None:
            print(f'  {WITHOUT}')
            return
        self._directory = tempfile.TemporaryDirectory(
            prefix='fsyncstorage-etcd-')
        if self._make_files is not None:
            self.files = self._make_files(self._directory.name)
        self.cluster = EtcdCluster(
            self._directory.name, *self._options, files=self.files)
        self.cluster.start()
        if self._prepare is not None:
            self._prepare(self.cluster)

    def tearDown(self):
        if self.cluster is not None:
            self.cluster.close()
            self._directory.cleanup()
