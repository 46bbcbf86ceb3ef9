"""A stock site becomes one of ours, and stock again: nothing is exported, and
caches stay warm.  Servers are processes, as they are in operation."""

import contextlib
import os
import subprocess
import sys

import ZODB
import ZODB.config
from ZEO.ClientStorage import ClientStorage
from ZODB.blob import Blob
from ZODB.FileStorage import FileStorage
from ZODB.utils import z64

from fsyncstorage.client.stock import StockClient
from fsyncstorage.client.storage import FsyncClient

from ..commands import SCRIPTS
from ..commands import Commands
from ..commands import answers
from ..support import PATIENCE
from ..support import until

ZEO_CONF = """
{imports}
<zeo>
  address {directory}/socket
</zeo>
<{section} 1>
  path {directory}/Data.fs
  blob-dir {directory}/blobs
</{section}>
"""

CLIENT = """
{imports}
<{section}>
  server {directory}/socket
  client {name}
  var {directory}
  blob-dir {directory}/{name}-blobs
  blob-cache-size 10MB
</{section}>
"""

STOCK, OURS = 'stock', 'ours'

#: Program, import, section.
SERVERS = {
    STOCK: ((sys.executable, '-m', 'ZEO.runzeo'), '', 'filestorage'),
    OURS: (SCRIPTS['fsync-runzeo'], '%import fsyncstorage', 'fsyncstorage'),
}
#: Import, section.
CLIENTS = {
    STOCK: ('', 'zeoclient'),
    OURS: ('%import fsyncstorage.client', 'fsyncclient'),
}
#: By the kinds of server and client.
OPENED = {
    (STOCK, STOCK): ClientStorage,
    (OURS, STOCK): ClientStorage,
    (STOCK, OURS): StockClient,
    (OURS, OURS): FsyncClient,
}


class Site(Commands):

    def setUp(self):
        super().setUp()
        #: Each transaction of the site.
        self.tids = []
        #: number -> content of each document.
        self.documents = {}

    # Servers

    @contextlib.contextmanager
    def server(self, kind):
        program, imports, section = SERVERS[kind]
        with open(self.path('zeo.conf'), 'w') as file:
            file.write(ZEO_CONF.format(
                imports=imports, section=section, directory=self.directory))
        process = self.start(
            [*program, '-C', self.path('zeo.conf')],
            lambda: answers(self.path('socket')))
        self.kind = kind
        yield
        self.end(kind, process)

    def end(self, kind, process):
        """A stock server may have to be told again: what handles its signal
        raises SystemExit wherever it comes, and uvloop takes one that comes
        while a message is read for an error of that connection."""
        process.terminate()
        if kind == STOCK:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE / 4)
            process.terminate()  # nothing, if it has ended
        self.assertEqual(process.wait(PATIENCE), 0)

    def check_the_file(self):
        """As stock FileStorage finds it: all that was committed, and blobs."""
        storage = FileStorage(self.path(), blob_dir=self.path('blobs'))
        with contextlib.closing(storage):
            found = [each.tid for each in storage.iterator()]
        self.assertEqual(found[-len(self.tids):], self.tids)

    # Clients

    def client(self, kind, name='client'):
        imports, section = CLIENTS[kind]
        storage = ZODB.config.storageFromString(CLIENT.format(
            imports=imports, section=section, name=name,
            directory=self.directory))
        self.assertIs(type(storage), OPENED[self.kind, kind])
        self.addCleanup(storage.close)
        return ZODB.DB(storage)

    def write(self, db, number):
        """A document: a new one, or another version."""
        with db.transaction() as connection:
            blob = connection.root().setdefault(number, Blob())
            content = b'document %d, version %d ' % (number, len(self.tids))
            with blob.open('w') as file:
                file.write(content)
        self.tids.append(db.lastTransaction())
        self.documents[number] = content

    def check(self, db):
        """What this client reads is what was committed by anybody."""
        until(lambda: db.lastTransaction() == self.tids[-1],
              'the last transaction')
        with db.transaction() as connection:
            found = {}
            for number, blob in connection.root().items():
                with blob.open() as file:
                    found[number] = file.read()
        self.assertEqual(found, self.documents)


class ThereAndBack(Site):

    #: Of the server, and of its client.
    level = 2
    way = ((STOCK, STOCK), (OURS, STOCK), (OURS, OURS), (STOCK, OURS),
           (STOCK, STOCK))

    def test_nothing_is_lost_and_caches_stay_warm(self):
        left, blobs = {}, {}
        for server, client in self.way:
            with self.server(server):
                db = self.client(client)
                self.check_warm(db, left, blobs)
                self.write(db, len(self.documents))
                self.check(db)
                left[db.storage._cache.path] = self.cached(db)
                blobs = self.cached_blobs()
                db.close()
            self.check_the_file()

    def cached_blobs(self):
        """Blob files and their inodes."""
        return {
            entry.path: entry.inode()
            for bucket in os.scandir(self.path('client-blobs'))
            if bucket.name.isdecimal() for entry in os.scandir(bucket)
            if entry.name.endswith('.blob')}

    def cached(self, db):
        """Objects in the file of stock's client, which both have; but for the
        root, which others change.  (A client of ours has a file of its own.)
        """
        if isinstance(db.storage, FsyncClient):
            return set()
        return {each[:2] for each in db.storage._cache.contents()
                if each[0] != z64}

    def check_warm(self, db, left, blobs):
        """`left`: the objects in each file."""
        objects = left.get(db.storage._cache.path, set())
        # What is loaded may take the place of another one in stock's ring.
        self.assertLessEqual(len(objects - self.cached(db)), 1)
        self.assertLessEqual(blobs.items(), self.cached_blobs().items())


class Rolling(Site):
    """Clients go on while the server, and one after the other, is changed.

    Without new objects: after a restart of its server, a stock client goes on
    to use ids that the server before had given to it, and others are given the
    same.
    """

    level = 3

    def test_clients_go_on(self):
        with self.server(STOCK):
            clients = [self.client(STOCK, 'one'), self.client(STOCK, 'two')]
            self.go_on(clients)
        with self.restarted(OURS, clients):
            self.replace(clients, OURS)
            self.replace(clients, STOCK)
        with self.restarted(STOCK, clients):
            pass
        self.check_the_file()

    def test_back_in_another_order(self):
        """The server first: a client of ours waits, until it is restarted, or
        the server is one of ours again."""
        with self.server(OURS):
            clients = [self.client(OURS, 'one'), self.client(OURS, 'two')]
            self.go_on(clients)
        with self.server(STOCK):
            clients[0].close()
            clients[0] = self.client(OURS, 'one')
            self.go_on(clients[:1])
            self.assertFalse(clients[1].storage.is_connected())
        with self.restarted(OURS, clients):
            pass
        self.check_the_file()

    @contextlib.contextmanager
    def restarted(self, kind, clients):
        for db in clients:
            until(lambda: not db.storage.is_connected(), 'the end')
        with self.server(kind):
            for db in clients:
                until(db.storage.is_connected, 'connected again')
            self.go_on(clients)
            yield

    def replace(self, clients, kind):
        for place, name in enumerate(('one', 'two')):
            clients[place].close()
            clients[place] = self.client(kind, name)
            self.go_on(clients)

    def go_on(self, clients):
        for number, db in enumerate(clients):
            self.write(db, number)
            for each in clients:
                self.check(each)
