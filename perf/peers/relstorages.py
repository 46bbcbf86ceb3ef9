"""RelStorage over PostgreSQL and SQLite, as peers of ZEO.

It is not part of this package: who wants to compare installs it, and the
database, beside it.  History is kept, as FileStorage keeps it.

There is no event loop.  Each storage asks the database at the begin of each
transaction what has changed, where a client of ZEO was told.
"""

import contextlib
import dataclasses
import functools
import importlib.util
import os
import typing

import ZODB.config

from ..pinning import Pinning
from . import postgresql
from . import remote
from . import served

CONFIGURATION = """\
%import relstorage
<relstorage>
  keep-history true
  {database}
</relstorage>
"""

POSTGRESQL = """\
<postgresql>
  driver psycopg2
  dsn {dsn}
</postgresql>
"""

SQLITE = """\
<sqlite3>
  data-dir {directory}
  {pragmas}
</sqlite3>
"""

SYNCHRONOUS_FULL = """\
<pragmas>
  synchronous FULL
</pragmas>
"""


@dataclasses.dataclass(frozen=True)
class RelStorageSite:
    name: str
    summary: str
    #: Called with the directory, whether to use a unix socket, how to pin, and
    #: the delay of the network; a context manager that yields a server and a
    #: section of a configuration.
    database: typing.Callable
    #: Called without arguments: what of it is not installed, or None.
    database_missing: typing.Callable = lambda: None

    #: There is a server.
    can_be_remote: bool = False

    # PostgreSQL keeps what it has read in buffers of its own, SQLite reads by
    # itself.
    can_be_slowed = can_be_cold = takes_light_clients = False

    def missing(self):
        if importlib.util.find_spec('relstorage') is None:
            return 'RelStorage is not installed'
        return self.database_missing()

    @contextlib.contextmanager
    def running(self, directory, *, loop, sync_latency, socket, pin,
                network_delay=None):
        """A `Site` on an empty directory."""
        with self.database(directory, socket, pin, network_delay) as (
                server, database):
            configuration = CONFIGURATION.format(database=database)
            # Clients are forked: none of them has to import it.
            open_storage = functools.partial(
                ZODB.config.storageFromString, configuration)
            open_storage().close()
            yield served.Site(server, None, open_storage)


@contextlib.contextmanager
def _postgresql(directory, socket, pin, network_delay=None):
    with served.running(
            'fsyncstorage.timing.servers.postgresql', directory, pin,
            network_delay,
            host=None if socket else remote.host(network_delay)) as server:
        yield server, POSTGRESQL.format(dsn=server.address)


def _postgresql_missing():
    if importlib.util.find_spec('psycopg2') is None:
        return 'psycopg2 is not installed'
    return postgresql.missing()


@contextlib.contextmanager
def _sqlite(directory, socket, pin, network_delay=None, pragmas=''):
    Pinning(pin).start_clients()
    yield served.Nobody(), SQLITE.format(
        directory=os.path.join(directory, 'sqlite'), pragmas=pragmas)


CONTESTANTS = (
    RelStorageSite(
        'relstorage:postgresql',
        'RelStorage, PostgreSQL with its durable defaults',
        _postgresql, _postgresql_missing, can_be_remote=True),
    RelStorageSite(
        'relstorage:sqlite',
        'RelStorage, SQLite made durable (synchronous FULL)',
        functools.partial(_sqlite, pragmas=SYNCHRONOUS_FULL)),
    RelStorageSite(
        'relstorage:sqlite-normal',
        'RelStorage, SQLite with its default: NOT durable',
        _sqlite),
)
