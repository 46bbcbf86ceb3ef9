"""How long a restart takes after `kill -9`, for a database of 500,000 objects.

A process is killed, and another one opens the storage again; the opening is
timed, with the file in the page cache as far as the storage leaves it there.
There are two cases:

- after a long run: the process that is killed made all the objects, and then
  changed some of them, in a random number of transactions;
- after a short run: the storage had been closed in an orderly way, was opened,
  and the process was killed after some hundred transactions.

Stock FileStorage writes its index when it is closed and when it had to scan
the whole file; so the index checkpoints of FsyncStorage (the default) matter
in the first case.  The parts of the time are shown, too: reading the index
file, reading the data after its position, and writing an index.
"""

import contextlib
import functools
import importlib
import os
import random
import signal
import time
from unittest import mock

from ZODB.FileStorage import FileStorage

from fsyncstorage import FsyncStorage
from fsyncstorage.format import index
from fsyncstorage.storage import recovery
from fsyncstorage.timing.options.contestants import Contestant
from fsyncstorage.timing.running import supervisor
from fsyncstorage.timing.running.campaign import Race

from . import filling
from .campaign import Campaign
from .claims import Claim

STOCK, OURS = 'filestorage', 'fsync:group-commit'
LONG, SHORT = 'after a long run', 'after a short run'

#: In a full run, and in a quick run.
OBJECTS = 500000, 20000
MOST_CHANGES = 500  # transactions, after a long run
SHORT_RUN = 300

_stock = importlib.import_module('ZODB.FileStorage.FileStorage')


def path(directory):
    return os.path.join(directory, 'Data.fs')


CONTESTANTS = [
    Contestant(STOCK, 'stock FileStorage', FileStorage),
    Contestant(OURS, 'FsyncStorage with its defaults', FsyncStorage),
]

#: (where, function, name of the part) of each contestant.
PARTS = {
    STOCK: [
        (FileStorage, '_restore_index', 'index_seconds'),
        (_stock, 'read_index', 'scan_seconds'),
        (FileStorage, '_save_index', 'save_seconds'),
    ],
    OURS: [
        (index, 'load', 'index_seconds'),
        (recovery, 'recover', 'scan_seconds'),
        (FsyncStorage, '_save_index', 'save_seconds'),
    ],
}

CLAIMS = [Claim(f'restart {LONG}, against {STOCK}', LONG, {}, OURS, 'seconds',
                against=STOCK, under=0.1)]


def races(quick):
    return [
        Race(workload, {
            'objects': OBJECTS[quick],
            'object_size': filling.OBJECT_SIZE,
            'sync_latency': 0.0,
        }, measure, ('seconds', 'index_seconds', 'scan_seconds',
                     'save_seconds'))
        for workload, measure in (
            (LONG, after_a_long_run),
            (SHORT, after_a_short_run),
        )
    ]


def after_a_long_run(contestant, directory, *, objects, **settings):
    changes = random.randrange(MOST_CHANGES)
    killed(run, contestant, directory, objects, changes)
    return supervisor.run(restart, contestant, directory)


def after_a_short_run(contestant, directory, *, objects, **settings):
    supervisor.run(run, contestant, directory, objects, 0)
    killed(run, contestant, directory, 0, SHORT_RUN)
    return supervisor.run(restart, contestant, directory)


def killed(function, *arguments):
    """Call a function in a process that is killed when it is done."""
    try:
        supervisor.run(functools.partial(function, *arguments, die=True))
    except supervisor.Failed as error:
        if f'exit code {-signal.SIGKILL}' not in str(error):
            raise


def run(contestant, directory, objects, changes, die=False):
    """Make objects, change some in this number of transactions, and end."""
    with contestant.opened(directory) as storage:
        filling.fill(storage, 0, objects)
        known = range(len(storage))
        for _ in range(changes):
            filling.store(storage, random.sample(known, filling.AT_ONCE))
        if die:
            os.kill(os.getpid(), signal.SIGKILL)
        storage.close()


def restart(contestant, directory):
    figures = {'file_size': os.path.getsize(path(directory))}
    with contextlib.ExitStack() as stack:
        with contextlib.ExitStack() as parts:
            for part in PARTS[contestant.name]:
                parts.enter_context(timed(*part, figures))
            began = time.perf_counter()
            storage = stack.enter_context(contestant.opened(directory))
            figures['seconds'] = time.perf_counter() - began
        figures['objects'] = len(storage)
        storage.close()
    return figures


def timed(owner, name, part, figures):
    """Patch a function: its calls add their time to a figure."""
    original = getattr(owner, name)
    figures[part] = 0.0

    def call(*args, **kw):
        began = time.perf_counter()
        try:
            return original(*args, **kw)
        finally:
            figures[part] += time.perf_counter() - began

    return mock.patch.object(owner, name, call)


CAMPAIGNS = [Campaign(
    'restart', 'opening 500,000 objects after `kill -9`', CONTESTANTS, races,
    rounds=5, claims=lambda document: CLAIMS)]
