"""What can take part in `fsync-time blobs`, by name.

As in `sites`, and each storage has a directory of blobs.  Each time that a
client opens its storage it has a blob cache of its own, which is empty; or it
shares the directory of the server.  A storage without a server is for one
process alone.

The `ways` of a contestant are those in which its blobs can be read (see
`blobwork`).
"""

import contextlib
import dataclasses
import functools
import os
import tempfile
import typing

from ZODB.FileStorage import FileStorage

from fsyncstorage import FsyncStorage

from .. import latency
from ..servers import served
from ..servers import zeo as zeosites

CACHE = 'cold', 'cached'
NO_CACHE = 'direct',

BLOBS = 'blobs'


@dataclasses.dataclass(frozen=True)
class DirectSite:
    name: str
    summary: str
    #: Called with a path, and where the blobs are.
    storage: typing.Callable

    can_be_slowed = alone = True
    ways = NO_CACHE

    @contextlib.contextmanager
    def running(self, directory, *, sync_latency, **others):
        with latency.slowed(sync_latency):  # in the processes that are forked
            yield served.Site(
                served.Nobody(cpu_seconds=0.0), None, functools.partial(
                    self.storage, os.path.join(directory, 'Data.fs'),
                    blob_dir=os.path.join(directory, BLOBS)))


@dataclasses.dataclass(frozen=True)
class ZeoBlobSite(zeosites.ZeoSite):
    #: Clients use the directory of the server.
    shared: bool = False

    alone = False

    @property
    def ways(self):
        return NO_CACHE if self.shared else CACHE

    @contextlib.contextmanager
    def running(self, directory, **settings):
        with super().running(directory, **settings) as site:

            def open_storage():
                return site.open(
                    shared_blob_dir=self.shared,
                    blob_dir=os.path.join(directory, BLOBS) if self.shared
                    else new_cache(directory))

            yield dataclasses.replace(site, open=open_storage)


def new_cache(directory):
    return tempfile.mkdtemp(prefix='cache-', dir=directory)


def _with_blobs(name, /, **more):
    """A contestant of `fsync-time zeo`."""
    site = zeosites.CONTESTANTS[name]
    section = site.storage.replace(
        'path Data.fs', f'path Data.fs\n  blob-dir {BLOBS}')
    return ZeoBlobSite(**{**vars(site), 'storage': section, **more})


CONTESTANTS = {
    contestant.name: contestant
    for contestant in (
        _with_blobs('zeo'),
        _with_blobs(
            'zeo', name='zeo:shared', shared=True,
            summary='the same, clients share the directory of the server'),
        _with_blobs('fsync-client'),
        _with_blobs('fsync-client:zeo'),
        DirectSite(
            'filestorage',
            'FileStorage, no server',
            functools.partial(FileStorage)),
        DirectSite(
            'fsync:group-commit',
            'FsyncStorage with durability group-commit, no server',
            functools.partial(FsyncStorage, durability='group-commit')),
    )
}
