"""A server lets its backup run in a process of its own: what is committed is
shipped, whatever dies, and to the last transaction of a server that ends."""

import contextlib
import json
import os
import signal
import time
from unittest import mock

from fsyncstorage.backup import verification
from fsyncstorage.backup.directory import Directory
from fsyncstorage.backup.timeline import History
from fsyncstorage.metrics import backups
from fsyncstorage.processes.starting import ChildProcess
from fsyncstorage.server import backup
from fsyncstorage.server.backup import Backup

from ..support import PATIENCE
from ..support import TestCase
from ..support import commit
from ..support import until
from .shipped import DATABASE
from .shipped import Shipped


class Beside(Shipped):

    level = 2

    def setUp(self):
        super().setUp()
        self.patch(backup, AGAIN_AFTER=0.01, LAST_ROUND=PATIENCE)
        os.mkdir(self.path('store'))
        self.store = Directory(self.path('store'))
        commit(self.storage, {0: b'data'})

    @contextlib.contextmanager
    def runs(self):
        made = Backup(self.storage, self.path('store'))
        try:
            yield made
        finally:
            made.close()

    def shipped(self, number):
        until(lambda: os.path.exists(self.path(
            'store/' + DATABASE.timeline(1).segment(number))), 'a segment')

    def hand_out(self, storage):
        self.handout = super().hand_out(storage)

    def test_what_is_committed_is_shipped(self):
        with self.assertLogs('fsyncstorage', 'INFO') as logs:
            with self.runs():
                self.shipped(0)
                commit(self.storage, {1: b'data'})
                self.shipped(1)
        self.assertIn('goes on at position', str(logs.output))

    def test_the_last_transactions_of_a_server_that_ends(self):
        """The process ends when it has shipped them, and is not killed."""
        with self.runs() as made, mock.patch.object(
                ChildProcess, 'end', autospec=True,
                side_effect=ChildProcess.end) as ended:
            self.shipped(0)
            commit(self.storage, {1: b'data'})
            self.handout.close()
            self.storage.close()
            made.close()
        self.assertEqual(ended.call_count, 1)  # behind its own end
        history = History(self.store, DATABASE, 1)
        self.assertEqual(verification.verify(history).size,
                         os.stat(self.path()).st_size)

    def test_a_process_that_is_killed(self):
        with self.assertLogs('fsyncstorage', 'WARNING') as logs, \
                self.runs() as made:
            self.shipped(0)
            os.kill(made._process.pid, signal.SIGKILL)
            commit(self.storage, {1: b'data'})
            self.shipped(1)
        self.assertIn('has died', logs.output[0])

    def test_a_process_to_which_nothing_can_be_sent(self):
        failing = [OSError('Bad file descriptor')]
        send = ChildProcess.send

        def fail_once(process, command):
            if failing:
                raise failing.pop()
            send(process, command)

        with mock.patch.object(ChildProcess, 'send', fail_once), \
                self.assertLogs('fsyncstorage', 'WARNING') as logs, \
                self.runs():
            self.shipped(0)
        self.assertIn('tried again: Bad file descriptor', logs.output[0])

    def test_a_server_ends_when_the_process_does(self):
        send = ChildProcess.send

        def fail(process, command):
            if command == {'end': True}:
                raise OSError('Bad file descriptor')
            send(process, command)

        self.patch(backup, LAST_ROUND=0)
        with mock.patch.object(ChildProcess, 'send', fail), self.runs():
            self.shipped(0)

    def test_the_history_of_another_site(self):
        """It is not tried again."""
        other = self.handed_out('Other.fs')
        commit(other, {0: b'of another'})
        self.uploader('Other.fs').ship()
        with self.assertLogs('fsyncstorage', 'ERROR') as logs, \
                self.runs() as made:
            made._thread.join()
        self.assertEqual(len(logs.output), 1)
        self.assertIn('--new-timeline', logs.output[0])

    def test_a_store_that_is_not_there_yet(self):
        """As a disk that is mounted later; it is said once."""
        os.rmdir(self.path('store'))
        with self.assertLogs('fsyncstorage', 'WARNING') as logs, \
                mock.patch.object(backup, 'ChildProcess',
                                  side_effect=ChildProcess) as started, \
                self.runs():
            until(lambda: started.call_count > 2, 'the third process')
            os.mkdir(self.path('store'))
            self.shipped(0)
        self.assertEqual(len(logs.output), 1)
        self.assertIn('no directory', logs.output[0])


class Said(TestCase):
    """What a backup says of itself, for the metrics."""

    def test_it_is_read_as_it_was_written(self):
        said = backups.Said(time.time(), 17, 5.5)
        backups.write(self.path(), said)
        self.assertEqual(backups.read(self.path()), said._asdict())
        backups.write(self.path(), backups.Said())
        self.assertEqual(backups.read(self.path()), {})

    def test_there_is_none(self):
        self.assertEqual(backups.read(self.path()), {})

    def test_what_somebody_has_put_in_its_place(self):
        """No link is followed, and nobody waits for a reader."""
        other, new = self.path('other'), self.path() + backups.SUFFIX_OF_NEW
        for plant in (lambda: os.symlink(other, new),
                      lambda: os.link(other, new), lambda: os.mkfifo(new)):
            with open(other, 'w') as file:
                file.write('of another')
            plant()
            backups.write(self.path(), backups.Said(1.0))
            with open(other) as file:
                self.assertEqual(file.read(), 'of another')
            self.assertEqual(backups.read(self.path()), {'shipped': 1.0})

    def test_nonsense(self):
        path = self.path() + backups.SUFFIX
        for text in ('', '[', '[]', '[' * 4000, '{}', '"shipped"',
                     json.dumps({'shipped': 'x', 'behind': True,
                                 'drilled': -1}),
                     '{"shipped": NaN, "behind": Infinity}',
                     '{"behind": 1%s}' % ('0' * 400), 'x' * 100_000):
            with open(path, 'w') as file:
                file.write(text)
            self.assertEqual(backups.read(self.path()), {}, text[:80])
        os.remove(path)
        os.mkfifo(path)
        self.assertEqual(backups.read(self.path()), {})
