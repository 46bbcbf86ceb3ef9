"""How much is lost with a machine that has a backup?

    python -m tests.backup.rpo [ROUNDS]

A site commits, with blobs, and packs at random; `fsync-backup run` is beside
it.  Both are killed at a random moment (kill -9), and the store is restored:
that must not have anything that the site has not, and all of its blobs.  Then
both go on.  The last line says how long before the kill the first commit was
acknowledged that is not restored.
"""

import os
import random
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
from fsyncstorage.backup import restore
from fsyncstorage.backup import verification
from fsyncstorage.backup.directory import Directory
from fsyncstorage.backup.layout import Database
from fsyncstorage.backup.timeline import History
from fsyncstorage.server import handout

DATABASE = Database('main')


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


def main(rounds):
    chance, behind = random.Random(1), []
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, 'Data.fs')
        os.mkdir(os.path.join(directory, 'store'))
        for number in range(rounds):
            said, killed = one_life(path, number, 1 + 4 * chance.random())
            behind.append(seconds_lost(path, said, killed))
            print(f'{number + 1}: {len(said):,} commits, {behind[-1]:.3f} s',
                  flush=True)
    behind.sort()
    print(f'{rounds} kills: not restored is what was acknowledged'
          f' {behind[len(behind) // 2]:.3f} s before (median),'
          f' {behind[-1]:.3f} s (worst)')


def one_life(path, seed, seconds):
    """The commits that were acknowledged, and when it was killed."""
    store = os.path.join(os.path.dirname(path), 'store')
    with open(path + '.said', 'w+') as said:
        processes = [
            subprocess.Popen([sys.executable, '-m', __spec__.name, path,
                              str(seed)], stdout=said),
            subprocess.Popen([
                sys.executable, '-m', 'fsyncstorage.backup.commandline', 'run',
                path, store, '--blobs', path + '.blobs'],
                stderr=subprocess.DEVNULL)]
        while not os.fstat(said.fileno()).st_size:
            time.sleep(0.01)
        time.sleep(seconds)
        for process in processes:
            process.kill()
        killed = time.time()
        for process in processes:
            process.wait()
        said.seek(0)
        return [line.split() for line in said if line.endswith('\n')], killed


def seconds_lost(path, said, killed):
    store = Directory(os.path.join(os.path.dirname(path), 'store'))
    history = History(store, DATABASE, 1)
    found = restore.restore(history, path + '.r', path + '.r.blobs')
    with open(path + '.r', 'rb') as file:
        restored = file.read()
    files = []
    for name in path, path + '.old':
        if os.path.exists(name):
            with open(name, 'rb') as file:
                files.append(file.read(len(restored)))
    assert restored in files, 'it has what the site has not'
    problems = verification.verify(history, True)
    assert not problems.problems and not problems.missing, problems
    os.remove(path + '.r')
    os.rename(path + '.r.blobs', f'{path}.{found.tid.hex()}.{killed}')
    lost = [float(when) for tid, when in said
            if bytes.fromhex(tid) > found.tid]
    return killed - min(lost, default=killed)


if __name__ == '__main__':
    if len(sys.argv) == 3:
        site(sys.argv[1], sys.argv[2])
    else:
        main(int(sys.argv[1]) if len(sys.argv) == 2 else 100)
