"""RelStorage over PostgreSQL and SQLite, and zodb-pgjsonb, as peers of ZEO.

They are not part of this project: to compare with them, install RelStorage or
zodb-pgjsonb, and the database.  History is kept, as FileStorage keeps it.

There is no event loop.  At the begin of each transaction, each storage asks
the database what has changed, while a client of ZEO was already told: this
counts in the time of a transaction, not of an object.
"""

import contextlib
import dataclasses
import importlib.util
import os

import ZODB.config

from fsyncstorage.timing.running import served
from fsyncstorage.timing.running import zeosites

from . import postgresql

CONFIGURATION = """\
%import relstorage
<relstorage>
  keep-history true
  blob-dir {blobs}
  {database}
</relstorage>
"""

POSTGRESQL_SECTION = """\
<postgresql>
  driver psycopg2
  dsn {dsn}
</postgresql>
"""

#: Its default, synchronous NORMAL, is not durable.
SQLITE_SECTION = """\
<sqlite3>
  data-dir {directory}
  <pragmas>
    synchronous FULL
  </pragmas>
</sqlite3>
"""


PGJSONB_CONFIGURATION = """\
%import zodb_pgjsonb
<pgjsonb>
  history-preserving true
  blob-temp-dir {blobs}
  {database}
</pgjsonb>
"""


@dataclasses.dataclass(frozen=True)
class RelStorageSite:
    """Subclasses have a context manager `database`, which yields a server and
    the section of a configuration."""

    package = 'RelStorage'
    configuration = CONFIGURATION

    name: str
    summary: str
    #: Where a server listens.
    host: str = '127.0.0.1'

    # PostgreSQL has buffers of its own for what it has read; SQLite reads the
    # files itself.
    can_be_slowed = alone = False
    ways = zeosites.CACHE

    def missing(self):
        """What it needs that is not installed, or None."""
        module = self.package.lower().replace('-', '_')
        if importlib.util.find_spec(module) is None:
            return f'{self.package} is not installed'
        return None

    @contextlib.contextmanager
    def running(self, directory, *, socket, **others):
        """A `Site` on an empty directory.

        Each time that a client opens its storage it has a new blob cache.
        """
        with self.database(directory, socket) as (server, section):

            def open_storage():
                return ZODB.config.storageFromString(self.configuration.format(
                    blobs=zeosites.new_cache(directory), database=section))

            # Import it here: clients are forked, and have it then.
            open_storage().close()
            yield served.Site(server, None, open_storage)


class PostgreSQLSite(RelStorageSite):

    def missing(self):
        if importlib.util.find_spec('psycopg2') is None:
            return 'psycopg2 is not installed'
        return super().missing() or postgresql.missing()

    @contextlib.contextmanager
    def database(self, directory, socket):
        with served.running(
                postgresql.serve, directory,
                host=None if socket else self.host) as server:
            yield server, POSTGRESQL_SECTION.format(dsn=server.address)


class PgjsonbSite(PostgreSQLSite):

    package = 'zodb-pgjsonb'
    configuration = PGJSONB_CONFIGURATION

    @contextlib.contextmanager
    def database(self, directory, socket):
        with served.running(
                postgresql.serve, directory,
                host=None if socket else self.host) as server:
            yield server, f'dsn {server.address}'


class ReplicatedSite(PostgreSQLSite):
    """A commit returns when a standby has it on its disk, too
    (`synchronous_commit` is `on`, its default).  This promises as much as a
    majority of a log; `remote_write` would be less, `remote_apply` more."""

    #: There is room for two connections of each of 100 threads.
    SETTINGS = {'synchronous_standby_names': '*', 'max_connections': 300}

    @contextlib.contextmanager
    def database(self, directory, socket):
        with served.running(
                postgresql.serve, directory, host=None,
                settings=self.SETTINGS) as server:
            beside = os.path.join(directory, 'standby')
            os.mkdir(beside, 0o711)
            with served.running(
                    postgresql.serve, beside, host=None, settings={
                        'max_connections': self.SETTINGS['max_connections']},
                    primary=server.address):
                yield server, POSTGRESQL_SECTION.format(dsn=server.address)


class SQLiteSite(RelStorageSite):

    @contextlib.contextmanager
    def database(self, directory, socket):
        yield served.NoServer(cpu_seconds=0.0), SQLITE_SECTION.format(
            directory=os.path.join(directory, 'sqlite'))


POSTGRESQL = PostgreSQLSite(
    'relstorage:postgresql',
    'RelStorage, PostgreSQL with its durable defaults')
PGJSONB = PgjsonbSite(
    'pgjsonb', 'zodb-pgjsonb, PostgreSQL with its durable defaults')
REPLICATED = ReplicatedSite(
    'relstorage:postgresql:standby',
    'RelStorage, PostgreSQL with a standby that has each commit on its disk')
SQLITE = SQLiteSite(
    'relstorage:sqlite',
    'RelStorage, SQLite made durable (synchronous FULL)')


def versions(contestants):
    """A sentence, if PostgreSQL takes part."""
    if any(isinstance(getattr(one, 'site', one), PostgreSQLSite)
           for one in contestants):
        yield f'PostgreSQL was {postgresql.version()}.'
