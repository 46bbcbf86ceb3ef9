"""Two processes, of which one leads and one follows: killed, frozen, ended.

I16, as far as processes show it, and what is left behind.
"""

import signal
import socket

from ZEO.ClientStorage import ClientStorage

from fsyncstorage.client.storage import FsyncClient

from ..commands import SCRIPTS
from ..server.serving import Peer
from ..support import PATIENCE
from ..support import commit as commit_with
from ..support import oid
from ..support import until
from .gateway import Gateways
from .pair import OnEtcd
from .pair import Pair


def commit(storage, records):
    """(ZEO's clients want to be called.)"""
    return commit_with(storage, records, f=lambda tid: None)


class TwoNodes(Pair):

    def client(self):
        """Of both."""
        found = FsyncClient(
            [each.address for each in self.nodes], wait_timeout=PATIENCE)
        self.addCleanup(found.close)
        return found


class Takeover(TwoNodes):

    level = 2

    def test_frozen(self):
        """It answers nobody when it goes on, and follows in the same process,
        with nothing of what it was; and it leads again when the other one is
        killed."""
        self.both()
        storage = self.client()
        commit(storage, {1: b'one'})
        before = len(self.a.files())
        self.a.freeze()
        until(lambda: self.b.leads, 'the other one leads')
        self.a.thaw()
        until(lambda: self.a.follows, 'it follows now')
        self.assertIsNone(self.a.process.poll())
        self.assertLessEqual(len(self.a.files()), before)
        until(storage.is_connected, 'connected')
        commit(storage, {2: b'two'})
        self.b.kill()
        until(lambda: self.a.leads, 'it leads again')
        until(storage.is_connected, 'connected')
        self.assertEqual(storage.load(oid(2))[0], b'two')
        self.ends_equal()


class Ends(TwoNodes):

    level = 3

    def test_ended(self):
        """The lease is given back, and nobody waits for its end."""
        self.both()
        self.assertEqual(self.a.end(), 0)
        until(lambda: self.b.leads, 'the other one leads')
        self.assertNotIn('fenced', self.said())
        self.ends_equal()

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

    def members_of_the_log(self):
        self.gateways = Gateways()
        self.addCleanup(self.gateways.close)
        return self.gateways.addresses

    def start_alone(self):
        self.a.process = self.start(
            [*SCRIPTS['fsync-runzeo'], '-C', str(self.a.home / 'zeo.conf')],
            lambda: 'starting' in self.a.ready()[1])

    def test_a_start_waits_and_can_be_ended(self):
        self.gateways.close()
        self.start_alone()
        self.assertEqual(self.a.end(), 0)

    def test_a_client_that_asks_nothing(self):
        """A stock one, which reads from its cache: it is sent away when the
        lease is over."""
        self.a.start()
        until(lambda: self.a.leads, 'it leads')
        client = ClientStorage(self.a.address, wait_timeout=PATIENCE)
        self.addCleanup(client.close)
        tid = commit(client, {1: b'one'})
        self.assertEqual(client.load(oid(1)), (b'one', tid))
        self.gateways.close()
        until(lambda: not client.is_connected(), 'it is sent away')

    def test_a_primary_can_be_ended(self):
        self.a.start()
        until(lambda: self.a.leads, 'it leads')
        self.gateways.close()
        until(lambda: not self.a.leads, 'it does not answer')
        self.assertIn('lease', self.a.ready()[1])
        self.assertEqual(self.a.end(), 0)


class TakeoverOnEtcd(OnEtcd, Takeover, Ends):
    pass
