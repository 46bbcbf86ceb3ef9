"""A storage under load in a process of its own (`killed`), and what must be
there when that process, or the machine, has died."""

import contextlib
import os
import subprocess
import sys
from unittest import mock

import zc.lockfile
from ZODB.utils import z64

from fsyncstorage import FsyncStorage
from fsyncstorage.storage import recovery
from fsyncstorage.storage.outcome import COMMITTED
from fsyncstorage.storage.outcome import NOT_COMMITTED

from ..support import TestCase
from ..support import oid
from ..support import until
from . import killed

# So many of the last commits are asked for.
ASKED = 40


class Loaded(TestCase):

    #: `index-checkpoint`.
    checkpoint = 2 << 20
    #: The path of the file that says what was acknowledged.
    acknowledged = None

    @contextlib.contextmanager
    def load(self, home, policy):
        """The process; it is killed in the end."""
        with open(self.path('errors'), 'w') as errors:
            process = subprocess.Popen(
                [sys.executable, killed.__file__, home, policy,
                 str(self.checkpoint), self.acknowledged],
                env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)},
                stderr=errors)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def wait_for_commits(self, process, number):
        enough = self._lines() + number
        until(lambda: self._lines() >= enough or process.poll() is not None,
              'commits')
        if process.poll() is not None:
            with open(self.path('errors')) as errors:
                self.fail(errors.read())

    def _lines(self):
        try:
            with open(self.acknowledged, 'rb') as file:
                return file.read().count(b'\n')
        except FileNotFoundError:
            return 0

    def _newest(self):
        """number -> (tid, data) of the last acknowledged commit."""
        newest = {}
        for number, tid, count, process in self._all_acknowledged():
            newest[number] = max(newest.get(number, (b'', b'')), (
                tid, killed.content(number, count, process)))
        return newest

    def _all_acknowledged(self):
        """number, tid, count, process of each, in order."""
        with open(self.acknowledged, 'rb') as file:
            for line in file:
                if line.endswith(b'\n'):
                    number, tid, count, process = line.split()
                    yield (int(number), bytes.fromhex(tid.decode()),
                           int(count), int(process))

    def check(self, home, policy):
        """Nothing acknowledged is missing; how many bytes the start read."""
        scanned = []
        original = recovery.recover

        def recover(file, known, *args):
            scanned.append(file.size() - known.end)
            return original(file, known, *args)

        def opened():
            scanned.clear()
            with contextlib.suppress(zc.lockfile.LockError):
                return [FsyncStorage(  # which is false if it is empty
                    os.path.join(home, 'Data.fs'), durability=policy,
                    blob_dir=os.path.join(home, 'blobs'),
                    index_checkpoint=self.checkpoint)]

        with mock.patch.object(recovery, 'recover', recover):
            # One that was killed while it started another process is survived
            # by that, with its locks, until that has become a program of its
            # own.
            storage, = until(opened, 'its locks are gone')
        with contextlib.closing(storage):
            for number, newest in self._newest().items():
                self._check_object(storage, number, *newest)
            self._check_outcomes(storage)
        return scanned[0]

    def _check_outcomes(self, storage):
        """Of what was acknowledged last, and of what may have been under way:
        after that, its thread would have stored the next content."""
        there = {killed.commit_id(record.data): transaction.tid
                 for transaction in storage.iterator()
                 for record in transaction}
        last = list(self._all_acknowledged())[-ASKED:]
        for number, since, count, process in last:
            acknowledged = killed.commit_id(
                killed.content(number, count, process))
            under_way = killed.commit_id(killed.content(
                *killed.next_one(number, count), process))
            self.assertNotEqual(
                storage.outcome(acknowledged, z64).word, NOT_COMMITTED)
            for id in acknowledged, under_way:
                found = storage.outcome(id, since)
                self.assertEqual(found.word == COMMITTED, id in there, found)
                self.assertEqual(found.tid, there.get(id))

    def _check_object(self, storage, number, tid, data):
        found, found_tid = storage.load(oid(number))
        self.assertGreaterEqual(found_tid, tid)
        if found_tid == tid:
            self.assertEqual(found, data)
        if killed.has_blob(number):
            with open(storage.loadBlob(oid(number), found_tid), 'rb') as file:
                self.assertEqual(file.read(), found)
