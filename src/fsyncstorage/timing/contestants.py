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


def _path(directory):
    return os.path.join(directory, 'Data.fs')


@contextlib.contextmanager
def _stock(directory):
    yield FileStorage(_path(directory), create=True)


@contextlib.contextmanager
def _stock_without_fsync(directory):
    with latency.stock_without_fsync():
        yield FileStorage(_path(directory), create=True)


class FileStorageThatSyncsInVote(FileStorage):
    """The experiment of 2004: a second fsync, where the data are written."""

    def tpc_vote(self, transaction):
        with self._lock:
            resolved = super().tpc_vote(transaction)
            latency.stock_sync(self._file.fileno())
            return resolved


@contextlib.contextmanager
def _stock_with_vote_fsync(directory):
    yield FileStorageThatSyncsInVote(_path(directory), create=True)


def _with_durability(policy):

    @contextlib.contextmanager
    def opened(directory):
        yield FsyncStorage(_path(directory), create=True, durability=policy)

    return opened


CONTESTANTS = {
    contestant.name: contestant
    for contestant in (
        Contestant(
            'filestorage',
            'stock FileStorage: one fsync a commit',
            _stock,
        ),
        Contestant(
            'filestorage:no-fsync',
            'stock with its fsync taken out',
            _stock_without_fsync,
        ),
        Contestant(
            'filestorage:vote-fsync',
            'stock with a second fsync, in tpc_vote',
            _stock_with_vote_fsync,
        ),
        *(
            Contestant(
                f'fsync:{policy}',
                f'FsyncStorage with durability {policy}',
                _with_durability(policy),
            )
            for policy in POLICIES
        ),
    )
}
