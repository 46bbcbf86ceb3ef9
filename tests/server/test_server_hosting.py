"""A server as the host of a node: who may not answer, who has to begin anew.

Whole processes are in test_quorum_pair.
"""

import contextlib
import os
import pathlib
import signal
import socket
import sys
import threading
import unittest
from types import SimpleNamespace
from unittest import mock

import ZEO.asyncio.server

from fsyncstorage.errors import LeaderChanged
from fsyncstorage.metrics import exporters
from fsyncstorage.metrics import probes
from fsyncstorage.quorum.leading.replicator import Replicator
from fsyncstorage.server import hosting
from fsyncstorage.server import listening
from fsyncstorage.server.connection import announcement
from fsyncstorage.server.connection import frame
from fsyncstorage.server.connection import greeting
from fsyncstorage.server.hosting import Hosting
from fsyncstorage.server.manager import Manager
from fsyncstorage.wire import frames
from fsyncstorage.wire import values
from perf.ports import free_port

from ..client.talking import Talking
from ..metrics.asking import metrics
from ..metrics.asking import probe
from ..support import PATIENCE
from ..support import TestCase
from ..support import Thread
from ..support import all_is_cached
from ..support import oid
from ..support import until
from .serving import record
from .test_manager import SHORT
from .test_manager import FakeManager
from .test_server_runner import RunnerTestCase
from .test_server_runner import realized
from .zeowire import call

try:
    import uvloop
except ModuleNotFoundError:
    uvloop = None


class NodeServed(Talking):

    def setUp(self):
        super().setUp()
        all_is_cached(self)
        self.may_answer = True
        self.storage = self.open()
        self.storage.replica = mock.Mock(
            spec=Replicator,
            trouble=None, may_answer=lambda: self.may_answer,
            sync=lambda end, read, commits, sync_disk: sync_disk())
        self.server = self.serve(
            self.storage, ('127.0.0.1', free_port()))
        self.zeo = self.connect(self.server)
        self.zeo.commit({1: record()})

    def test_no_process_reads(self):
        """One that was frozen could answer when another node leads."""
        stream = self.talk(self.server)
        self.assertIs(values.decoded(stream.welcome.about)['readers'], False)


class Silence(NodeServed):
    """Whoever may not answer hangs up."""

    def test_a_zeo_connection(self):
        self.may_answer = False
        self.zeo.ask('lastTransaction')
        self.zeo.wait_for_end()
        self.assertEqual(self.zeo.replies, {})
        # Nor is one that comes now.
        with contextlib.closing(socket.create_connection(
                self.server.addr)) as newcomer:
            newcomer.sendall(frame(announcement(False))
                             + call(1, 'register', '1', False))
            with newcomer.makefile('rb') as said:
                self.assertEqual(said.read(), greeting(False, False))
        self.may_answer = True
        self.assertEqual(self.connect(self.server).load(1)[0], record())

    def test_a_stock_client_whose_vote_meets_a_change_of_the_leader(self):
        """It knows no other error after which it would try again.  One of ours
        is told."""
        stream = self.talk(self.server)
        with mock.patch.object(
                self.storage, 'tpc_vote', side_effect=LeaderChanged('a test')):
            self.zeo.ask_vote({2: record()})
            self.zeo.wait_for_end()
            answer = stream.trip(stream.stored({3: record()}))
        self.assertEqual(self.zeo.replies, {})
        self.assertEqual(answer.name, b'fsyncstorage.errors.LeaderChanged')

    def test_a_stream(self):
        """What became of its commit is asked for elsewhere."""
        stream = self.talk(self.server)
        number = stream.stored({2: record()})
        stream.vote(number)
        self.may_answer = False
        with self.assertRaises(ConnectionError):
            stream.finish(number)
        self.assertEqual(self.storage.load(oid(2))[0], record())

    def test_an_answer_that_is_on_its_way(self):
        """The clock is looked at when the answer leaves: a process may have
        been frozen since it was made."""
        service = self.server.services['1']
        found = service.load_cached

        def load(*args):
            answer = found(*args)
            self.may_answer = False
            return answer

        service.load_cached = load
        stream = self.talk(self.server)
        stream.ask_to_load(1)
        self.assertRaises(ConnectionError, stream.next)


class Closed(NodeServed):
    """A node listens only while it leads."""

    def setUp(self):
        super().setUp()
        self.hosting = Hosting(Manager({}), '1')

    def refuses(self):
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(self.server.addr)

    def test_the_port_and_all_connections(self):
        """They may read from their caches, and ask nothing."""
        stream = self.talk(self.server)
        other = self.connect(self.server)
        self.hosting.hang_up()  # there is no server yet
        self.hosting.serves(self.server)
        self.refuses()
        other.wait_for_end()
        self.assertRaises(ConnectionError, stream.next)
        self.hosting.go_on()
        until(lambda: self.answers(), 'the port is open')
        self.assertEqual(self.connect(self.server).load(1)[0], record())

    def answers(self):
        with contextlib.suppress(OSError), contextlib.closing(
                socket.create_connection(self.server.addr)):
            return True

    def test_while_the_loop_waits_for_a_disk(self):
        goes_on, waits = threading.Event(), threading.Event()
        self.addCleanup(goes_on.set)
        self.server.soon(lambda: (waits.set(), goes_on.wait()))
        waits.wait()
        self.hosting.serves(self.server)
        self.hosting.hang_up()
        self.zeo.wait_for_end()
        self.refuses()

    def test_it_is_not_opened_by_what_is_late(self):
        self.hosting.serves(self.server)
        self.hosting.hang_up()
        opened = threading.Event()
        with mock.patch.object(self.server, 'soon') as soon:
            self.hosting.go_on()
        self.hosting.hang_up()
        self.server.soon(*soon.call_args.args)
        self.server.soon(opened.set)
        opened.wait()
        self.refuses()

    def test_one_that_has_not_registered_yet(self):
        """It is sent away with the others, and none comes behind it."""
        patch = mock.patch.object(listening, 'REGISTER_WITHIN', 10 * PATIENCE)
        with patch, contextlib.closing(socket.create_connection(
                self.server.addr, PATIENCE)) as newcomer:
            with newcomer.makefile('rb') as said:
                greeted = greeting(False, False)
                self.assertEqual(said.read(len(greeted)), greeted)
                self.server.hang_up()
                self.assertEqual(said.read(), b'')


@unittest.skipIf(uvloop is None, 'uvloop is not installed')
class ClosedOverUvloop(Closed):

    def setUp(self):
        self.patch(ZEO.asyncio.server, new_event_loop=uvloop.new_event_loop)
        super().setUp()


class Leaving(NodeServed):
    """The storage is closed as if the process ended."""

    def setUp(self):
        super().setUp()
        self.hosting = Hosting(Manager({}), '1')
        self.hosting.server = self.server

    def leave(self):
        self.hosting.end('a test', again=True)
        self.assertTrue(self.hosting.begins_anew)
        loop = self.server.acceptor.event_loop
        until(lambda: not loop.is_running(), 'it has stopped')

    def test_what_is_finishing(self):
        """It gets to the disk, and its client is told, though another node may
        lead by then."""
        disk = self.controlled_disk()
        disk.hold_syncs()
        self.zeo.vote({2: record()})
        asked = self.zeo.ask_finish()
        disk.wait_for_sync()
        self.leave()
        self.may_answer = False
        closing = Thread(self.server.close)
        disk.release_syncs()
        closing.result()
        self.assertEqual(self.zeo.answer(asked), self.zeo.tids[-1])
        self.zeo.wait_for_end()

    def test_a_client_of_ours_asks_the_next_server(self):
        """At once: what it sends from now on is lost."""
        stream = self.talk(self.server)
        number = stream.stored({2: record()})
        stream.vote(number)
        disk = self.controlled_disk()
        disk.hold_syncs()
        stream.say(frames.Finish(number))
        disk.wait_for_sync()
        self.leave()
        self.assertRaises(ConnectionError, stream.next)
        disk.release_syncs()


class Following(TestCase):
    """While a node follows, in a process that has no loop."""

    def setUp(self):
        super().setUp()
        self.addCleanup(exporters.process_is, probes.SERVING)
        self.manager = FakeManager(self)
        self.hosting = Hosting(Manager({
            'NOTIFY_SOCKET': self.manager.name,
            'WATCHDOG_USEC': str(SHORT)}), '1')
        self.addCleanup(self.hosting._manager.stopping)
        self.node = SimpleNamespace(
            trouble='this node is a standby', why_not_following=None,
            stats=lambda: {
                'role': 'standby', 'trouble': 'this node is a standby',
                'lag_records': 7, 'epoch': 2, 'others': {'c': {
                    'silence': 1.5, 'lag': 3.0, 'trouble': 'no room'}}})
        self.opened = threading.Event()

    def wait(self):
        thread = Thread(self.hosting.wait, self.opened, self.node)
        self.addCleanup(thread.result)
        self.addCleanup(self.opened.set)
        return thread

    def test_the_service_manager(self):
        """It is ready for what it does, and lives."""
        self.wait()
        self.assertEqual(self.manager.hear(), 'READY=1')
        for _ in range(3):
            self.assertEqual(self.manager.hear(), 'WATCHDOG=1')

    def test_probes_and_figures(self):
        self.hosting.metrics = exporters.Hold(('127.0.0.1', 0))
        self.addCleanup(self.hosting.metrics.close)
        waiting = self.wait()
        address = self.hosting.metrics.exporter.address
        until(lambda: probe(address, '/startup')[0] == 200, 'it has started')
        status, said = probe(address, '/ready')
        self.assertEqual((status, said['process'], said['storages']), (
            503, 'following', {'1': 'this node is a standby'}))
        self.assertEqual(probe(address, '/live')[0], 200)
        self.assertEqual(probe(address, '/node')[0], 200)
        self.node.why_not_following = 'no room'
        status, said = probe(address, '/node')
        self.assertEqual((status, said['storages']), (503, {'1': 'no room'}))
        figures = metrics(address)
        for name, value in ('silence_seconds', 1.5), ('lag_seconds', 3.0), (
                'in_trouble', 1):
            self.assertEqual(
                figures[f'fsyncstorage_quorum_standby_{name}', 'c'], value)
        self.assertEqual(figures['fsyncstorage_quorum_primary',], 0)
        self.assertEqual(figures['fsyncstorage_quorum_lag_records',], 7)
        now = probe(address, '/now')[1]
        self.assertIn('standby', str(now))
        self.opened.set()
        waiting.result()
        self.assertEqual(probe(address, '/ready')[1]['storages'], {})


class Anew(TestCase):

    def setUp(self):
        super().setUp()
        self.hosting = Hosting(Manager({}), '1')
        self.addCleanup(
            signal.pthread_sigmask, signal.SIG_UNBLOCK, hosting.ENDING)

    def begin_anew(self, **options):
        with mock.patch.object(os, 'execve', **options) as execve, \
                mock.patch.object(hosting.logging, 'shutdown'):
            hosting.begin_anew(self.hosting, {'A': 'b'})
        return execve

    def test_with_what_it_was_started(self):
        self.hosting.end('of a reason', again=True)
        self.assertEqual(self.hosting.status, 0)
        self.begin_anew().assert_called_once_with(
            sys.executable, sys.orig_argv, {'A': 'b'})
        # Signals wait for the next one.
        self.assertLessEqual(
            set(hosting.ENDING), signal.pthread_sigmask(signal.SIG_BLOCK, ()))

    def test_a_signal_ends_it_after_all(self):
        self.hosting.end('of a reason', again=True)
        self.hosting.was_signalled = True
        self.begin_anew().assert_not_called()
        self.assertFalse(
            set(hosting.ENDING) & signal.pthread_sigmask(
                signal.SIG_BLOCK, ()))

    def test_it_ends_where_a_person_should_look(self):
        self.hosting.end('a disk', again=False)
        self.assertFalse(self.hosting.begins_anew)
        self.assertEqual(self.hosting.status, 1)


class Refused(RunnerTestCase):

    NODE = """
        <fsyncstorage {0}>
          path {1}/{0}.fs
          durability quorum
          <quorum>
            node a
            log {0}
            etcd http://one:1 http://two:2 http://three:3
          </quorum>
        </fsyncstorage>
    """

    def runner_of(self, *names):
        config = pathlib.Path(self.path('zeo.conf'))
        config.write_text(
            '%import fsyncstorage\n<zeo>\naddress 127.0.0.1:0\n</zeo>'
            + ''.join(self.NODE.format(name, self.directory)
                      for name in names))
        return hosting.refuse_two_nodes(
            realized('-C', str(config)).storages)

    def test_two_nodes(self):
        with self.assertRaisesRegex(ValueError, 'one, two are nodes'):
            self.runner_of('one', 'two')
        self.runner_of('one')
