"""Storages of the user's own as contestants: NAME=FILE on the command line.

The file is a ZConfig file with one storage section, like those in a zope.conf;
it may import the package that defines the section.  The user runs the server
or the database that the storage needs.

The user's data must not be harmed: `running.population` writes only to a
database that was empty, or that has nothing but an earlier measurement.
"""

import contextlib
import re

import ZConfig
import ZODB.config

from .running import loops
from .running import served

HELP = """\
NAME=FILE, among the contestants, is a storage of your own: FILE is a ZConfig
file with one storage section (%import is allowed), NAME what the tables call
it. Its server or database has to run, and its database has to be empty, or
from an earlier run of fsync-time.
"""


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
    return CustomStorage(name, configuration.storage)


class CustomStorage:
    """`fsync-time commits` opens it; other commands start clients of it."""

    summary = 'a storage of your own'
    can_be_slowed = False
    # Its directory of blobs is not emptied: a file that was just written may
    # be read from there.
    ways, alone = ('direct',), False

    def __init__(self, name, section):
        self.name = name
        self._section = section

    @contextlib.contextmanager
    def opened(self, directory):
        yield self._section.open()

    @contextlib.contextmanager
    def running(self, directory, *, loop, **others):
        loops.use(loop)
        yield served.Site(served.NoServer(), None, self._section.open)
