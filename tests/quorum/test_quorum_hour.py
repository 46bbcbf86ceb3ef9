"""The run of faults at random (`hour`): a short one; and that its checks find
what they are for."""

import os
import shutil
import subprocess
import sys
import types
import unittest

import transaction
import ZODB
from ZODB.FileStorage import FileStorage
from ZODB.utils import u64

from ..support import TestCase
from .hour import bank
from .hour import notes
from .hour.__main__ import why_not
from .hour.checking import Checking
from .hour.program import ROOT
from .hour.world import Violation

WORKER = 'ours1.0'


class Checks(TestCase):
    """What Checking finds in the files of two nodes."""

    level = 2

    def setUp(self):
        super().setUp()
        self.nodes = [
            types.SimpleNamespace(
                name=name, data=self.path(f'{name}/Data.fs'),
                blobs=self.path(f'{name}/blobs')) for name in 'ab']
        os.mkdir(self.path('a'))
        os.mkdir(self.path('notes'))
        self.written = notes.Written(self.path('notes/w'))
        self.addCleanup(self.written.close)
        self.make()
        shutil.copytree(self.path('a'), self.path('b'))
        self.checking = Checking(
            types.SimpleNamespace(
                nodes=self.nodes, kinds={WORKER: 'ours'},
                notes=notes.Read(self.path('notes')),
                say=lambda words: None, wait=self.wait),
            types.SimpleNamespace(take=lambda *args: None))

    def make(self):
        """A commit with a blob."""
        node = self.nodes[0]
        db = ZODB.DB(FileStorage(node.data, blob_dir=node.blobs))
        connection = db.open()
        root = connection.root()
        bank.make(root, [WORKER])
        transaction.commit()
        own, mark = root['workers'][WORKER], f'{WORKER}:1'
        own.marks[1] = made = bank.Mark(mark)
        with own.blobs[0].open('w') as file:
            file.write(f'{mark} '.encode())
        transaction.commit()
        self.tid = made._p_serial.hex()
        self.acknowledged(mark, u64(made._p_oid))
        connection.close()
        db.close()

    def acknowledged(self, mark, oid):
        self.written.add(notes.ACKNOWLEDGED, mark, 1.0, self.tid, oid)

    @staticmethod
    def wait(condition, what):
        if not condition():
            raise Violation(what)

    def finds(self, words):
        with self.assertRaisesRegex(Violation, words):
            self.checking.all()

    def test_files(self):
        self.checking.all()
        with open(self.nodes[1].data, 'r+b') as file:
            file.seek(100)
            file.write(b'other')
        self.finds('the files differ')
        os.truncate(self.nodes[1].data, 200)
        self.finds('both files have one end')

    def test_commits(self):
        """One is lost, or has another tid, as if it was committed twice; one
        is there of which a client was told that it never will be."""
        self.acknowledged(f'{WORKER}:2', 1)
        self.finds(f'{WORKER}:2, .* is lost')

    def test_a_commit_that_was_refused(self):
        self.written.add(notes.REFUSED, f'{WORKER}:1', 1.0, 'ConflictError')
        self.finds('told that it never will be')

    def test_a_sum(self):
        db = ZODB.DB(FileStorage(self.nodes[0].data))
        with db.transaction() as connection:
            connection.root()['accounts'][0].balance += 1
        db.close()
        shutil.copy(self.nodes[0].data, self.nodes[1].data)
        self.finds(f'the sum of the accounts is {bank.SUM + 1}')

    def test_blobs(self):
        """One differs from that of the other node; both are of another
        commit."""
        one, other = paths = [
            os.path.join(home, name) for each in self.nodes
            for home, _, names in os.walk(each.blobs) for name in names
            if self.tid in name]
        for each in paths:
            os.chmod(each, 0o600)
        with open(one, 'a') as file:
            file.write('x')
        self.finds('the blob .* differs')
        for each in paths:
            with open(each, 'w') as file:
                file.write(f'{WORKER}:0 ')
        self.finds(f'is of {WORKER}:0')


@unittest.skipIf(why_not(), why_not())
class Short(unittest.TestCase):
    """Two minutes of it."""

    level = 3

    def test_run(self):
        ended = subprocess.run(
            [sys.executable, '-m', 'tests.quorum.hour', '120'], cwd=ROOT,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=1200)
        self.assertEqual(ended.returncode, 0, ended.stdout)
