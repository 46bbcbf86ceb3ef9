"""The storages that can take part in a measurement without a server, by name.

Those of the user are in `custom`.
"""

import contextlib
import dataclasses
import functools
import os
import typing

from ZODB.FileStorage import FileStorage

from fsyncstorage import FsyncStorage
from fsyncstorage.commit.policies import POLICIES

from ..running import latency
from ..servers import served
from ..servers import zeosites


@dataclasses.dataclass(frozen=True)
class Contestant:
    name: str
    summary: str
    #: Called with a path, and perhaps a `blob_dir`.
    storage: typing.Callable
    #: Called for a context in which it is opened and used.
    changed: typing.Callable = contextlib.nullcontext

    #: Its syncs can be made slower, and one process alone can open it.
    can_be_slowed = alone = True
    ways = zeosites.NO_CACHE

    @contextlib.contextmanager
    def opened(self, directory):
        """The storage, on an empty directory; whoever uses it closes it."""
        with self.changed():
            yield self.storage(os.path.join(directory, zeosites.DATA_FILE))

    @contextlib.contextmanager
    def running(self, directory, *, sync_latency, **others):
        """A `Site` without a server, whose client has blobs."""
        with latency.slowed(sync_latency):  # in the processes that are forked
            yield served.Site(
                served.Nobody(cpu_seconds=0.0), None, functools.partial(
                    self.storage, os.path.join(directory, zeosites.DATA_FILE),
                    blob_dir=os.path.join(directory, zeosites.BLOBS)))


class FileStorageThatSyncsInVote(FileStorage):
    """The experiment of 2004: a second fsync, where the data are written."""

    def tpc_vote(self, transaction):
        with self._lock:
            resolved = super().tpc_vote(transaction)
            latency.stock_sync(self._file.fileno())
            return resolved


CONTESTANTS = {contestant.name: contestant for contestant in (
    Contestant(
        'filestorage', 'stock FileStorage: one fsync a commit', FileStorage),
    Contestant(
        'filestorage:no-fsync', 'stock with its fsync taken out',
        FileStorage, latency.stock_without_fsync),
    Contestant(
        'filestorage:vote-fsync', 'stock with a second fsync, in tpc_vote',
        FileStorageThatSyncsInVote),
    *(Contestant(
        f'fsync:{policy}', f'FsyncStorage with durability {policy}',
        functools.partial(FsyncStorage, durability=policy))
      for policy in POLICIES),
)}
