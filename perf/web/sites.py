"""The contestants of `files`, by name: what sends the files, and from where.

Files are sent by nginx alone; by nginx, told by an application
(X-Accel-Redirect); or by the server of the application itself, waitress or
gunicorn.  The blobs are in a storage that the application opens itself, or at
a ZEO server; then a cold file is one that the client's blob cache does not
have yet.
"""

import contextlib
import dataclasses
import importlib.util
import os

from ZODB.blob import LAYOUT_MARKER

from fsyncstorage.client.blobs.cachedirectory import LAYOUT
from fsyncstorage.timing.blobs import commandline as blobs
from fsyncstorage.timing.blobs import work as blobwork
from fsyncstorage.timing.servers import served
from fsyncstorage.timing.servers import zeosites

from . import applications
from . import nginx
from . import program

#: Threads of an application: one for each request at a time.
THREADS = 10

CACHE = 'cache'

DIRECT, OURS, STOCK = 'fsync:group-commit', 'fsync-client', 'zeo'

#: What the application opens.
_DIRECT = """\
%import fsyncstorage
<fsyncstorage>
  path {directory}/Data.fs
  blob-dir {files}
</fsyncstorage>
"""
_CLIENTS = {
    OURS: '%import fsyncstorage.client\n<fsyncclient>{}</fsyncclient>\n',
    STOCK: '<zeoclient>{}</zeoclient>\n',
}
_OF_CLIENTS = """
  server {}:{}
  blob-dir {}
  blob-cache-size {}
"""

#: No sample has as many bytes: nothing has to leave the cache.
ROOMY = '16GB'

_PLAIN_FILE = 'file'


def make_cache(directory):
    """Make a client's blob cache, before the processes start that share it.

    If stock clients make one at the same time, one of them can find a marker
    in which nothing is written yet, and refuses the directory.
    """
    os.makedirs(os.path.join(directory, 'tmp'))
    with open(os.path.join(directory, LAYOUT_MARKER), 'w') as marker:
        marker.write(LAYOUT)


def section(client, cache, address, cache_size=ROOMY):
    """The section of a configuration for a client, stock or ours."""
    return _CLIENTS[client].format(
        _OF_CLIENTS.format(*address, cache, cache_size))


@dataclasses.dataclass(frozen=True)
class FileSite:
    name: str
    summary: str
    #: A server, and a class of `applications`; None: there is none.
    server: str | None = None
    application: str | None = None
    #: A contestant of `fsync-time blobs`; None: the file is a plain one.
    storage: str | None = None
    by_nginx: bool = False

    can_be_slowed = False  # nothing is synced

    @property
    def ways(self):
        return ('cold', 'warm') if self.storage in (OURS, STOCK) else (
            'warm',)

    def missing(self):
        """What it needs that is not installed, or None."""
        for module in self.server, self.application == 'Ours' and 'webob':
            if module and importlib.util.find_spec(module) is None:
                return f'{module} is not installed'
        return nginx.missing() if self.by_nginx else None

    @contextlib.contextmanager
    def running(self, directory, *, cache_size=ROOMY, **settings):
        """Yields the address of the server that sends.

        The settings are a size, the number of files, and a loop.
        """
        with contextlib.ExitStack() as stack:
            files, section = stack.enter_context(self._filled(
                directory, cache_size=cache_size, **settings))

            def start(module, **options):
                home = os.path.join(directory, module.__name__)
                os.mkdir(home)
                return stack.enter_context(served.running(
                    module.__name__, home, **options)).address

            address = None
            if self.server:
                address = start(
                    program, server=self.server, processes=1, threads=THREADS,
                    application=self.application, storage=section,
                    files=files if self.by_nginx else None)
            if self.by_nginx:
                address = start(nginx, files=files, application=address)
            yield tuple(address)

    @contextlib.contextmanager
    def _filled(self, directory, size, number, cache_size, **site_settings):
        """Where the files are, and the section of a storage, if there is one.
        """
        if self.storage is None:
            yield _plain(directory, size), None
            return
        with blobs.CONTESTANTS[self.storage].running(
                directory, sync_latency=0.0, socket=False,
                **site_settings) as site:
            blobwork.plant(site, number, size)
            if site.address is None:
                files = os.path.join(directory, zeosites.BLOBS)
                yield files, _DIRECT.format(directory=directory, files=files)
            else:
                files = os.path.join(directory, CACHE)
                yield files, section(
                    self.storage, files, site.address, cache_size)

    def path(self, way):
        """The path to ask for; None: there is no such file."""
        if self.storage:
            return {'small': applications.SMALL, 'warm': applications.WARM,
                    'cold': applications.COLD}[way]
        plain = applications.WARM if self.server else (
            f'{nginx.PLAIN}{_PLAIN_FILE}')
        return plain if way == 'warm' else None


def _plain(directory, size):
    files = os.path.join(directory, 'plain')
    os.mkdir(files)
    with open(os.path.join(files, _PLAIN_FILE), 'wb') as file:
        file.write(os.urandom(size))
    os.sync()  # as `blobwork.plant`
    return files


_OVER = {
    'direct': (DIRECT, 'FsyncStorage in the application'),
    'fsync-client': (OURS, 'FsyncClient, fsync-runzeo'),
    'zeo': (STOCK, 'client and server of ZEO'),
}


def _sites():
    yield FileSite('nginx', 'nginx, a plain file', by_nginx=True)
    yield FileSite(
        'x-accel:bare', 'nginx, told by a function that does nothing else',
        'waitress', 'Bare', by_nginx=True)
    for over in 'direct', 'fsync-client':
        storage, words = _OVER[over]
        yield FileSite(
            f'x-accel:{over}', f'nginx, told by BlobResponse; {words}',
            'waitress', 'Ours', storage, by_nginx=True)
    for server in 'waitress', 'gunicorn':
        for over, (storage, words) in _OVER.items():
            application, by = (
                ('Stock', 'file_wrapper') if storage == STOCK
                else ('Ours', 'BlobResponse'))
            yield FileSite(f'{server}:{over}', f'{server}, {by}; {words}',
                           server, application, storage)


CONTESTANTS = {site.name: site for site in _sites()}
