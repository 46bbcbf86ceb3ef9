"""What the tests of the blob cache share: a server, and a look at the disk."""

import contextlib
import os

from fsyncstorage.client.blobs import blobcache
from fsyncstorage.client.blobs import directory
from fsyncstorage.client.blobs import download
from fsyncstorage.client.blobs.blobcache import BlobCache
from fsyncstorage.wire.frames import LONGEST_BLOB

from ...support import TestCase
from ...support import oid

SERIAL = oid(1)


def content(number, size):
    """Bytes that are nobody else's."""
    line = b'%d of %d\n' % (number, size)
    return (line * (size // len(line) + 1))[:size]


class Server:
    """Blobs of any size, in pieces; `fetch` is that of a blob cache."""

    piece = 1000
    #: Bytes of a blob that is too long.
    begin = 1000
    #: Whether it says how large a blob is.
    knows_sizes = True

    def __init__(self):
        self.blobs = {}     # number -> content
        self.asked = []     # (number, offset)
        self.begun = []     # the same, where a begin would do
        self.sending = lambda download, piece: None  # called before a piece

    def put(self, number, size):
        self.blobs[number] = content(number, size)

    def fetch(self, oid, serial, download):
        number = int.from_bytes(oid, 'big')
        whole = download.most == LONGEST_BLOB
        asked = self.asked if whole else self.begun
        asked.append((number, download.offset))
        data = self.blobs[number]
        if self.knows_sizes:
            download.expect(len(data))
        end = len(data)
        if self.knows_sizes and end - download.offset > download.most:
            end = min(end, download.offset + self.begin)
        while download.offset < end:
            piece = data[download.offset:end][:self.piece]
            self.sending(download, piece)
            download.write(piece)


class Disk:
    """The files of a cache directory, and its total, seen from outside."""

    def __init__(self, path):
        self.path = path
        self.own = os.path.join(path, 'fsyncstorage')
        self.total_file = os.path.join(self.own, 'total')

    def blobs(self):
        """name -> size."""
        return {
            f'{bucket}/{name}': size
            for bucket in os.listdir(self.path) if bucket.isdigit()
            for name, size in self._sizes(os.path.join(self.path, bucket))
            if name.endswith('.blob')}

    def own_files(self):
        """What downloads and guests have: name -> size."""
        return dict(self._sizes(os.path.join(self.own, 'parts')))

    def parts(self):
        return {name: size for name, size in self.own_files().items()
                if name.endswith('.blob')}

    def used(self):
        return sum(self.blobs().values()) + sum(self.parts().values())

    def _sizes(self, directory):
        for name in os.listdir(directory):
            with contextlib.suppress(FileNotFoundError):
                yield name, os.stat(os.path.join(directory, name)).st_size

    def total(self):
        """None: it is unknown."""
        with open(self.total_file, 'rb') as file:
            total = int.from_bytes(file.read(8), 'big', signed=True)
        return total if total >= 0 else None


class BlobCacheTest(TestCase):

    limit = 10000

    def setUp(self):
        super().setUp()
        # Each use is noted, so it is known which one was the last.
        self.patch(directory, FRESH=0)
        self.server = Server()
        self.home = self.path('cache')
        self.disk = Disk(self.home)

    def cache(self, limit=-1, fill='commit', fetch=None, **options):
        cache = BlobCache(
            self.home, self.limit if limit == -1 else limit,
            fetch or self.server.fetch, fill, **options)
        self.addCleanup(cache.close)
        return cache

    def short_is(self, size):
        for module in blobcache, download:
            self.patch(module, SHORT=size)

    def name(self, number):
        return f'{number % 997}/{number // 997}.{SERIAL.hex()}.blob'

    def names(self, *numbers):
        return {self.name(number) for number in numbers}

    def load(self, cache, number):
        """Load a blob, and see that it is right."""
        path = cache.load(oid(number), SERIAL)
        self.assertEqual(path, os.path.join(self.home, self.name(number)))
        with open(path, 'rb') as file:
            self.assertEqual(file.read(), self.server.blobs[number])

    def read(self, cache, number):
        with cache.open(oid(number), SERIAL) as file:
            self.assertEqual(file.read(), self.server.blobs[number])

    def check(self):
        """The total is right, and nothing is left of any download."""
        blobs = self.disk.blobs()
        self.assertEqual(self.disk.total(), sum(blobs.values()))
        self.assertEqual(self.disk.own_files(), {})
        return set(blobs)
