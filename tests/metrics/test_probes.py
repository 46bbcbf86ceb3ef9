"""Probes say what is so, and say well again when it is over."""

import threading
from unittest import mock

from fsyncstorage.metrics import exporters
from fsyncstorage.metrics import probes
from fsyncstorage.metrics.exporters import Showing

from ..server.serving import Served
from ..support import PATIENCE
from ..support import TestCase
from ..support import commit
from ..support import until
from .asking import metrics
from .asking import probe

HERE = '127.0.0.1', 0


class Loops(Served):

    def served(self):
        self.server = self.serve(metrics=HERE)
        return self.server._shown[0].exporter.address

    def test_a_loop_that_is_blocked(self):
        address = self.served()
        blocked, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)

        def block():
            blocked.set()
            go_on.wait(PATIENCE)

        self.assertLessEqual(probes.STUCK_AFTER, 5)
        self.server.mailbox.post(block)
        self.assertTrue(blocked.wait(PATIENCE))
        with mock.patch.object(probes, 'STUCK_AFTER', 0.7):
            until(lambda: probe(address, '/live')[0] == 503, 'stuck')
            self.assertIs(probe(address, '/live')[1]['ok'], False)
            go_on.set()
            until(lambda: probe(address, '/live')[0] == 200, 'it goes on')
        lag = self.server._shown[0].exporter.pulses()[0].lag
        until(lambda: lag.summary()['max'] > 0.1, 'its lag is known')

    def test_a_server_that_ends_lives(self):
        """Its loop may stand still meanwhile."""
        address = self.served()
        storage, answers = self.server.storages['1'], []
        close = storage.close

        def closing():
            answers.append(probe(address, '/live')[0])
            answers.append(probe(address, '/ready')[0])
            close()

        with mock.patch.object(storage, 'close', closing), \
                mock.patch.object(probes.Pulse, 'age', 3600):
            self.assertEqual(probe(address, '/live')[0], 503)
            self.server.close()
        self.assertEqual(answers, [200, 503])

    def test_a_server_that_has_ended_leaves_nothing_at_an_address(self):
        """Others may hold it."""
        storage = self.open()
        storage.metrics = Showing(HERE, '1', storage)
        hold = exporters.Hold(HERE)
        self.addCleanup(hold.close)
        server = self.serve(storage)
        shown, pulse = storage.metrics, hold.exporter.pulses()[0]
        self.assertIsNotNone(shown.service)
        server.close()
        self.assertEqual(hold.exporter.pulses(), [])
        self.assertEqual(hold.exporter.storages(), [])
        self.assertIsNone(shown.service)
        self.assertTrue(pulse._is_over)


class Storages(TestCase):

    def show(self, storage):
        storage.metrics = Showing(HERE, '1', storage)
        return storage.metrics.exporter.address

    def test_writing_that_has_stopped(self):
        disk = self.controlled_disk()
        storage = self.open()
        address = self.show(storage)
        self.assertEqual(
            probe(address, '/ready'),
            (200, {'ok': True, 'process': 'serving',
                   'storages': {'1': 'ready'}}))
        disk.fail_sync(OSError('I/O error'))
        with self.assertRaises(Exception), self.assertLogs('fsyncstorage'):
            commit(storage, {1: b'x'})
        status, answer = probe(address, '/ready')
        self.assertEqual((status, answer['ok']), (503, False))
        self.assertIn('writing stopped', answer['storages']['1'])
        self.assertEqual(probe(address, '/live')[0], 200)
        self.assertEqual(
            metrics(address)['fsyncstorage_writing_stopped',], 1)
        with self.assertLogs('fsyncstorage', 'ERROR'):
            storage.close()
        self.assertEqual(probe(self.show(self.open()), '/ready')[0], 200)

    def test_phases_of_a_process(self):
        address = self.show(self.open())
        self.addCleanup(exporters.process_is, probes.SERVING)
        for phase, startup, ready in [
                (probes.STARTING, 503, 503), (probes.SERVING, 200, 200),
                (probes.STOPPING, 200, 503)]:
            with self.subTest(phase):
                exporters.process_is(phase)
                self.assertEqual(
                    [probe(address, path)[0]
                     for path in ('/startup', '/ready', '/live')],
                    [startup, ready, 200])
                self.assertEqual(
                    probe(address, '/startup')[1]['process'], phase)
