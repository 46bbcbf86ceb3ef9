"""Files over ZEO and under waitress, when somebody on the way fails: a server
that is killed, a reader that takes next to nothing.

The server is a process, the application is here, and HTTP is real.
"""

import contextlib
import http.client
import os
import socket
import threading

from ZODB.blob import Blob
from ZODB.DB import DB

from fsyncstorage.client import reads
from fsyncstorage.client.storage import FsyncClient

from ..client.blobs.caches import Disk
from ..client.blobs.caches import content
from ..commands import SCRIPTS
from ..commands import Commands
from ..commands import answers
from ..support import PATIENCE
from ..support import Thread
from ..support import until
from .asking import BUFFER
from .asking import Answer
from .asking import Application
from .asking import Waitress

ZEO_CONF = '''
%import fsyncstorage
<zeo>
  address {directory}/socket
</zeo>
<fsyncstorage 1>
  path {directory}/Data.fs
  blob-dir {directory}/blobs
  durability none
</fsyncstorage>
'''

# More than there is room for in all buffers on the way.
# Bytes that come before the rest is held up, and all.
FIRST = 1 << 20
SIZE = 4 * FIRST


class Site(Commands):
    """The blob `cached`, and two that the cache does not have."""

    level = 2

    cache_size = 1 << 30

    def setUp(self):
        super().setUp()
        with open(self.path('zeo.conf'), 'w') as file:
            file.write(ZEO_CONF.format(directory=self.directory))
        self.server = self.start(
            [*SCRIPTS['fsync-runzeo'], '-C', self.path('zeo.conf')],
            lambda: answers(self.path('socket')))
        self.client = FsyncClient(
            self.path('socket'), blob_dir=self.path('cache'),
            blob_cache_size=self.cache_size, blob_cache_fill='load',
            wait_timeout=PATIENCE)
        db = DB(self.client)
        self.addCleanup(db.close)
        self.blobs = {
            name: content(number, SIZE)
            for number, name in enumerate(('cached', 'cold', 'other'))}
        with db.transaction() as connection:
            for name, data in self.blobs.items():
                connection.root()[name] = Blob(data)
        self.disk = Disk(self.path('cache'))
        self.web = Waitress(self, Application(db))
        self.threads = set(threading.enumerate())
        self.assert_whole('cached')
        until(lambda: not any(self.in_use()), 'nobody is served')
        self.files = self.open_files()

    def open_files(self):
        """Of the blob cache, by this process."""
        found = []
        for number in os.listdir('/dev/fd'):
            with contextlib.suppress(FileNotFoundError):
                found.append(os.readlink(f'/dev/fd/{number}'))
        return sorted(name for name in found
                      if name.startswith(self.path('cache')))

    def in_use(self):
        """Connections, threads, and parts, by those who are served."""
        return (self.web.connections, self.web.busy, self.disk.parts(),
                self.new_threads())

    def new_threads(self):
        return set(threading.enumerate()) - self.threads

    def assert_nothing_is_left(self):
        until(lambda: not any(self.in_use()), 'nobody is served')
        self.assertEqual(self.open_files(), self.files)

    def hold_up_downloads(self):
        """Return an event: the rest of what is behind a first piece may come.
        """
        go_on = threading.Event()
        put = reads._put

        def held(download, message):
            if download.offset >= FIRST:
                go_on.wait(PATIENCE)
            return put(download, message)

        self.patch(reads, _put=held)
        # Before the client is closed, which waits for downloads.
        self.addCleanup(go_on.set)
        return go_on

    # Readers

    @contextlib.contextmanager
    def asked(self, name, take=None):
        """A response.  `take`: the system receives no more in advance."""
        connection = http.client.HTTPConnection(
            *self.web.address, timeout=PATIENCE)
        with contextlib.closing(connection):
            if take:
                connection.sock = socket.socket()
                connection.sock.setsockopt(
                    socket.SOL_SOCKET, socket.SO_RCVBUF, take)
                connection.sock.connect(self.web.address)
            connection.request('GET', f'/{name}')
            with connection.getresponse() as response:
                yield response

    def get(self, name):
        with self.asked(name) as response:
            return Answer(response.status, dict(response.headers),
                          response.read())

    def assert_whole(self, name):
        answer = self.get(name)
        self.assertEqual(answer.status, 200)
        self.assertTrue(answer.body == self.blobs[name], name)

    def assert_others_are_served(self, name, busy):
        """And then, so many threads of the application are left busy."""
        for _ in range(2):
            self.assert_whole(name)
            self.assert_whole('other')
        until(lambda: self.web.busy == busy and not self.new_threads(),
              'they are done with')

    @contextlib.contextmanager
    def slow_reader(self, name):
        """It takes a few bytes, and no more."""
        with self.asked(name, take=BUFFER) as response:
            self.assertEqual(response.read(10), self.blobs[name][:10])
            yield
            # It holds the file.
            self.assertNotEqual(self.open_files(), self.files)


class KilledServer(Site):

    def test_a_file_that_is_being_sent_ends_too_early(self):
        go_on = self.hold_up_downloads()
        with self.asked('cold') as response:
            self.assertEqual(response.headers['Content-Length'], str(SIZE))
            came = response.read(FIRST)
            self.client.wait_timeout = 0.1
            self.server.kill()
            self.server.wait()
            go_on.set()
            with self.assertLogs('waitress', 'ERROR'), \
                    self.assertRaises(http.client.IncompleteRead) as ended:
                response.read()
        came += ended.exception.partial
        self.assertTrue(self.blobs['cold'].startswith(came))
        self.assert_nothing_is_left()
        self.assert_whole('cached')
        for name in 'cold', 'other':
            self.assertEqual(self.get(name).status, 503)
        self.assert_nothing_is_left()


class SlowReaders(Site):

    level = 3

    def test_of_what_arrives_and_what_is_cached(self):
        go_on = self.hold_up_downloads()
        with self.slow_reader('cold'):
            others = Thread(self.assert_whole, 'cold')
            until(lambda: self.web.busy == 2, 'two are served')
            go_on.set()
            others.result()
            self.assert_others_are_served('cold', busy=1)
        self.assert_nothing_is_left()

        with self.slow_reader('cached'):
            # waitress has taken the file over.
            self.assert_others_are_served('cached', busy=0)
        self.assert_nothing_is_left()


class SlowReaderOfAGuest(Site):
    """A file that is larger than the cache."""

    level = 3
    cache_size = SIZE // 2

    def test_it_goes_with_its_reader(self):
        with self.slow_reader('cold'):
            self.assert_others_are_served('cold', busy=1)
        self.assert_nothing_is_left()
        self.assertEqual(self.disk.blobs(), {})
