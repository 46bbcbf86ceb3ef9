"""What the service manager is told."""

import contextlib
import os
import signal
import socket
import struct
import threading
from unittest import mock

from fsyncstorage.server import manager
from fsyncstorage.server.manager import Manager

from ..commands import SCRIPTS
from ..commands import Commands
from ..commands import answers
from ..support import PATIENCE
from ..support import TestCase
from ..support import Thread
from ..support import until
from .test_server_runner import CONFIG
from .test_server_runner import RunnerTestCase

# Of WATCHDOG_USEC; twice in this time, it has to be said.
SHORT = 20_000


class FakeManager:
    """Its end of the socket."""

    def __init__(self, test, name=None):
        #: As NOTIFY_SOCKET has it.
        self.name = name or test.path('notify')
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        test.addCleanup(self._socket.close)
        self._socket.bind(self.name.replace('@', '\0', 1))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)

    def hear(self, within=PATIENCE):
        """One message; None: there is none."""
        return self.hear_from(within)[0]

    def hear_from(self, within=PATIENCE):
        """The message, and the process that sent it."""
        self._socket.settimeout(within)
        try:
            message, ancillary, _, _ = self._socket.recvmsg(1000, 100)
        except (BlockingIOError, TimeoutError):
            return None, None
        (_, _, credentials), = ancillary
        return message.decode(), struct.unpack('iII', credentials)[0]

    def hear_all(self):
        """What was said until now."""
        while self.hear(0) is not None:
            pass


class ManagerTestCase(RunnerTestCase):

    def start(self, **environment):
        """A server whose loop does not run yet."""
        with mock.patch.dict(os.environ, environment):
            runner = self.runner()
            self.assertEqual(
                [name for name in manager._VARIABLES if name in os.environ],
                [])
        runner.open_storages()
        runner.create_server()
        self.server = runner.server
        self.addCleanup(runner.close_server)
        return runner

    @contextlib.contextmanager
    def running(self, runner):
        thread = Thread(self.server.loop)
        try:
            yield
        finally:
            self.server.stop()
            thread.result()
            runner.close_server()


class Told(ManagerTestCase):

    def test_the_loop_gives_the_signs_of_life(self):
        hears = FakeManager(self)
        runner = self.start(
            NOTIFY_SOCKET=hears.name, WATCHDOG_USEC=str(SHORT),
            WATCHDOG_PID=str(os.getpid()))
        blocked, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)

        def block():
            blocked.set()
            go_on.wait(PATIENCE)

        with self.running(runner):
            self.assertEqual(hears.hear(), 'READY=1')
            for _ in range(3):
                self.assertEqual(hears.hear(), 'WATCHDOG=1')
            self.server.mailbox.post(block)
            self.assertTrue(blocked.wait(PATIENCE))
            hears.hear_all()
            heard = hears.hear(5 * SHORT / 1e6)
            go_on.set()
            self.assertIsNone(heard)
            self.assertEqual(hears.hear(), 'WATCHDOG=1')

    def test_a_manager_that_is_gone(self):
        """One line, and it serves all the same."""
        runner = self.start(
            NOTIFY_SOCKET=self.path('nobody'), WATCHDOG_USEC=str(SHORT))
        with self.assertLogs('fsyncstorage.server.manager') as logged:
            with self.running(runner):
                until(lambda: logged.output, 'it is said')
                self.assertTrue(answers(self.server.addr))
        line, = logged.output
        self.assertIn('cannot be told READY=1', line)


class Asked(TestCase):
    """What the environment asks for."""

    def every(self, **environment):
        made = Manager({'NOTIFY_SOCKET': '/nowhere', **environment})
        self.addCleanup(made.stopping)
        made._has_failed = True  # nobody is there, and no line is wanted
        return made.every

    def test_how_often(self):
        own, other = str(os.getpid()), str(os.getppid())
        for environment, every in [
                ({}, None),
                ({'WATCHDOG_USEC': '30000000'}, 15),
                ({'WATCHDOG_USEC': '30000000', 'WATCHDOG_PID': own}, 15),
                ({'WATCHDOG_USEC': '30000000', 'WATCHDOG_PID': other}, None),
                ({'WATCHDOG_USEC': '0'}, None),
                ({'WATCHDOG_USEC': 'soon'}, None)]:
            with self.subTest(environment):
                self.assertEqual(self.every(**environment), every)


class AsAService(Commands):

    level = 2

    def test_the_process_that_was_started_serves(self):
        """And no child of it."""
        with open(self.path('zeo.conf'), 'w') as file:
            file.write(CONFIG.format(self.directory, '').replace(
                '127.0.0.1:0', self.path('socket')))
        hears = FakeManager(self)
        self.options['env']['NOTIFY_SOCKET'] = hears.name
        server = self.start(
            [*SCRIPTS['fsync-runzeo'], '-C', self.path('zeo.conf')],
            lambda: answers(self.path('socket')))
        self.assertEqual(hears.hear_from(), ('READY=1', server.pid))
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(PATIENCE), 0, self.said())
        self.assertEqual(hears.hear_from(), ('STOPPING=1', server.pid))
