"""Clients that live on while the power of their server is cut.

Each thread commits transactions that read holders (history) and write one.
Some of these stop on the way until the power has gone, or is back, and go on
then: they have seen what may be lost.  What they read is held against the
files, too, whether they commit or not.  The counts are of transactions, but
for `cuts`, and for the commits that the files showed (`judged`).
"""

import collections
import concurrent.futures
import contextlib
import functools
import os
import random
import shutil
import threading
import typing
import uuid
from unittest import mock

import transaction
from ZEO.Exceptions import ClientDisconnected
from ZODB.DB import DB
from ZODB.POSException import ConflictError

from fsyncstorage import FsyncStorage
from fsyncstorage import datafile
from fsyncstorage.client.doom import REASON
from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.errors import OutcomeUnknown
from fsyncstorage.server.server import Server

from ...memory import scratch_directory
from ...support import PATIENCE
from ...support import Thread
from . import images
from . import past_seam
from . import powercut
from .campaign import quiet
from .history import History
from .history import Holder
from .history import Thing
from .images import Image
from .recorder import Recorder
from .recorder import RecordingDisk
from .tearing import MODELS

CLIENTS = 3
THREADS = 4  # of each
HOLDERS = 6
READS = 3
# From one cut to the next.
COMMITS = 10, 60
# Seconds from one try to connect to the next: who takes longer finds a server
# that others have written to.
POLLS = 0.01, 0.3
# What ZODB says where an object that was lost is still in memory, and another
# one gets its oid (docs/internals/open.rst).
TAKEN = 'A different object already has the same oid'


# A cut takes what was not synced in the last moments, not hours.
SYNC_INTERVAL = 0.2


class Life:
    """One run of the server, from power to power cut.  A cut ends every
    connection at once, and takes from the disk what a power cut can."""

    def __init__(self, directory, address, image, policy):
        image.write(directory)
        self.path = os.path.join(directory, 'Data.fs')
        self.recorder = Recorder(directory)
        self._stack = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.object(
                datafile, 'disk', RecordingDisk(self.recorder)))
            stack.enter_context(past_seam.recorded(self.recorder))
            storage = FsyncStorage(
                self.path, durability=policy, sync_interval=SYNC_INTERVAL)
            stack.callback(storage.close)
            self._server = Server(address, {'1': storage})
            self._thread = Thread(self._server.loop)
            self._stack = stack.pop_all()

    def cut(self):
        """The disk as it was when the power went."""
        log = concurrent.futures.Future()
        self._server.acceptor.event_loop.call_soon_threadsafe(
            self._cut_off, log)
        try:
            log = log.result(PATIENCE)
        except concurrent.futures.TimeoutError:
            raise AssertionError('the server hangs') from None
        self._server.close()
        self._thread.result()
        self._stack.close()
        return powercut.Disk.after_all(log)

    def _cut_off(self, log):
        """Nobody is told anything of what comes behind this log."""
        self._server.acceptor.stop_listening()
        for connection in list(self._server.connections):
            connection.abort()
        log.set_result(self.recorder.log[:])


class Cut(typing.NamedTuple):

    #: The file with all that was committed before, told or not.
    path: str
    image: Image


class Lives:
    """A context: while it lasts, there is a server most of the time, at one
    address.  Each life begins with what is left, in a directory of its own.
    """

    def __init__(self, directory, policy, image, seed):
        self.address = os.path.join(directory, 'socket')
        self._directory = directory
        self._policy = policy
        self._image = image
        self._source = random.Random(seed)
        self._count = 0
        self._life = None

    def __enter__(self):
        self.begin()
        return self

    def __exit__(self, *error):
        if self._life is not None:
            self._life.cut()

    def begin(self):
        self._count += 1
        directory = os.path.join(self._directory, str(self._count))
        self._life = Life(directory, self.address, self._image, self._policy)

    def cut(self):
        life, self._life = self._life, None
        disk = life.cut()
        space = images.Space(disk, MODELS[self._source.choice(list(MODELS))])
        self._image = space.image(
            images.at_random(space.options, self._source))
        return Cut(life.path, self._image)


class Power:
    """What the threads wait for, and what becomes of them."""

    def __init__(self):
        self.counts = collections.Counter()
        self.problems = []
        #: What each transaction has read, in the end: name -> token.
        self.views = []
        self._changed = threading.Condition()
        self._cuts = self._lives = 0
        self._waiting = 0
        self.over = False

    def count(self, outcome):
        with self._changed:
            self.counts[outcome] += 1
            self._changed.notify_all()

    def wait_for_commits(self, number):
        """Or until every thread waits for the power to go."""
        with self._changed:
            enough = self.counts['committed'] + number
            self._wait_for(lambda: self.counts['committed'] >= enough
                           or self._waiting == CLIENTS * THREADS)

    def gone(self):
        with self._changed:
            self._cuts += 1
            self._changed.notify_all()

    def back(self):
        with self._changed:
            self._lives += 1
            self._changed.notify_all()

    def end(self):
        with self._changed:
            self.over = True
            self._changed.notify_all()

    def wait_until_gone(self):
        self._wait_for_next('_cuts')

    def wait_until_back(self):
        self._wait_for_next('_lives')

    def _wait_for_next(self, name):
        with self._changed:
            seen = getattr(self, name)
            self._waiting += 1
            self._changed.notify_all()
            self._wait_for(lambda: self.over or getattr(self, name) > seen)
            self._waiting -= 1

    def _wait_for(self, condition):
        if not self._changed.wait_for(condition, PATIENCE):
            raise AssertionError('nothing goes on')


class Worker:

    def __init__(self, db, power, seed):
        self._power = power
        self._source = random.Random(seed)
        self._manager = transaction.TransactionManager()
        self._db = db

    def run(self):
        with contextlib.closing(self._db.open(self._manager)) as connection:
            try:
                while not self._power.over:
                    self._power.count(self._outcome(connection))
            finally:
                self._manager.abort()

    def _outcome(self, connection):
        try:
            self._manager.begin()
            self._change(connection.root())
            self._manager.commit()
            return 'committed'
        except ConflictError as error:
            return 'doomed' if REASON in str(error) else 'in conflict'
        except (ClientDisconnected, OutcomeUnknown):
            return 'cut off'
        except Exception as error:
            if str(error) == TAKEN:
                return 'without an oid'
            self._power.problems.append(
                f'a transaction failed: {type(error).__name__} ({error})')
            return 'failed'
        finally:
            self._manager.abort()

    def _change(self, root):
        self._dawdle()
        holders = [root[name] for name in self._source.sample(
            sorted(root), READS)]
        read = {}
        self._power.views.append(read)
        for holder in holders:
            read[holder.name] = holder.token
            self._dawdle()
        source, target = self._source.choice(holders), holders[0]
        if source.leads_elsewhere():
            self._power.problems.append('a reader was led elsewhere')
        if self._source.random() < 0.5:
            thing, thing_token = source.thing, source.thing_token
        else:
            thing = Thing(str(uuid.uuid4()))
            thing_token = thing.token
        target.write(str(uuid.uuid4()), read, thing, thing_token)
        if self._source.random() < 0.1:
            self._manager.savepoint()
        self._dawdle()

    def _dawdle(self):
        chance = self._source.random()
        if chance < 0.02:
            self._power.wait_until_gone()
        elif chance < 0.06:
            self._power.wait_until_back()
            if self._source.random() < 0.5:
                # A commit that comes sooner finds no server.
                self._db.storage._stream()


def first_image(scratch):
    """What there is before the first life."""
    directory = os.path.join(scratch, 'first')
    os.mkdir(directory)
    db = DB(FsyncStorage(os.path.join(directory, 'Data.fs')))
    with db.transaction() as connection:
        for number in range(HOLDERS):
            name = f'holder {number}'
            connection.root()[name] = Holder(name, Thing(name))
    db.close()
    return Image.read(directory)


class Trial:
    """So many cuts; what came of them."""

    def __init__(self, policy, seed=0):
        self.policy = policy
        self.power = Power()
        self.counts = self.power.counts
        self.problems = self.power.problems
        self._source = random.Random(seed)
        self._history = History()
        self._of_lives = []  # with all that each has committed

    def run(self, cuts):
        with scratch_directory() as scratch, quiet(), Lives(
                scratch, self.policy, first_image(scratch),
                self._source.random()) as lives:
            with self._clients(lives.address) as clients:
                for _ in range(cuts):
                    self.power.wait_for_commits(
                        self._source.randint(*COMMITS))
                    for client in clients:
                        client._failover._pause = functools.partial(
                            _pause, self._source.choice(POLLS))
                    cut = lives.cut()
                    self.power.gone()
                    self.counts['cuts'] += 1
                    self._judge(cut, scratch)
                    lives.begin()
                    self.power.back()
            self._judge(lives.cut(), scratch)
        self._judge_views()
        return self

    @contextlib.contextmanager
    def _clients(self, address):
        with contextlib.ExitStack() as stack:
            clients = [FsyncClient(address, wait_timeout=PATIENCE)
                       for _ in range(CLIENTS)]
            databases = [stack.enter_context(contextlib.closing(DB(client)))
                         for client in clients]
            threads = [
                Thread(Worker(db, self.power, self._source.random()).run)
                for db in THREADS * databases]
            try:
                yield clients
            finally:
                self.power.end()
                for thread in threads:
                    thread.result()

    def _judge(self, cut, scratch):
        """All that was committed, and then go on with what is left."""
        all_of_it = self._history.copy()
        with contextlib.closing(FsyncStorage(
                cut.path, read_only=True)) as storage:
            committed = all_of_it.add_all(storage)
        self.problems += all_of_it.problems
        self._of_lives.append(all_of_it)
        shutil.rmtree(os.path.dirname(cut.path))
        directory = os.path.join(scratch, 'left')
        cut.image.write(directory)
        with contextlib.closing(FsyncStorage(
                os.path.join(directory, 'Data.fs'))) as storage:
            left = self._history.add_all(storage)
        shutil.rmtree(directory)
        self._history.problems.clear()  # they were counted above
        self.counts['commits judged'] += committed
        self.counts['commits lost'] += committed - left

    def _judge_views(self):
        """Those of transactions that did not commit, too."""
        self.counts['views judged'] = len(self.power.views)
        for read in self.power.views:
            if not any(life.shows(read) for life in self._of_lives):
                self.problems.append(
                    f'a reader saw what was never there together ({read})')


def _pause(seconds, rounds):
    """Until a client looks for a server again."""
    threading.Event().wait(seconds)


def words(counts):
    return ', '.join(f'{count} {what}' for what, count in sorted(
        counts.items()))
