"""Two processes, fsync-runzeo each, of which one leads and one follows:
killed, frozen, ended.

I16, as far as processes show it, and what is left behind.
"""

import os
import pathlib
import shutil
import signal
import socket

from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.quorum.beginning.bootstrap import begin
from fsyncstorage.quorum.etcd.engine import EtcdLog
from fsyncstorage.quorum.etcd.section import PREFIX
from fsyncstorage.quorum.etcd.settings import Settings
from fsyncstorage.quorum.etcd.settings import address
from perf.ports import free_port

from ..commands import SCRIPTS
from ..commands import Commands
from ..metrics.asking import probe
from ..server.serving import Peer
from ..support import PATIENCE
from ..support import commit as commit_with
from ..support import oid
from ..support import until
from .gateway import Gateways

CONFIG = """
%import fsyncstorage
<zeo>
  address 127.0.0.1:{port}
</zeo>
<fsyncstorage 1>
  path {path}
  durability quorum
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
        (self.home / 'zeo.conf').write_text(CONFIG.format(
            port=port, path=self.path, name=name, etcd=' '.join(test.etcd),
            lease=test.lease, probes=probes))

    def start(self, is_up=None):
        """Return when it follows, or leads, if nothing else is said."""
        self.process = self._test.start(
            [*SCRIPTS['fsync-runzeo'], '-C', str(self.home / 'zeo.conf')],
            is_up or (lambda: self.follows or self.leads))

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

    def end(self):
        """Its exit status."""
        self.process.terminate()
        return self.process.wait()

    def open_files(self):
        return len(os.listdir(f'/proc/{self.process.pid}/fd'))


class Pair(Commands):

    #: Seconds.
    lease = 2

    def setUp(self):
        super().setUp()
        self.gateways = Gateways()
        self.addCleanup(self.gateways.close)
        self.etcd = self.gateways.addresses
        self.a, self.b = self.nodes = [
            Member(self, name, free_port(), free_port()) for name in 'ab']
        log = EtcdLog(Settings(
            list(map(address, self.etcd)), f'{PREFIX}pair'))
        self.addCleanup(log.close)
        begin(self.a.path, log)
        for name in 'Data.fs', 'Data.fs.quorum':
            shutil.copy(self.a.home / name, self.b.home / name)

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
        self.assertEqual(
            *(pathlib.Path(each.path).read_bytes() for each in self.nodes))


def commit(storage, records):
    """(ZEO's clients want to be called.)"""
    return commit_with(storage, records, f=lambda tid: None)


class Takeover(Pair):

    level = 2

    def client(self):
        """Of both."""
        found = FsyncClient(
            [each.address for each in self.nodes], wait_timeout=PATIENCE)
        self.addCleanup(found.close)
        return found

    def test_frozen(self):
        """It answers nobody when it goes on, and follows in the same process,
        with nothing of what it was; and it leads again when the other one is
        killed."""
        self.both()
        storage = self.client()
        commit(storage, {1: b'one'})
        before = self.a.open_files()
        self.a.process.send_signal(signal.SIGSTOP)
        until(lambda: self.b.leads, 'the other one leads')
        self.a.process.send_signal(signal.SIGCONT)
        until(lambda: self.a.follows, 'it follows now')
        self.assertIsNone(self.a.process.poll())
        self.assertLessEqual(self.a.open_files(), before)
        until(storage.is_connected, 'connected')
        commit(storage, {2: b'two'})
        self.b.process.kill()
        until(lambda: self.a.leads, 'it leads again')
        until(storage.is_connected, 'connected')
        self.assertEqual(storage.load(oid(2))[0], b'two')
        self.ends_equal()


class Ends(Pair):

    level = 3

    def test_a_node_that_follows_is_ended(self):
        self.both()
        for number, status in (signal.SIGTERM, 0), (signal.SIGHUP, 1):
            self.b.process.send_signal(number)
            self.assertEqual(self.b.process.wait(), status)
            self.b.start()
        self.assertTrue(self.a.leads)


class Killed(Pair):

    level = 2

    def test_its_port_is_closed_before_its_connections(self):
        """A stock client whose connection ends connects again at once.  If the
        system still accepts that, the client never tries this address again
        while its other one refuses: it was gone for good when this node was
        back."""
        for _ in range(5):
            self.a.start()
            until(lambda: self.a.leads, 'it leads')
            peers = [Peer(self.a.address) for _ in range(5)]
            self.a.process.kill()
            for each in peers:
                each.wait_for_end()
                with self.assertRaises(ConnectionRefusedError):
                    socket.create_connection(self.a.address)
                each.close()
            self.a.process.wait()


class NoLog(Pair):
    """None of its members answers."""

    level = 3

    def test_a_start_waits_and_can_be_ended(self):
        self.gateways.close()
        self.a.start(lambda: 'starting' in self.a.ready()[1])
        self.assertEqual(self.a.end(), 0)

    def test_a_primary_can_be_ended(self):
        self.a.start()
        until(lambda: self.a.leads, 'it leads')
        self.gateways.close()
        until(lambda: not self.a.leads, 'it does not answer')
        self.assertIn('lease', self.a.ready()[1])
        self.assertEqual(self.a.end(), 0)
