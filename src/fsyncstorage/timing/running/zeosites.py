"""ZEO servers and clients that can be measured, stock ones and ours."""

import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import os
import tempfile
import threading
import time
import typing

import ZODB.event
from ZEO.ClientStorage import ClientStorage

from fsyncstorage.client import local
from fsyncstorage.client.stock import StockClient
from fsyncstorage.client.storage import FsyncClient

from . import latency
from . import served

STOCK = 'ZEO.runzeo'
OURS = 'fsyncstorage.server.runzeo'

DATA_FILE, BLOBS = 'Data.fs', 'blobs'

#: How blobs are read with a blob cache, which is empty at first; and without
#: one.
CACHE, NO_CACHE = ('cold', 'cached'), ('direct',)

FILESTORAGE = f"""\
<filestorage 1>
  path {DATA_FILE}
  {{blobs}}
</filestorage>
"""

FSYNCSTORAGE = f"""\
%import fsyncstorage
<fsyncstorage 1>
  path {DATA_FILE}
  durability group-commit
  {{blobs}}
</fsyncstorage>
"""

#: Clients on this machine may read the data file themselves.
HANDED_OUT = FSYNCSTORAGE.replace('  {blobs}', '  local-reads on\n  {blobs}')

#: With a log, as in operation: stock writes a line to it for each commit for
#: which more than three others wait.
CONFIGURATION = f"""\
<zeo>
  address {{address}}
</zeo>
<eventlog>
  level info
  <logfile>
    path {served.LOG}
  </logfile>
</eventlog>
{{storage}}"""

#: In the directory of the server.
CONFIGURATION_FILE, SOCKET = 'zeo.conf', './zeo.sock'

#: For a client to find its server.
_CONNECT_SECONDS = 30


def loops():
    """The event loops that ZEO can use; the last one is its default."""
    return [name for name in ('asyncio', 'uvloop')
            if importlib.util.find_spec(name)]


def use_loop(name):
    """Servers and clients that this process makes from now on use this one.

    They behave differently on the two.  ZEO chose one when these modules were
    imported (read in ZEO 6.2).
    """
    make = importlib.import_module(name).new_event_loop
    for module in ('compat', 'client', 'server'):
        module = importlib.import_module(f'ZEO.asyncio.{module}')
        module.new_event_loop = make
    client = importlib.import_module('ZEO.asyncio.client')
    client.uvloop_used = name == 'uvloop'


def serve(pipe, module, loop, sync_latency, **counted):
    """The process of a server, until it ends.

    It calls the `main` of the module.  `counted` are lists by name; the driver
    is told their lengths, as with the syncs.
    """
    use_loop(loop)
    with latency.slowed(sync_latency) as syncs:
        # Works without zope.event, which subscribers need.
        ZODB.event.notify = functools.partial(
            _tell, pipe, {'syncs': syncs, **counted})
        importlib.import_module(module).main(['-C', CONFIGURATION_FILE])


def _tell(pipe, counted, event):
    # The StorageServer sends a `Serving` when clients can connect.
    if type(event).__name__ == 'Serving':
        pipe.send(event.address)
        threading.Thread(
            target=_answer, args=(pipe, counted), daemon=True).start()


def _answer(pipe, counted):
    served.answer(pipe, lambda: {
        'cpu_seconds': time.process_time(),
        **{name: len(each) for name, each in counted.items()}})
    os._exit(0)


@dataclasses.dataclass(frozen=True)
class ZeoSite:
    name: str
    summary: str
    #: A module whose function `main` takes the arguments of runzeo.
    server: str
    #: The section of the storage in the server's configuration.
    storage: str
    #: Called with the address and with options of ClientStorage.
    client: typing.Callable = ClientStorage
    #: `CACHE`: each client has a blob cache; `NO_CACHE`: clients use the
    #: directory of the server; empty: there are no blobs.
    ways: tuple = ()

    #: Like `serve`; and where the server listens.
    serve: typing.Callable = serve
    host: str = '127.0.0.1'

    #: Its syncs can be made slower.
    can_be_slowed = True
    #: Any number of clients can read.
    alone = False

    @contextlib.contextmanager
    def running(
            self, directory, *, loop, sync_latency, socket, **options):
        """A `Site` on an empty directory; `serve` gets the options."""
        path = os.path.join(directory, CONFIGURATION_FILE)
        with open(path, 'w', encoding='utf-8') as file:
            file.write(CONFIGURATION.format(
                address=SOCKET if socket else f'{self.host}:0',
                storage=self.storage.format(
                    blobs=f'blob-dir {BLOBS}' if self.ways else '')))
        with served.running(
                self.serve, directory, module=self.server, loop=loop,
                sync_latency=sync_latency, **options) as server:
            use_loop(loop)  # of the clients
            address = (
                os.path.join(directory, SOCKET) if socket
                else tuple(server.address))
            yield served.Site(server, address, lambda: self.client(
                address, wait_timeout=_CONNECT_SECONDS,
                **self._blobs(directory)))

    def _blobs(self, directory):
        """The options of a client for its blobs."""
        if self.ways == CACHE:
            return {'blob_dir': new_cache(directory)}
        if self.ways == NO_CACHE:
            return {'blob_dir': os.path.join(directory, BLOBS),
                    'shared_blob_dir': True}
        return {}


def local_client(address, wait_timeout, **options):
    """A client that has the data file, which it gets a moment later."""
    client = FsyncClient(address, wait_timeout=wait_timeout, **options)
    until = time.monotonic() + wait_timeout
    while not client.stats()['reads_locally']:
        if time.monotonic() > until:
            client.close()
            raise TimeoutError('the server hands out no file')
        time.sleep(0.001)
    return client


def new_cache(directory):
    return tempfile.mkdtemp(prefix='cache-', dir=directory)


CONTESTANTS = {contestant.name: contestant for contestant in (
    ZeoSite('zeo', 'client and server of ZEO, FileStorage',
            STOCK, FILESTORAGE),
    ZeoSite('zeo:fsyncstorage',
            'client and server of ZEO, FsyncStorage (group-commit)',
            STOCK, FSYNCSTORAGE),
    ZeoSite('fsync-zeo',
            'client of ZEO, fsync-runzeo, FsyncStorage (group-commit)',
            OURS, FSYNCSTORAGE),
    ZeoSite('fsync-client',
            'FsyncClient, fsync-runzeo, FsyncStorage (group-commit)',
            OURS, FSYNCSTORAGE, FsyncClient),
    *([ZeoSite('fsync-client:local',
               'the same, with local-reads: the client reads the file itself',
               OURS, HANDED_OUT, local_client)]
      if local.is_possible() else []),
    ZeoSite('fsync-client:zeo',
            'client of ZEO with our blob cache, server of ZEO, FileStorage',
            STOCK, FILESTORAGE, StockClient),
)}
