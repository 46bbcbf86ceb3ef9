"""Storages of the user's own as contestants: NAME=FILE on the command line.

The file is a ZConfig file with one storage section, like those in a zope.conf;
it may import what defines the section.  What the storage talks to (a server, a
database) is the user's, and has to run.

A database that is somebody's own must come to no harm.  So all objects of a
measurement are below one key of the root, whose name is random; nothing else
is read, changed or removed.  The key is there from before the first sample
until the end, whatever ends the run.  What it held is then garbage, as after
any removal: a pack frees it.  How much that will be is said before.
"""

import contextlib
import re
import secrets
import sys
import time

import transaction
import ZConfig
import ZODB
import ZODB.config
from persistent.mapping import PersistentMapping
from ZODB.broken import Broken
from ZODB.POSException import POSError

from ..results import tables
from ..results import wording
from ..running import loops
from ..running import measurement
from ..running import population
from ..running import supervisor
from ..running.campaign import SampleFailed
from ..servers import served

HELP = """\
NAME=FILE, among the contestants, is a storage of your own: FILE is a ZConfig
file with one storage section (%import is allowed), NAME what the tables call
it. Its server or database has to run. Everything is written below one new key
of the root, fsync-time-..., which is removed at the end. It can be a lot: pack
it afterwards, or better, use an empty database.
"""

#: The root may be changed by others at the same time.
_ATTEMPTS = 10

#: Seconds to remove the key, which nobody can interrupt.
_PATIENCE = 60


def read(name, path):
    """A contestant; ValueError, in one line, if the file is no good."""
    if not re.fullmatch(r'[\w.:-]+', name):
        raise ValueError(
            f'{name!r} is no name: letters, digits and . : - _ make one')
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
    """In `fsync-time commits`, or with clients of its own in the others."""

    summary = 'a storage of your own'
    can_be_slowed = takes_light_clients = False
    # Nobody empties its directory of blobs: a file that was just written may
    # come from there.
    ways, alone = ('direct',), False

    def __init__(self, name, section):
        self.name = name
        self._section = section
        self.key = f'fsync-time-{secrets.token_hex(8)}'

    @contextlib.contextmanager
    def opened(self, directory):
        with population.below(self.key):
            yield self._section.open()

    @contextlib.contextmanager
    def running(self, directory, *, loop, **others):
        loops.use(loop)
        with population.below(self.key):
            yield served.Site(served.Nobody(), None, self._section.open)

    def add_key(self):
        self._with_root(
            lambda root: root.update({self.key: PersistentMapping()}))

    def has_key(self):
        return self._with_root(lambda root: self.key in root)

    def remove_key(self):
        self._with_root(lambda root: root.pop(self.key, None))

    def _with_root(self, work):
        manager = transaction.TransactionManager()
        with contextlib.closing(_Whole(self._section.open())) as db:
            connection = db.open(manager)
            for attempt in manager.attempts(_ATTEMPTS):
                with attempt:
                    result = work(connection.root())
            connection.close()
            return result


class _Whole(ZODB.DB):
    """Refuses what it cannot load as it is: it would be stored otherwise."""

    def classFactory(self, connection, module, name):
        found = super().classFactory(connection, module, name)
        if isinstance(found, type) and issubclass(found, Broken):
            raise POSError(
                f'in its root is a {module}.{name}; run fsync-time where that'
                ' can be imported')
        return found


def run(options, command, races):
    """As `measurement.run`, where storages of the user may take part.

    Each has its key before the first sample, and is left clean after the last.
    """
    own = [one for one in options.contestants
           if isinstance(one, CustomStorage)]
    for one in own:
        written = (1 + options.rounds) * sum(
            race.written for race in races if race.takes(one))
        if written:  # its owner may mind
            _complain(command, f'{one.name}: at least {wording.size(written)}'
                      ' will be written to it; pack it afterwards')
    return measurement.run(
        options, command, races, tables.show, around=_with_keys(own, command))


@contextlib.contextmanager
def _with_keys(storages, command):
    added = []
    try:
        for one in storages:
            added.append(one)  # before: it may be interrupted
            try:
                _call(one, one.add_key)
            except SampleFailed:
                added.remove(one)
                raise
            if not _call(one, one.has_key):
                raise SampleFailed(f'{one.name} cannot be used: it forgets'
                                   ' what it was told when it is closed')
        yield
    finally:
        with supervisor.held():
            for one in added:
                _clean_up(one, command)


def _call(contestant, work):
    try:
        return supervisor.run(work)
    except supervisor.Failed as error:
        raise SampleFailed(
            f'{contestant.name} cannot be used: {error}') from error


def _clean_up(contestant, command):
    end = time.monotonic() + _PATIENCE

    def lose_patience():
        if time.monotonic() > end:
            raise supervisor.Failed('it does not answer')

    try:
        supervisor.run(contestant.remove_key, meanwhile=lose_patience)
    except supervisor.Failed as error:
        _complain(command, f'{contestant.name}: remove the key'
                  f' {contestant.key} from its root yourself: {error}')


def _complain(command, message):
    print(f'fsync-time {command}: {message}', file=sys.stderr)
