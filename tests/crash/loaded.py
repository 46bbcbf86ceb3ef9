"""A storage under load in a process of its own (`killed`), and what must be
there when that process, or the machine, has died."""

import contextlib
import os
import subprocess
import sys
from unittest import mock

import zc.lockfile

from fsyncstorage import FsyncStorage
from fsyncstorage.storage import recovery

from ..support import TestCase
from ..support import oid
from ..support import until
from . import killed


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
        with open(self.acknowledged, 'rb') as file:
            for line in file:
                if line.endswith(b'\n'):
                    number, tid, count, process = line.split()
                    number = int(number)
                    newest[number] = max(newest.get(number, (b'', b'')), (
                        bytes.fromhex(tid.decode()),
                        killed.content(number, int(count), int(process))))
        return newest

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
        return scanned[0]

    def _check_object(self, storage, number, tid, data):
        found, found_tid = storage.load(oid(number))
        self.assertGreaterEqual(found_tid, tid)
        if found_tid == tid:
            self.assertEqual(found, data)
        if killed.has_blob(number):
            with open(storage.loadBlob(oid(number), found_tid), 'rb') as file:
                self.assertEqual(file.read(), found)
