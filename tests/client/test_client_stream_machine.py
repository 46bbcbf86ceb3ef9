"""Commits and invalidations on one stream, in every order of events.  Goes
with `client/stream.py`.

The model has a server, whose transactions go to the ZEO connection until the
switch, and to the channel from then on; the event loop of a client, which
processes the one; and threads that read the other, and complete a message in
several steps.  The frames and the cache are the real ones.  Whatever the
order: what the cache holds as current is no older than what the server had as
of the cache's last tid.
"""

import unittest
from unittest import mock

from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine
from hypothesis.stateful import invariant
from hypothesis.stateful import precondition
from hypothesis.stateful import rule
from hypothesis.stateful import run_state_machine_as_test
from ZODB.utils import maxtid
from ZODB.utils import p64
from ZODB.utils import u64

from fsyncstorage import wire
from fsyncstorage.client.cache import Cache
from fsyncstorage.client.finishing import Finishing
from fsyncstorage.wire import commits
from fsyncstorage.wire import commitserver as server
from fsyncstorage.wire import framing

from ..generated import settings
from ..often import often
from ..test_wire import ANNOUNCEMENT
from ..test_wire import INSTANCE
from ..test_wire_commits import TICKET
from ..test_wire_commits import received

OIDS = [p64(number) for number in range(3)]
THREADS = range(3)
MARKER = None

some_oids = st.lists(st.sampled_from(OIDS), min_size=1, unique=True)


class Machine(RuleBasedStateMachine):

    def __init__(self):
        super().__init__()
        self.tid = 1
        self.changes = {oid: [1] for oid in OIDS}  # the tids of each
        self.switched = False
        self.on_zeo = []        # (tid, oids), and the marker
        self.on_channel = b''   # what is under way
        self.client = commits.Client(INSTANCE, TICKET)
        received(self.client, ANNOUNCEMENT, framing.welcome())
        self.own = {}           # number -> oids
        self.work = {}          # thread -> the steps that are left
        self.loads = []
        self.cache = Cache(None, 100_000)
        self.cache.setLastTid(p64(1))

    def teardown(self):
        self.cache.close()

    def at_server(self, oid, up_to):
        return max(tid for tid in self.changes[oid] if tid <= up_to)

    # The server

    def changed(self, oids):
        self.tid += 1
        for oid in oids:
            self.changes[oid].append(self.tid)

    @rule(oids=some_oids, asked=st.booleans())
    def another_client_commits(self, oids, asked):
        """Or this one did, and its channel has ended: then it asks on its next
        one, and the answer comes behind the announcement."""
        self.changed(oids)
        if self.switched:
            self.on_channel += server.invalid(p64(self.tid), oids)
            if asked:
                number, _ = self.client.ask(b'')
                self.on_channel += server.outcome(
                    number, commits.COMMITTED, p64(self.tid))
        else:
            self.on_zeo.append((self.tid, oids))

    @precondition(lambda self: not self.switched)
    @rule()
    def switch(self):
        self.on_zeo.append(MARKER)
        self.switched = True

    # The threads of the client

    @precondition(lambda self: self.switched)
    @rule(oids=some_oids, trip=st.sampled_from((None, 'conflicts', 'done')))
    def vote(self, oids, trip):
        """In one trip, or not; what conflicts is begun again."""
        number, _ = self.client.begin(b'')
        self.own[number] = oids
        if trip is None:
            self.client.vote(number)
            self.on_channel += server.voted(number, ())
        else:
            self.client.trip(number)
            if trip == 'conflicts':
                self.on_channel += server.conflicts(number, b'')
            else:
                self.server_finishes(number, oids[:1])

    @precondition(lambda self: self.own)
    @rule()
    def finish(self):
        """Those that are voted, and those whose conflicts were resolved."""
        for number in self.own:
            if self.client.state(number) is commits.IS_VOTED:
                self.client.finish(number)
            elif self.client.state(number) is commits.BEGUN:
                self.client.trip(number)
            else:
                continue
            self.server_finishes(number)

    def server_finishes(self, number, resolved=()):
        """What is stored of `resolved` is not what the client has sent."""
        self.changed(self.own[number])
        self.on_channel += server.done(
            number, p64(self.tid), 1, 1, server.joined(resolved))

    @precondition(lambda self: self.on_channel)
    @rule(size=st.integers(1, 300))
    def receive(self, size):
        came, self.on_channel = self.on_channel[:size], self.on_channel[size:]
        self.client.fill(lambda most, flags: came, size)

    @precondition(lambda self: self.client.received)
    @rule(thread=st.sampled_from(THREADS))
    def take(self, thread):
        if self.work:  # only if no other thread is completing one
            return
        events = self.client.next_together()
        if events:
            self.work[thread] = self.complete(events)

    @precondition(lambda self: self.work)
    @rule(data=st.data(), steps=st.integers(1, 4))
    def go_on(self, data, steps):
        self.step(data.draw(st.sampled_from(sorted(self.work))), steps)

    def step(self, thread, steps):
        for _ in range(steps):
            if next(self.work[thread], self) is self:
                del self.work[thread]
                break

    def complete(self, events):
        event = events[-1]
        if event.__class__ is commits.Invalid:
            self.cache.invalidate_each(events)
            yield
            self.cache.setLastTid(event.tid)
        elif event.__class__ is commits.Done:
            finishing = Finishing(
                mock.Mock(), self.cache,
                [(oid, b'%d' % u64(event.tid), False)
                 for oid in self.own.pop(event.number)], lambda tid: None)
            finishing.complete(event)
            for oid in event.oids:  # what the server has is not known here
                assert self.cache.load(oid) is None, oid
        elif event.__class__ is commits.Outcome:
            # What it has changed has come before.
            assert event.tid <= self.cache.getLastTid()

    # The event loop of the client

    @precondition(lambda self: self.on_zeo)
    @rule()
    def next_on_zeo(self):
        message = self.on_zeo.pop(0)
        if message is MARKER:
            self.client.moved()
        else:
            tid, oids = message
            self.cache.invalidate_all(oids, p64(tid))
            self.cache.setLastTid(p64(tid))

    # Loads

    @rule(oid=st.sampled_from(OIDS))
    def ask(self, oid):
        if self.cache.load(oid) is None:
            load = self.cache.ask_beside(oid, maxtid)
            serial = self.at_server(oid, self.tid)
            load.reply = wire.Found(
                0, p64(self.tid), b'%d' % serial, p64(serial), None)
            self.loads.append(load)

    @precondition(lambda self: self.loads)
    @rule()
    def answer(self):
        self.cache.answered(self.loads.pop(0))

    @invariant()
    def the_cache_is_right(self):
        last = u64(self.cache.getLastTid())
        for oid in OIDS:
            found = self.cache.load(oid)
            if found is not None:
                assert u64(found[1]) >= self.at_server(oid, last), oid


def run(examples):
    run_state_machine_as_test(Machine, settings=settings(
        max_examples=examples, stateful_step_count=40, derandomize=True,
        deadline=None, phases=[Phase.generate]))


class TheOrder(unittest.TestCase):

    level = 2

    def test_of_the_stream(self):
        run(often(35, 300))


class Long(unittest.TestCase):

    level = 3

    def test_of_the_stream(self):
        run(10_000)
