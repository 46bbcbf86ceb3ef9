"""How much is lost with a machine that has a backup?

    python -m tests.backup.rpo [ROUNDS]

A site commits, with blobs, and packs at random; `fsync-backup run` is beside
it.  Both are killed at a random moment (kill -9), and the store is restored:
that must not have anything that the site has not, and all of its blobs.  Then
both go on.  The last lines say how long before the kill the first commit was
acknowledged that is not restored, and how long puts and rounds took.

A site that packs twice before the first pack is seen has lost points, and what
is behind them needs its base: these kills are counted, and restored up to the
point that the error names.
"""

import os
import random
import re
import subprocess
import sys
import tempfile
import time

import transaction
from persistent.mapping import PersistentMapping
from ZODB import DB
from ZODB.blob import Blob
from ZODB.serialize import referencesf

from fsyncstorage import FsyncStorage
from fsyncstorage.backup import commandline
from fsyncstorage.backup import restore
from fsyncstorage.backup import running
from fsyncstorage.backup import verification
from fsyncstorage.backup.directory import Directory
from fsyncstorage.backup.head import Damaged
from fsyncstorage.backup.layout import Database
from fsyncstorage.backup.timeline import History
from fsyncstorage.backup.uploader import Uploader
from fsyncstorage.server import handout

DATABASE = Database('main')
SITE, WRITER = 'site', 'writer'
_SOUND = re.compile('--to ([0-9a-f]{16})')


def site(path, seed):
    """Print the tid and the time of each commit that was acknowledged."""
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
        if not chance.randrange(300):
            storage.pack(time.time(), referencesf)
        time.sleep(chance.expovariate(50))


def writer(path, seed):
    """`fsync-backup run`; print how long each put and each round takes."""
    Directory.create = _timed(Directory.create, 'put', lambda made: True)
    Uploader.ship = _timed(Uploader.ship, 'round', bool)
    commandline.main([
        'run', path, os.path.join(os.path.dirname(path), 'store'),
        '--blobs', path + '.blobs'])


def _timed(function, name, counts):
    def timed(*arguments):
        began = time.monotonic()
        found = function(*arguments)
        if counts(found):
            # (As a whole: blobs are put by several threads.)
            os.write(1, b'%s %f\n' % (name.encode(),
                                      time.monotonic() - began))
        return found

    return timed


def main(rounds):
    chance, behind, took = random.Random(1), [], {'put': [], 'round': []}
    without_base = 0
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, 'Data.fs')
        os.mkdir(os.path.join(directory, 'store'))
        for number in range(rounds):
            said, times, killed = one_life(
                path, number, 1 + 4 * chance.random())
            for name, seconds in times:
                took[name].append(float(seconds))
            seconds, needs_base = seconds_lost(path, said, killed)
            behind.append(seconds)
            without_base += needs_base
            print(f'{number + 1}: {len(said):,} commits, {seconds:.3f} s'
                  + ' (it needs a base)' * needs_base, flush=True)
    print(f'{rounds} kills: not restored is what was acknowledged'
          f' {_at(behind, 0.5):.3f} s before (median),'
          f' {_at(behind, 1):.3f} s (worst)')
    for name, seconds in took.items():
        print(f'{len(seconds):,} times a {name}: {_at(seconds, 0.5):.4f} s'
              f' (median), {_at(seconds, 0.99):.4f} s (p99),'
              f' {_at(seconds, 1):.4f} s (worst)')
    limit = running.PERIOD + 2 * _at(took['round'], 0.99)
    print(f'beyond a period and two rounds (p99, {limit:.3f} s):'
          f' {sum(each > limit for each in behind)} kills;'
          f' {without_base} needed a base that was not there yet')


def _at(values, part):
    return sorted(values)[min(int(len(values) * part), len(values) - 1)]


def one_life(path, seed, seconds):
    """The commits that were acknowledged, times of the writer, and when both
    were killed."""
    with open(path + '.said', 'w+') as said, open(path + '.took', 'w+') as (
            took), open(path + '.log', 'a') as log:
        processes = [subprocess.Popen(
            [sys.executable, '-m', __spec__.name, role, path, str(seed)],
            stdout=output, stderr=log)
            for role, output in ((SITE, said), (WRITER, took))]
        while not os.fstat(said.fileno()).st_size:
            time.sleep(0.01)
        time.sleep(seconds)
        for process in processes:
            process.kill()
        killed = time.time()
        for process in processes:
            process.wait()
        return *(_lines(file) for file in (said, took)), killed


def _lines(file):
    """The words of each whole line."""
    file.seek(0)
    return [line.split() for line in file if line.endswith('\n')]


def seconds_lost(path, said, killed):
    store = Directory(os.path.join(os.path.dirname(path), 'store'))
    history = History(store, DATABASE, 1)
    needs_base, target = False, None
    try:
        found = restore.restore(history, path + '.r', path + '.r.blobs')
    except Damaged as error:
        with open(path + '.log') as log:
            assert 'what was between is lost' in log.read(), error
        needs_base = True
        target = bytes.fromhex(_SOUND.search(str(error))[1])
        found = restore.restore(
            history, path + '.r', path + '.r.blobs', target)
    with open(path + '.r', 'rb') as file:
        restored = file.read()
    files = []
    for name in path, path + '.old':
        if os.path.exists(name):
            with open(name, 'rb') as file:
                files.append(file.read(len(restored)))
    assert needs_base or restored in files, 'it has what the site has not'
    problems = verification.verify(history, True)
    assert not problems.problems and not problems.missing, problems
    os.remove(path + '.r')
    os.rename(path + '.r.blobs', f'{path}.{found.tid.hex()}.{killed}')
    lost = [float(when) for tid, when in said
            if bytes.fromhex(tid) > found.tid]
    return killed - min(lost, default=killed), needs_base


if __name__ == '__main__':
    if len(sys.argv) == 4:
        {SITE: site, WRITER: writer}[sys.argv[1]](*sys.argv[2:])
    else:
        main(int(sys.argv[1]) if len(sys.argv) == 2 else 100)
