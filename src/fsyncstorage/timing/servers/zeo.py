"""ZEO servers and clients that can take part, stock ones and ours."""

import contextlib
import dataclasses
import functools
import os

from ZEO.ClientStorage import ClientStorage

from fsyncstorage.client.storage import FsyncClient

from .. import loops
from . import served

STOCK = 'ZEO.runzeo'
OURS = 'fsyncstorage.server.runzeo'

DATA_FILE = 'Data.fs'

FILESTORAGE = f"""\
<filestorage 1>
  path {DATA_FILE}
</filestorage>
"""

FSYNCSTORAGE = f"""\
%import fsyncstorage
<fsyncstorage 1>
  path {DATA_FILE}
  durability group-commit
</fsyncstorage>
"""

#: Stock writes a line for each commit that more than three wait for: it does
#: so in operation, too.
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

#: Relative to the directory of the server.
CONFIGURATION_FILE = 'zeo.conf'

SOCKET = './zeo.sock'

#: For a client to find its server.
_CONNECT_SECONDS = 30


@dataclasses.dataclass(frozen=True)
class ZeoSite:
    name: str
    summary: str
    #: Has a function `main` that takes the arguments of runzeo.
    server: str
    #: The section of the storage in the server's configuration.
    storage: str
    client: type = ClientStorage

    #: The program that runs the server, and where it listens.
    program: str = 'fsyncstorage.timing.servers.launcher'
    host: str = '127.0.0.1'

    #: Its syncs can be made slower.
    can_be_slowed = True

    @property
    def takes_light_clients(self):
        # To the server they are the same whatever the real clients are.
        return self.client is ClientStorage

    @contextlib.contextmanager
    def running(
            self, directory, *, loop, sync_latency, socket, **options):
        """A `Site` on an empty directory; the program has the options, too."""
        path = os.path.join(directory, CONFIGURATION_FILE)
        with open(path, 'w', encoding='utf-8') as file:
            file.write(CONFIGURATION.format(
                address=SOCKET if socket else f'{self.host}:0',
                storage=self.storage))
        with served.running(
                self.program, directory, module=self.server,
                configuration=CONFIGURATION_FILE, loop=loop,
                sync_latency=sync_latency, **options) as server:
            loops.use(loop)  # of the clients
            address = (
                os.path.join(directory, SOCKET) if socket
                else tuple(server.address))
            open_client = functools.partial(
                self.client, address, wait_timeout=_CONNECT_SECONDS)
            yield served.Site(server, address, open_client)


CONTESTANTS = {contestant.name: contestant for contestant in (
    ZeoSite(
        'zeo', 'client and server of ZEO, FileStorage',
        STOCK, FILESTORAGE),
    ZeoSite(
        'zeo:fsyncstorage',
        'client and server of ZEO, FsyncStorage (group-commit)',
        STOCK, FSYNCSTORAGE),
    ZeoSite(
        'fsync-zeo',
        'client of ZEO, fsync-runzeo, FsyncStorage (group-commit)',
        OURS, FSYNCSTORAGE),
    ZeoSite(
        'fsync-client',
        'FsyncClient, fsync-runzeo, FsyncStorage (group-commit)',
        OURS, FSYNCSTORAGE, FsyncClient),
    ZeoSite(
        'fsync-client:zeo',
        'FsyncClient, server of ZEO, FileStorage',
        STOCK, FILESTORAGE, FsyncClient),
)}
