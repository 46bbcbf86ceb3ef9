"""`kill -9` under load, again and again: nothing acknowledged is missing, and
each restart scans at most `index-checkpoint` bytes."""

import os
import random
import signal
import subprocess
import sys
import unittest

from fsyncstorage import durability
from fsyncstorage import recovery

from . import killed
from .support import TestCase
from .support import oid
from .support import until

CHECKPOINT = 256 << 10


class Kill(TestCase):

    times = 2  # of each policy

    def test_nothing_acknowledged_is_missing(self):
        for policy in durability.POLICIES:
            with self.subTest(policy):
                self.kill_often(policy)

    def kill_often(self, policy):
        rng = random.Random(policy)
        self.home = self.path(policy)
        os.mkdir(self.home)
        for time in range(self.times):
            before = self.lines()
            process = subprocess.Popen(
                [sys.executable, killed.__file__, self.home, policy,
                 str(CHECKPOINT)],
                env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)})
            more = rng.randrange(1, 600)
            try:
                until(lambda: self.lines() > before + more
                      or process.poll() is not None, 'commits')
                self.assertIsNone(process.poll())
            finally:
                process.send_signal(signal.SIGKILL)
                process.wait()
            self.check(policy)

    def lines(self):
        try:
            with open(os.path.join(self.home, 'acknowledged'), 'rb') as file:
                return file.read().count(b'\n')
        except FileNotFoundError:
            return 0

    def newest(self):
        """number -> (tid, data) of the last acknowledged commit."""
        newest = {}
        with open(os.path.join(self.home, 'acknowledged')) as file:
            for line in file:
                if line.endswith('\n'):
                    number, tid, data = line.split()
                    found = bytes.fromhex(tid), bytes.fromhex(data)
                    newest[int(number)] = max(
                        found, newest.get(int(number), (b'', b'')))
        return newest

    def check(self, policy):
        scanned = []
        original = recovery.recover

        def recover(file, known, *args):
            scanned.append(file.size() - known.end)
            return original(file, known, *args)

        recovery.recover = recover
        try:
            storage = self.open(
                os.path.join(self.home, 'Data.fs'), durability=policy,
                blob_dir=os.path.join(self.home, 'blobs'),
                index_checkpoint=CHECKPOINT)
        finally:
            recovery.recover = original
        self.assertLessEqual(scanned[0], CHECKPOINT)
        for number, (tid, data) in self.newest().items():
            found, found_tid = storage.load(oid(number))
            self.assertGreaterEqual(found_tid, tid)
            if found_tid == tid:
                self.assertEqual(found, data)
            if number % 10 == 0:
                with open(storage.loadBlob(oid(number), found_tid),
                          'rb') as file:
                    self.assertEqual(file.read(), found)
        storage.close()


class KillOften(Kill):

    level = 2
    times = 40  # of each of five policies: 200


def test_suite():
    load = unittest.defaultTestLoader.loadTestsFromTestCase
    return unittest.TestSuite([load(Kill), load(KillOften)])
