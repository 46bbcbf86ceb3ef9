"""An uploader that is killed at any moment, again and again, while the file is
packed: the next one goes on, and in the end every point is there.
"""

import os
import random
import subprocess
import sys
import time

from fsyncstorage.backup import restore
from fsyncstorage.backup import verification
from fsyncstorage.backup.commandline import main
from fsyncstorage.backup.directory import Directory
from fsyncstorage.backup.timeline import History
from fsyncstorage.format import scan
from fsyncstorage.format.window import Window

from ..often import often
from ..support import commit
from ..support import oid
from ..support import run_command
from ..support import until
from .shipped import DATABASE
from .shipped import Shipped

KILLS = often(5, 100)


class Killed(Shipped):

    level = 2

    def setUp(self):
        super().setUp()
        os.mkdir(self.path('store'))
        self.store = Directory(self.path('store'))
        self.chance = random.Random(1)
        #: The bytes of each Data.fs that was packed.
        self.files = []
        self.tid = self.commit_blob(1, b'one')

    def uploads(self):
        process = subprocess.Popen(
            [sys.executable, '-m', 'fsyncstorage.backup.commandline', 'run',
             self.path(), self.path('store'), '--blobs',
             self.path('Data.fs.blobs')], stderr=subprocess.DEVNULL,
            env=os.environ | {'PYTHONPATH': os.pathsep.join(sys.path)})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def shipped(self):
        """How many objects are in the log."""
        return sum(1 for _ in self.store.list(DATABASE.timeline(1).log))

    def change(self):
        self.tid = self.commit_blob(
            1, self.chance.randbytes(self.chance.choice([10, 100_000])),
            serial=self.tid)
        number = self.chance.randrange(2, 9)
        found = self.storage._index.get(oid(number))
        commit(self.storage, {number: self.chance.randbytes(2000)}, {
            number: self.storage.load(oid(number))[1]} if found else {})

    def test_again_and_again(self):
        for _ in range(KILLS):
            process = self.uploads()
            # (Of two packs in one life, the first may be lost with its file.)
            pack_at = self.chance.randrange(5)
            for number in range(self.chance.randrange(1, 4)):
                self.change()
                if not self.chance.randrange(3):
                    before = self.shipped()
                    until(lambda: self.shipped() > before, 'a segment')
                if number == pack_at:
                    self.files.append(self.content_of_file())
                    self.storage.pack(time.time(), None, gc=False)
            process.kill()
            process.wait()
            self.run_once()
        self.check()

    def run_once(self):
        self.assertEqual(run_command(
            main, 'run', self.path(), self.path('store'), '--blobs',
            self.path('Data.fs.blobs'), '--once')[0], 0)

    def check(self):
        """Each point of the last file; of those before, the last one."""
        self.assertTrue(self.files)
        history = History(self.store, DATABASE, 1)
        found = verification.verify(history, True)
        self.assertEqual((found.problems, found.missing), ([], 0))
        for number, data in enumerate([*self.files, self.content_of_file()]):
            *_, last = scan.transactions(Window(
                lambda length, at: data[at:at + length], len(data)))
            name = self.path(f'R{number}.fs')
            restore.restore(history, name, name + '.blobs', last.tid)
            with open(name, 'rb') as file:
                self.assertEqual(file.read(), data)
