"""Two nodes as processes, fsync-runzeo each, over one log."""

import os
import pathlib
import shutil
import signal

from fsyncstorage.quorum.beginning.bootstrap import begin
from fsyncstorage.quorum.etcd.engine import EtcdLog
from fsyncstorage.quorum.etcd.section import PREFIX
from fsyncstorage.quorum.etcd.settings import Settings
from fsyncstorage.quorum.etcd.settings import address
from perf.ports import free_port

from ..commands import SCRIPTS
from ..commands import Commands
from ..metrics.asking import probe
from ..support import until
from .etcdcluster import EtcdCluster
from .etcdcluster import needed
from .gateway import Gateways

CONFIG = """
%import fsyncstorage
<zeo>
  address 127.0.0.1:{port}
</zeo>
<fsyncstorage 1>
  path {path}
  durability quorum
  {more}
  <quorum>
    node {name}
    log pair
    etcd {etcd}
    lease {lease}s
  </quorum>
  <metrics>
    address {probes}
  </metrics>
</fsyncstorage>
"""


class Member:
    """One node: its files, and its process."""

    def __init__(self, test, name, port, probes):
        self._test = test
        self.name = name
        self.address = '127.0.0.1', port
        self.probes = '127.0.0.1', probes
        self.home = pathlib.Path(test.path(name))
        self.home.mkdir()
        self.path = str(self.home / 'Data.fs')
        self.process = None

    def configure(self, more=''):
        (self.home / 'zeo.conf').write_text(CONFIG.format(
            port=self.address[1], path=self.path, name=self.name, more=more,
            etcd=' '.join(self._test.etcd), lease=self._test.lease,
            probes=self.probes[1]))

    def start(self):
        """Return when it follows, or leads."""
        self.process = self._test.start(
            [*SCRIPTS['fsync-runzeo'], '-C', str(self.home / 'zeo.conf')],
            lambda: self.follows or self.leads)

    def ready(self):
        """The status of the probe, and its words; of none, 0."""
        try:
            status, said = probe(self.probes, '/ready')
        except OSError:
            return 0, ''
        return status, said['storages'].get('1', '')

    @property
    def leads(self):
        return self.ready()[0] == 200

    @property
    def follows(self):
        status, words = self.ready()
        return status == 503 and 'standby, 0 records and 0 bytes' in words

    def kill(self):
        self.process.kill()
        self.process.wait()

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def end(self):
        """Its exit status."""
        self.process.terminate()
        return self.process.wait()

    def files(self):
        """What it has open."""
        home = f'/proc/{self.process.pid}/fd'
        found = []
        for name in os.listdir(home):
            try:
                found.append(os.readlink(f'{home}/{name}'))
            except FileNotFoundError:
                pass
        return found

    def content(self):
        return pathlib.Path(self.path).read_bytes()


class Pair(Commands):

    #: Seconds.
    lease = 2

    def setUp(self):
        super().setUp()
        self.etcd = self.members_of_the_log()
        self.a, self.b = self.nodes = [
            Member(self, name, free_port(), free_port()) for name in 'ab']
        for each in self.nodes:
            each.configure()
        begin(self.a.path, self.log())
        for name in 'Data.fs', 'Data.fs.quorum':
            shutil.copy(self.a.home / name, self.b.home / name)

    def members_of_the_log(self):
        """Their addresses."""
        gateways = Gateways()
        self.addCleanup(gateways.close)
        return gateways.addresses

    def log(self):
        log = EtcdLog(Settings(
            list(map(address, self.etcd)), f'{PREFIX}pair'))
        self.addCleanup(log.close)
        return log

    def both(self):
        """`a` leads, `b` follows."""
        self.a.start()
        until(lambda: self.a.leads, 'the first one leads')
        self.b.start()
        until(lambda: self.b.follows, 'the second one follows')

    def ends_equal(self):
        """When both have ended, one after the other, they have the same
        bytes."""
        first, second = sorted(self.nodes, key=lambda each: not each.leads)
        first.end()
        if second.process.poll() is None:
            until(lambda: second.leads, 'it has read all')
            second.end()
        self.assertEqual(self.a.content(), self.b.content())


@needed
class OnEtcd:
    """The same on real members: mixed with a Pair."""

    level = 3

    def members_of_the_log(self):
        directory = self.path('etcd')
        os.mkdir(directory)
        cluster = EtcdCluster(directory)
        self.addCleanup(cluster.close)
        cluster.start()
        return cluster.addresses
