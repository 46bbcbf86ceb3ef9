"""Storages of the user's own as contestants: NAME=FILE on the command line.

The file is a ZConfig file with one storage section, like those in a zope.conf;
it may import the package that defines the section.  The user runs the server
or the database that the storage needs.

The user's database must not be harmed.  So all objects of a measurement are
below one key of the root, which has a random name; nothing else is read,
changed or removed.  The key is added before the first sample, and removed at
the end of the run, also if the run fails or is interrupted.  Then the objects
below it are garbage, and a pack frees them.  Before the run, a message says
how much will be written.
"""

import contextlib
import re
import secrets
import time

import transaction
import ZConfig
import ZODB
import ZODB.config
from persistent.mapping import PersistentMapping
from ZODB.broken import Broken
from ZODB.POSException import POSError

from .results import tables
from .results import wording
from .running import loops
from .running import population
from .running import sampling
from .running import served
from .running import supervisor

HELP = """\
NAME=FILE, among the contestants, is a storage of your own: FILE is a ZConfig
file with one storage section (%import is allowed), NAME what the tables call
it. Its server or database has to run. Everything is written below one new key
of the root, fsync-time-..., which is removed at the end. It can be a lot: pack
it afterwards, or better, use an empty database.
"""

#: Others may change the root at the same time.
_ATTEMPTS = 10

#: Seconds to wait until the key is removed; an interrupt does not end that.
_PATIENCE = 60


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
        self.key = f'fsync-time-{secrets.token_hex(8)}'

    @contextlib.contextmanager
    def opened(self, directory):
        with population.below(self.key):
            yield self._section.open()

    @contextlib.contextmanager
    def running(self, directory, *, loop, **others):
        loops.use(loop)
        with population.below(self.key):
            yield served.Site(served.NoServer(), None, self._section.open)

    def add_key(self):
        self._with_root(
            lambda root: root.update({self.key: PersistentMapping()}))

    def has_key(self):
        return self._with_root(lambda root: self.key in root)

    def remove_key(self):
        # (Nothing is written if it is not there.)
        self._with_root(lambda root: self.key in root and root.pop(self.key))

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
    """Refuses a root with objects whose classes cannot be imported.

    Storing such a root would store placeholders in their place.
    """

    def classFactory(self, connection, module, name):
        found = super().classFactory(connection, module, name)
        if isinstance(found, type) and issubclass(found, Broken):
            raise POSError(
                f'in its root is a {module}.{name}; run fsync-time where that'
                ' can be imported')
        return found


def run(options, command, races):
    """Like `sampling.run`, for contestants that may be the user's storages.

    Each of these gets its key before the first sample, and loses it after the
    last one.
    """
    own = [one for one in options.contestants
           if isinstance(one, CustomStorage)]
    for one in own:
        written = (1 + options.rounds) * sum(
            race.written for race in races if race.takes(one))
        if written:
            sampling.complain(
                command, f'{one.name}: at least {wording.size(written)} will'
                ' be written to it; pack it afterwards')
    return sampling.run(
        options, command, races, tables.show, around=_with_keys(own, command))


@contextlib.contextmanager
def _with_keys(storages, command):
    added = []
    try:
        for one in storages:
            _call(one, one.has_key)  # it fails: nothing to remove
            # First: `add_key` may be interrupted, or fail after its commit.
            added.append(one)
            _call(one, one.add_key)
            if not _call(one, one.has_key):
                raise supervisor.Failed(
                    f'{one.name} cannot be used: it forgets what was stored'
                    ' when it is closed')
        yield
    finally:
        for one in added:
            _clean_up(one, command)


def _call(contestant, work):
    try:
        return supervisor.run(work)
    except supervisor.Failed as error:
        raise supervisor.Failed(
            f'{contestant.name} cannot be used: {error}') from error


def _clean_up(contestant, command):
    end = time.monotonic() + _PATIENCE

    def lose_patience():
        if time.monotonic() > end:
            raise supervisor.Failed('it does not answer')

    try:
        supervisor.run(contestant.remove_key, meanwhile=lose_patience)
    except supervisor.Failed as error:
        sampling.complain(
            command, f'{contestant.name}: remove the key {contestant.key} from'
            f' its root yourself: {error}')
