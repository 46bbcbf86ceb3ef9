"""The storages that can be measured without a server, by name.

The user's own storages are in `custom`.
"""

import contextlib
import dataclasses
import functools
import os
import typing

from ZODB.FileStorage import FileStorage

from fsyncstorage import FsyncStorage
from fsyncstorage.commit.policies import POLICIES

from .running import latency
from .running import served
from .running import zeosites


@dataclasses.dataclass(frozen=True)
class Contestant:
    name: str
    summary: str
    #: Called with a path, and perhaps a `blob_dir`.
    storage: typing.Callable
    #: Returns a context manager; the storage is opened and used inside.
    changed: typing.Callable = contextlib.nullcontext

    #: Its syncs can be made slower, and only one process can open it.
    can_be_slowed = alone = True
    ways = zeosites.NO_CACHE

    @contextlib.contextmanager
    def opened(self, directory):
        """The storage, on an empty directory; the caller closes it."""
        with self.changed():
            yield self.storage(os.path.join(directory, zeosites.DATA_FILE))

    @contextlib.contextmanager
    def running(self, directory, *, sync_latency, **others):
        """A `Site` without a server, for one client; it can store blobs."""
        with latency.slowed(sync_latency):  # also in forked processes
            yield served.Site(
                served.NoServer(cpu_seconds=0.0), None, functools.partial(
                    self.storage, os.path.join(directory, zeosites.DATA_FILE),
                    blob_dir=os.path.join(directory, zeosites.BLOBS)))


CONTESTANTS = {contestant.name: contestant for contestant in (
    Contestant(
        'filestorage', 'stock FileStorage: one fsync a commit', FileStorage),
    Contestant(
        'filestorage:no-fsync', 'stock with its fsync taken out',
        FileStorage, latency.stock_without_fsync),
    *(Contestant(
        f'fsync:{policy}', f'FsyncStorage with durability {policy}',
        functools.partial(FsyncStorage, durability=policy))
      for policy in POLICIES),
)}
