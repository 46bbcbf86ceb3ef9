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
CLIENTS = {
    STOCK: ('', 'zeoclient', ClientStorage),
    OURS: ('%import fsyncstorage.client', 'fsyncclient', FsyncClient),
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
        imports, section, expected = CLIENTS[kind]
        storage = ZODB.config.storageFromString(CLIENT.format(
            imports=imports, section=section, name=name,
            directory=self.directory))
        self.assertIs(type(storage), expected)
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
        left = set(), {}
        for server, client in self.way:
            with self.server(server):
                db = self.client(client)
                self.check_warm(left, self.cached(db))
                self.write(db, len(self.documents))
                self.check(db)
                left = self.cached(db)
                db.close()
            self.check_the_file()

    def cached(self, db):
        """Objects in the cache of the client; blob files and their inodes."""
        blobs = {
            entry.path: entry.inode()
            for bucket in os.scandir(self.path('client-blobs'))
            if bucket.name.isdecimal() for entry in os.scandir(bucket)
            if entry.name.endswith('.blob')}
        return set(db.storage._cache.contents()), blobs

    def check_warm(self, left, found):
        objects, blobs = left
        self.assertLessEqual(objects, found[0])
        self.assertLessEqual(blobs.items(), found[1].items())
        self.assertEqual(bool(objects), bool(self.tids))


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
        for kind in OURS, STOCK:
            for db in clients:
                until(lambda: not db.storage.is_connected(), 'the end')
            with self.server(kind):
                for db in clients:
                    until(db.storage.is_connected, 'connected again')
                self.go_on(clients)
                for place, name in enumerate(('one', 'two')):
                    clients[place].close()
                    clients[place] = self.client(kind, name)
                    self.go_on(clients)
        self.check_the_file()

    def go_on(self, clients):
        for number, db in enumerate(clients):
            self.write(db, number)
            for each in clients:
                self.check(each)
