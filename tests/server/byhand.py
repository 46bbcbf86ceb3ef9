"""A committer by hand: the test is the loop, and each of the threads.

Nothing happens but what the test does: it delivers what was posted to the
loop, does the jobs that were given to threads, and publishes.
"""

import collections
import types
from unittest import mock

from ZEO.StorageServer import StorageStats
from ZODB.utils import z64

from fsyncstorage.server import committer as module
from fsyncstorage.server.ballot import Ballot
from fsyncstorage.server.ballot import BytesInMemory
from fsyncstorage.server.committer import Committer
from fsyncstorage.server.door import Door
from fsyncstorage.server.threads import Threads
from fsyncstorage.storage import AsyncFinish

from ..support import oid


class Executor:
    """Threads whose jobs are done when the test says so."""

    #: What the system says when there is no thread; None: there is one.
    error = None

    def __init__(self, size, name, post):
        self.jobs = collections.deque()
        self._post = post

    def do(self, then, step, *arguments):
        if self.error is not None:
            self._post(then, None, self.error)
            return False
        self.jobs.append((then, step, arguments))
        return True

    def do_one(self):
        """As a thread does it."""
        Threads.carry_out(self, *self.jobs.popleft())

    def shutdown(self):
        while self.jobs:
            self.do_one()


class Timer:

    def __init__(self, function, arguments):
        self._call = lambda: function(*arguments)
        self.cancelled = False

    def cancel(self):
        self.cancelled = True

    def ring(self):
        if not self.cancelled:
            self._call()


class Session:
    """Whom a ballot belongs to."""

    client_conflict_resolution = False

    def __init__(self, name):
        self.log_label = name
        self.server = types.SimpleNamespace(door=Door())
        self.kept = BytesInMemory()
        self.stats = StorageStats()

    def timed_out(self, ballot):
        ballot.world.committer.abort(ballot)


class Large(Ballot):
    """No step of it is done in the loop."""

    is_small = False


class World:
    """A storage, its committer, and what they told."""

    own_publishing = True

    def __init__(self, storage, timeout=None, side_by_side=True):
        self.storage = storage
        self.timeout = timeout
        self.votes_side_by_side = side_by_side
        self.loop = self
        self.letters = collections.deque()
        self.timers = []
        self.told = []      # (name of the client, result, error)
        self._news = []
        self._last_id = 0
        with mock.patch.object(module, 'Threads', Executor):
            self.committer = Committer(
                'test', storage, self,
                lambda *letter: self.letters.append(letter))
        self.voters = self.committer._voters
        self.appender = self.committer._appender
        storage.own_publishing(lambda: None)

    # What a service does

    def call_later(self, seconds, function, *arguments):
        self.timers.append(Timer(function, arguments))
        return self.timers[-1]

    def refused(self, ballot, error):
        """The ballot is told."""

    def published(self, ballot, tid, durable=True):
        self._news.append((ballot, tid))

    def failed(self, ballot, error):
        ballot.tell(None, error)
        self.committer.failed()

    def publish(self):
        """Publish and announce all that is appended."""
        self.storage.publish()
        news, self._news = self._news, []
        for ballot, tid in news:
            ballot.tell(tid, None)
        self.committer.published()

    def finish_direct(self, metadata):
        """Finish a transaction of another thread of the process."""
        self.storage.tpc_finish(
            metadata, AsyncFinish(lambda tid, error: None))

    # The loop and the threads

    def deliver_one(self):
        function, *arguments = self.letters.popleft()
        function(*arguments)

    def deliver(self):
        while self.letters:
            self.deliver_one()

    def settle(self):
        """Do all that can be done, but publish nothing."""
        while self.letters or self.voters.jobs or self.appender.jobs:
            self.deliver()
            for threads in self.voters, self.appender:
                if threads.jobs:
                    threads.do_one()

    # Ballots

    def begin(self, name, records=(), serials={}, small=True):
        """A ballot of a session, or of one of that name, that stores
        {number: data}."""
        self._last_id += 1
        session = name if isinstance(name, Session) else Session(name)
        ballot = (Ballot if small else Large)(
            self.committer.storage, session, self._last_id, b'', b'', {}, None,
            ' ')
        ballot.world = self
        for number in records:
            self.store(ballot, number, serials.get(number, z64),
                       records[number])
        return ballot

    @staticmethod
    def store(ballot, number, serial, data):
        ballot.storea(oid(number), serial, data)

    @staticmethod
    def restore(ballot, number, serial, data):
        ballot.restorea(oid(number), serial, data, None)

    def vote(self, name, *arguments, **options):
        """A ballot whose vote is asked for."""
        ballot = self.begin(name, *arguments, **options)
        self.ask_vote(ballot)
        return ballot

    def ask_vote(self, ballot):
        name = ballot.session.log_label
        self.committer.vote(ballot, lambda result, error: self.told.append(
            (f'vote {name}', result, error)))

    def finish(self, ballot):
        name = ballot.session.log_label
        self.committer.finish(ballot, lambda tid, error: self.told.append(
            (f'finish {name}', tid, error)))
