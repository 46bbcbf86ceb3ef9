"""How much is lost with a machine that has a backup?

    python -m tests.backup.rpo [KILLS]

A site commits, with blobs, and packs at random; `fsync-backup run` is beside
it.  Both are killed at a random moment (kill -9), and the store is restored:
that must not have anything that the site has not, and all of its blobs.  Then
both go on; in the end, what was restored after each kill is restored again.
The last lines say how long before the kill the first commit was acknowledged
that is not restored, and how long puts and rounds took.

A site that packs again before a writer that was killed is back has lost
points, and what is behind them needs its base: these kills are counted, and
restored up to the point that the error names.  After an error, all files stay.
"""

import hashlib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

import transaction
from persistent.mapping import PersistentMapping
from ZODB import DB
from ZODB.blob import Blob
from ZODB.serialize import referencesf
from ZODB.utils import z64

from fsyncstorage import FsyncStorage
from fsyncstorage.backup import commandline
from fsyncstorage.backup import restore
from fsyncstorage.backup import running
from fsyncstorage.backup import timeline
from fsyncstorage.backup import verification
from fsyncstorage.backup.directory import Directory
from fsyncstorage.backup.head import PACK
from fsyncstorage.backup.head import Damaged
from fsyncstorage.backup.layout import Database
from fsyncstorage.backup.restore import NotRestored
from fsyncstorage.backup.timeline import History
from fsyncstorage.backup.uploader import Uploader
from fsyncstorage.server import handout

DATABASE = Database('main')
SITE, WRITER = 'site', 'writer'
_SOUND = re.compile('--to ([0-9a-f]{16})')


def site(path, seed, packs):
    """Print the tid and the time of each commit that was acknowledged; pack
    at one of so many."""
    chance = random.Random(seed)
    storage = FsyncStorage(path, blob_dir=path + '.blobs')
    handout.offered(storage)
    connection = DB(storage).open()
    root = connection.root()
    while True:
        number = chance.randrange(50)
        root[number] = (
            Blob(chance.randbytes(20_000)) if not chance.randrange(5) else
            PersistentMapping({0: chance.randbytes(500)}))
        transaction.commit()
        print(storage.lastTransaction().hex(), time.time(), flush=True)
        if not chance.randrange(int(packs)):
            storage.pack(time.time(), referencesf)
        time.sleep(chance.expovariate(50))


def writer(path, seed, packs):
    """`fsync-backup run`; print how long the start, and each put and round
    took, and when it ended."""
    Uploader.start = _timed(Uploader.start, 'start')
    Directory.create = _timed(Directory.create, 'put')
    Uploader.ship = _timed(Uploader.ship, 'round')
    commandline.main([
        'run', path, os.path.join(os.path.dirname(path), 'store'),
        '--blobs', path + '.blobs'])


def _timed(function, name):
    def timed(*arguments):
        began = time.monotonic()
        found = function(*arguments)
        if found is not False:  # a round in which there is nothing
            # (As a whole: blobs are put by several threads.)
            os.write(1, b'%s %f %f\n' % (
                name.encode(), time.monotonic() - began, time.time()))
        return found

    return timed


class Lives:
    """A site with a backup, which is killed again and again."""

    def __init__(self, directory, packs):
        self._path = os.path.join(directory, 'Data.fs')
        self._packs = packs
        os.mkdir(os.path.join(directory, 'store'))
        self._store = Directory(os.path.join(directory, 'store'))
        #: What was restored after each kill: its sum, by its last tid.
        self._points = {}
        #: Kills after which a base was needed that was not there yet.
        self.without_base = 0

    def live(self, seed, seconds):
        """Until so long after the first commit.  Return the commits, the times
        of the writer, and when both were killed."""
        with open(self._path + '.said', 'w+') as said, open(
                self._path + '.took', 'w+') as took, open(
                self._path + '.log', 'a') as log:
            processes = [subprocess.Popen(
                [sys.executable, '-m', __spec__.name, role, self._path,
                 str(seed), str(self._packs)], stdout=output, stderr=log,
                env=os.environ | {'PYTHONPATH': os.pathsep.join(sys.path)})
                for role, output in ((SITE, said), (WRITER, took))]
            try:
                while not os.fstat(said.fileno()).st_size:
                    time.sleep(0.01)
                time.sleep(seconds)
            finally:
                for process in processes:
                    process.kill()
                killed = time.time()
                for process in processes:
                    process.wait()
            return *(_lines(file) for file in (said, took)), killed

    def judge(self):
        """The last tid that is restored, or zeros; AssertionError."""
        if not timeline.newest(self._store, DATABASE):
            return z64
        needs_base = False
        try:
            tid, data = self._restored()
        except NotRestored:  # nothing was shipped yet
            return z64
        except Damaged as error:
            with open(self._path + '.log') as log:
                assert 'what was between is lost' in log.read(), error
            needs_base = True
            tid, data = self._restored(bytes.fromhex(
                _SOUND.search(str(error))[1]))
        assert needs_base or data in self._files(len(data)), (
            'it has what the site has not')
        problems = verification.verify(self._history(), True)
        assert not problems.problems and not problems.missing, problems
        _, last = self._history().reached()
        if last is not None and last.kind != PACK:  # else: the file before it
            self._points[tid] = hashlib.sha256(data).digest()
        self.without_base += needs_base
        return tid

    def check_points(self):
        for tid, sum in self._points.items():
            _, data = self._restored(tid)
            assert hashlib.sha256(data).digest() == sum, tid.hex()

    def _history(self):
        return History(self._store, DATABASE, 1)

    def _restored(self, target=None):
        """The last tid, and the bytes."""
        path = self._path + '.r'
        found = restore.restore(
            self._history(), path, path + '.blobs', target)
        with open(path, 'rb') as file:
            data = file.read()
        os.remove(path)
        shutil.rmtree(path + '.blobs')
        return found.tid, data

    def _files(self, length):
        """Both files of the site, up to there."""
        for name in self._path, self._path + '.old':
            if os.path.exists(name):
                with open(name, 'rb') as file:
                    yield file.read(length)


def _lines(file):
    """The words of each whole line."""
    file.seek(0)
    return [line.split() for line in file if line.endswith('\n')]


def main(kills):
    chance, took = random.Random(1), {'start': [], 'put': [], 'round': []}
    #: For each kill: seconds since the writer was there, and that are lost.
    lost = []
    directory = tempfile.mkdtemp(prefix='fsyncstorage-rpo-')
    print(directory, flush=True)
    lives = Lives(directory, 300)
    for number in range(kills):
        commits, times, killed = lives.live(number, 1 + 4 * chance.random())
        since = 0.0
        for name, seconds, when in times:
            took[name].append(float(seconds))
            if name == 'start':
                since = killed - float(when)
        tid = lives.judge()
        first = min((float(when) for each, when in commits
                     if bytes.fromhex(each) > tid), default=killed)
        lost.append((since, killed - first))
        print(f'{number + 1}: {len(commits):,} commits, {killed - first:.3f} s'
              f' of {since:.3f} s with a writer', flush=True)
    lives.check_points()
    shutil.rmtree(directory)
    for name, seconds in took.items():
        print(f'{len(seconds):,} times a {name}: {_at(seconds, 0.5):.4f} s'
              f' (median), {_at(seconds, 0.99):.4f} s (p99),'
              f' {_at(seconds, 1):.4f} s (worst)')
    limit = running.PERIOD + _at(took['round'], 0.99)
    print(f'a period and a round (p99): {limit:.3f} s;'
          f' {lives.without_base} kills needed a base that was not there yet')
    for name, chosen in (
            ('when the writer was there for longer',
             [seconds for since, seconds in lost if since > limit]),
            ('before', [seconds for since, seconds in lost
                        if since <= limit])):
        if chosen:
            print(f'{len(chosen)} kills {name}: not restored is what was'
                  f' acknowledged {_at(chosen, 0.5):.3f} s before (median),'
                  f' {_at(chosen, 0.99):.3f} s (p99), {_at(chosen, 1):.3f} s'
                  f' (worst); {sum(each > limit for each in chosen)} beyond')


def _at(values, part):
    return sorted(values)[min(int(len(values) * part), len(values) - 1)]


if __name__ == '__main__':
    if len(sys.argv) == 5:
        {SITE: site, WRITER: writer}[sys.argv[1]](*sys.argv[2:])
    else:
        main(int(sys.argv[1]) if len(sys.argv) == 2 else 100)
