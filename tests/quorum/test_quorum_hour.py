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
        self.tids = self.make()
        shutil.copytree(self.path('a'), self.path('b'))
        self.watcher = types.SimpleNamespace(
            epochs=dict.fromkeys(self.tids.values(), 1), trouble=None,
            is_packing=False, epoch=1,
            end=(0, os.path.getsize(self.nodes[0].data)))
        self.said = []
        self.checking = Checking(
            types.SimpleNamespace(
                nodes=self.nodes, kinds={WORKER: 'ours'},
                notes=notes.Read(self.path('notes')), watcher=self.watcher,
                say=self.said.append, wait=self.wait),
            types.SimpleNamespace(take=lambda *args: None))

    def make(self):
        """Two commits, the second one with a blob; mark -> tid."""
        node = self.nodes[0]
        db = ZODB.DB(FileStorage(node.data, blob_dir=node.blobs))
        manager = transaction.TransactionManager()
        connection = db.open(manager)
        root = connection.root()
        bank.make(root, [WORKER])
        manager.commit()
        tids = {}
        for number in 1, 2:
            mark = f'{WORKER}:{number}'
            own = root['workers'][WORKER]
            own.marks[number] = made = bank.Mark(mark)
            root['accounts'][0].balance -= 5
            root['accounts'][number].balance += 5
            if number == 2:
                with own.blobs[0].open('w') as file:
                    file.write(f'{mark} '.encode())
                self.blob = own.blobs[0]._p_oid
            manager.commit()
            tids[mark] = made._p_serial
            self.written.add(
                notes.ACKNOWLEDGED, mark, 1.0, made._p_serial.hex(),
                u64(made._p_oid))
        connection.close()
        db.close()
        return tids

    @staticmethod
    def wait(condition, what):
        if not condition():
            raise Violation(what)

    def finds(self, words):
        with self.assertRaisesRegex(Violation, words):
            self.checking.all()

    def test_all_is_well(self):
        self.checking.all()
        self.assertIn('2 commits acknowledged', self.said[-1])

    def test_a_file_with_another_byte_or_without_its_end(self):
        with open(self.nodes[1].data, 'r+b') as file:
            file.seek(100)
            byte = file.read(1)
            file.seek(100)
            file.write(bytes([byte[0] ^ 1]))
        self.finds('the files differ from 100 on')

        os.truncate(self.nodes[1].data, self.watcher.end[1] - 1)
        self.finds('both files end where the log says')

    def test_a_commit_that_is_lost(self):
        """Or has another tid, as if it was committed twice."""
        for number in 3, 1:
            self.written.add(notes.ACKNOWLEDGED, f'{WORKER}:{number}', 1.0,
                             self.tids[f'{WORKER}:2'].hex(), 1)
            self.finds(f'{WORKER}:{number}, .* is lost')

    def test_a_commit_that_no_epoch_has(self):
        del self.watcher.epochs[self.tids[f'{WORKER}:1']]
        self.finds('in no epoch')

    def test_a_commit_that_was_refused(self):
        self.written.add(notes.REFUSED, f'{WORKER}:2', 1.0, 'ConflictError')
        self.finds('told that it never will be')

    def test_a_sum(self):
        for each in self.nodes:
            db = ZODB.DB(FileStorage(each.data))
            with db.transaction() as connection:
                connection.root()['accounts'][0].balance += 1
            db.close()
        shutil.copy(self.nodes[0].data, self.nodes[1].data)
        self.watcher.end = 0, os.path.getsize(self.nodes[0].data)
        self.finds(f'the sum of the accounts is {bank.SUM + 1}')

    def test_blobs(self):
        """One differs from that of the other node; both are of another commit,
        or away."""
        one, other = paths = [
            os.path.join(home, name) for each in self.nodes
            for home, _, names in os.walk(each.blobs) for name in names
            if self.tids[f'{WORKER}:2'].hex() in name]
        for each in paths:
            os.chmod(each, 0o600)
        with open(one, 'a') as file:
            file.write('x')
        self.finds('the blob .* differs')
        for each in paths:
            with open(each, 'w') as file:
                file.write(f'{WORKER}:1 ')
        self.finds(f'is of {WORKER}:1')
        for each in paths:
            os.unlink(each)
        self.finds('there is no ')

    def test_what_a_client_must_not_see(self):
        self.written.add(notes.WRONG, f'{WORKER}:3', 1.0, 'an old state')
        with self.assertRaisesRegex(Violation, 'saw an old state'):
            self.checking.listen()


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
