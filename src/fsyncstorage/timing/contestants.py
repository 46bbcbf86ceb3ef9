"""The storages that can take part in a measurement, by name.

A contestant opens its storage on an empty directory, for as long as a `with`
lasts; the database that is made of the storage closes it.  Those of the user
are in `custom`.
"""

import contextlib
import dataclasses
import os
import typing

from ZODB.FileStorage import FileStorage

from fsyncstorage import FsyncStorage
from fsyncstorage.durability import POLICIES

from . import latency


@dataclasses.dataclass(frozen=True)
class Contestant:
    name: str
    summary: str
    #: Called with a directory; a context manager that yields the storage.
    opened: typing.Callable

    #: Its syncs can be made slower.
    can_be_slowed = True


class FileStorageThatSyncsInVote(FileStorage):
    """The experiment of 2004: a second fsync, where the data are written."""

    def tpc_vote(self, transaction):
        with self._lock:
            resolved = super().tpc_vote(transaction)
            latency.stock_sync(self._file.fileno())
            return resolved


def _made_by(make, changed=contextlib.nullcontext, **options):

    @contextlib.contextmanager
    def opened(directory):
        with changed():
            yield make(
                os.path.join(directory, 'Data.fs'), create=True, **options)

    return opened


CONTESTANTS = {contestant.name: contestant for contestant in (
    Contestant(
        'filestorage', 'stock FileStorage: one fsync a commit',
        _made_by(FileStorage)),
    Contestant(
        'filestorage:no-fsync', 'stock with its fsync taken out',
        _made_by(FileStorage, latency.stock_without_fsync)),
    Contestant(
        'filestorage:vote-fsync', 'stock with a second fsync, in tpc_vote',
        _made_by(FileStorageThatSyncsInVote)),
    *(Contestant(
        f'fsync:{policy}', f'FsyncStorage with durability {policy}',
        _made_by(FsyncStorage, durability=policy)) for policy in POLICIES),
)}
