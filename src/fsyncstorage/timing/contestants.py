"""The storages that can be measured without a server, by name; and those of
the user's own, NAME=FILE on the command line.

The file is a ZConfig file with one storage section, like those in a zope.conf;
it may import the package that defines the section.  The user runs the server
or the database that the storage needs.  The user's data must not be harmed:
`running.population` writes only to a database that was empty, or that has
nothing but an earlier measurement.
"""

import contextlib
import dataclasses
import functools
import os
import re
import typing

import ZConfig
import ZODB.config
from ZODB.FileStorage import FileStorage

from fsyncstorage import FsyncStorage
from fsyncstorage.commit.policies import POLICIES

from .running import latency
from .running import served
from .running import zeosites

HELP = """\
NAME=FILE, among the contestants, is a storage of your own: FILE is a ZConfig
file with one storage section (%import is allowed), NAME what the tables call
it. Its server or database has to run, and its database has to be empty, or
from an earlier run of fsync-time.
"""


@dataclasses.dataclass(frozen=True)
class Contestant:
    name: str
    summary: str
    #: Called with a path, and perhaps a `blob_dir`.
    storage: typing.Callable
    #: Returns a context manager; the storage is opened and used inside.
    changed: typing.Callable = contextlib.nullcontext

    #: Its syncs can be made slower.
    can_be_slowed: bool = True
    #: Only one process can open it.
    alone: bool = True
    #: How blobs are read.
    ways: tuple = zeosites.NO_CACHE
    #: A server may work for it, and cannot be asked for its processor time.
    is_served: bool = False

    @contextlib.contextmanager
    def opened(self, directory):
        """The storage, on an empty directory; the caller closes it."""
        with self.changed():
            yield self.storage(os.path.join(directory, zeosites.DATA_FILE))

    @contextlib.contextmanager
    def running(self, directory, *, loop, sync_latency, **others):
        """A `Site` without a server of ours; it can store blobs."""
        zeosites.use_loop(loop)
        usage = {} if self.is_served else {'cpu_seconds': 0.0}
        with latency.slowed(sync_latency):  # also in forked processes
            yield served.Site(
                served.NoServer(**usage), None, functools.partial(
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


def read(name, path):
    """Return a contestant.

    If the file cannot be used, raise a ValueError with one line of text.
    """
    if not re.fullmatch(r'[\w.:-]+', name):
        raise ValueError(
            f'{name!r} is no name: use letters, digits and . : - _')
    try:
        with open(path, encoding='utf-8') as file:
            configuration, _ = ZConfig.loadConfigFile(
                ZODB.config.getStorageSchema(), file)
    except (OSError, ValueError, ImportError,
            ZConfig.ConfigurationError) as error:
        said = ' '.join(str(error).split())
        raise ValueError(f'{path} cannot be used: {said}') from error
    if configuration.storage is None:
        raise ValueError(f'{path} cannot be used: there is no section in it')
    return Contestant(
        name, 'a storage of your own',
        lambda path, **options: configuration.storage.open(),
        can_be_slowed=False, alone=False,
        # Its directory of blobs is not emptied: a file that was just written
        # may be read from there.
        ways=('direct',), is_served=True)
