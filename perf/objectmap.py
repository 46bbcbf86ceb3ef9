"""How long it takes to build an object map, and how long commits wait for it.

    python -m perf.objectmap OBJECTS --directory DIR

gives a storage an index with this number of objects, as if it had them, and
builds its map a few times, while a thread commits without a pause.  Nothing is
synced (durability none): so a commit can only wait for the map, for the
interpreter or for a processor.  It prints the longest build, the memory of a
map, and the slowest commits during the builds and without them.
"""

import contextlib
import os
import tempfile
import threading
import time

from ZODB.utils import p64

from fsyncstorage import FsyncStorage
from fsyncstorage.timing.options import arguments

from .filling import store

BUILDS = 5
FIRST_POSITION = 4
MS = 1e3


class Committer(threading.Thread):
    """Commits until it is told to end."""

    def __init__(self, storage):
        super().__init__()
        self._storage = storage
        self.begun = threading.Event()
        self.end = threading.Event()
        #: (when it began, how long it took)
        self.commits = []

    def run(self):
        while not self.end.is_set():
            begin = time.perf_counter()
            store(self._storage, [0])
            self.commits.append((begin, time.perf_counter() - begin))
            self.begun.set()

    def slowest(self, begin, end):
        """Of those that were under way at some time between the two."""
        return max((took for began, took in list(self.commits)
                    if began < end and began + took > begin), default=0.0)


def measure(storage, committer):
    """Build maps; (longest build, slowest commit, the same without a build,
    bytes of a map)."""
    builds, during, without = [], [], []
    for _ in range(BUILDS):
        begin = time.perf_counter()
        built = storage.object_map(bytes(32), lambda: None)
        end = time.perf_counter()
        time.sleep(end - begin)  # as long without a build
        builds.append(end - begin)
        during.append(committer.slowest(begin, end))
        without.append(committer.slowest(end, 2 * end - begin))
        size = memory(built)
        built.close()
    return max(builds), max(during), max(without), size


def memory(built):
    descriptors = built.open()
    try:
        return 512 * os.fstat(descriptors[1]).st_blocks
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def main(argv=None):
    options = parser().parse_args(argv)
    with tempfile.TemporaryDirectory(dir=options.directory) as directory, \
            contextlib.closing(FsyncStorage(
                os.path.join(directory, 'Data.fs'), durability='none',
                index_checkpoint='1000GB')) as storage:
        store(storage, [0])
        storage._positions.put(
            (p64(number), FIRST_POSITION)
            for number in range(1, options.objects))
        committer = Committer(storage)
        committer.start()
        try:
            committer.begun.wait()
            longest, during, without, size = measure(storage, committer)
        finally:
            committer.end.set()
            committer.join()
    print(f'{options.objects:,} objects, {BUILDS} builds: at most'
          f' {longest:.2f} s, {size / options.objects:.2f} bytes of memory an'
          ' object')
    print(f'slowest of {len(committer.commits):,} commits:'
          f' {MS * during:.1f} ms during a build, {MS * without:.1f} ms'
          ' without one')
    return 0


def parser():
    made = arguments.OneLineParser(
        prog='perf.objectmap',
        description='Measure how an object map is built.')
    made.add_argument('objects', type=arguments.positive, metavar='OBJECTS')
    made.add_argument(
        '--directory', default='.', type=arguments.directory, metavar='DIR',
        help='where the storage is made, and removed again'
             ' (default: the current directory)')
    return made


if __name__ == '__main__':
    raise SystemExit(main())
