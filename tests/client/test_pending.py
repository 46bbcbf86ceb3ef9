"""Which answers the client's cache keeps, in every order of events.

The model has a server, whose transactions are published, then announced, then
arrive at the client in order; and loads, which are asked, looked up and
answered whenever.  Whatever the order: what the cache holds as current is what
the server had as of the cache's last tid.
"""

import contextlib
import unittest

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine
from hypothesis.stateful import invariant
from hypothesis.stateful import precondition
from hypothesis.stateful import rule
from ZODB.utils import maxtid
from ZODB.utils import p64
from ZODB.utils import u64

from fsyncstorage.client.cache import Cache

from ..generated import settings
from ..often import often
from .caching import Found

OIDS = [p64(number) for number in range(3)]

some_oids = st.lists(st.sampled_from(OIDS), min_size=1, unique=True)
one_oid = st.sampled_from(OIDS)


class Wait:
    """A thread that waits for the load of another."""

    def __init__(self, load, last_tid):
        self.load = load
        self.last_tid = last_tid


class Client(RuleBasedStateMachine):

    def __init__(self):
        super().__init__()
        self.published = 1
        self.announced = 1
        self.changes = {oid: [1] for oid in OIDS}  # the tids of each
        self.arriving = []      # (tid, oids), what the client is about to hear
        self.half_told = None   # (tid, oids that it was not told of)
        self.asked = []         # (load, reply or None)
        self.waiting = []
        self.cache = Cache(None, 100_000)
        self.cache.set_last_tid(p64(1))

    def teardown(self):
        self.cache.close()

    close = teardown

    def at_server(self, oid, before, up_to):
        """The newest tid of an object before that one."""
        return max(tid for tid in self.changes[oid]
                   if tid < before and tid <= up_to)

    # The server

    @rule(oids=some_oids, announced=st.booleans())
    def publish(self, oids, announced):
        self.published += 1
        for oid in oids:
            self.changes[oid].append(self.published)
        self.arriving.append((self.published, oids))
        if announced:
            self.announced = self.published

    def look_up(self, load):
        before = u64(load.tid)
        serial = self.at_server(load.oid, before, self.published)
        later = [tid for tid in self.changes[load.oid] if tid > serial]
        return Found(p64(self.announced), b'%d' % serial, p64(serial),
                     p64(min(later)) if later else None)

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def server_looks(self, data):
        place = data.draw(st.sampled_from(range(len(self.asked))))
        load, reply = self.asked[place]
        if reply is None:
            self.asked[place] = load, self.look_up(load)

    # The client's threads

    @rule(oid=one_oid, as_of_now=st.booleans(), looks=st.booleans())
    def ask(self, oid, as_of_now, looks):
        tid = p64(u64(self.cache.last_tid) + 1) if as_of_now else maxtid
        if self.cache.load_before(oid, tid):
            return
        load, last_tid = self.cache.ask(oid, tid, self.cache.generation)
        if last_tid is None:
            self.asked.append((load, self.look_up(load) if looks else None))
        else:
            self.waiting.append(Wait(load, last_tid))

    @rule(oids=some_oids)
    def prefetch(self, oids):
        loads = []
        self.cache.ask_for_missing(
            oids, maxtid, self.cache.generation, 'prefetches', loads)
        for load in loads:
            assert not self.cache.load_before(load.oid, maxtid)
            assert not any(
                (each.oid, each.tid, each.overtaken)
                == (load.oid, maxtid, False) for each, _ in self.asked
                if each.generation == load.generation)
            assert load.prefetches == 'prefetches'
            self.asked.append((load, None))

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), lost=st.sampled_from([False, False, True]))
    def answer(self, data, lost):
        load, reply = self.asked.pop(data.draw(
            st.sampled_from(range(len(self.asked)))))
        load.reply = None if lost else reply or self.look_up(load)
        self.cache.answered(load)
        assert load.ended
        for wait in [wait for wait in self.waiting if wait.load is load]:
            self.waiting.remove(wait)
            assert not load.done.locked()
            self.check_answer(wait)

    def check_answer(self, wait):
        """It may be taken as the other thread's own only if it is as good."""
        load = wait.load
        if load.reply is not None and load.reply.as_of >= wait.last_tid:
            assert u64(load.reply.serial) >= self.at_server(
                load.oid, u64(load.tid), u64(wait.last_tid))

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def forsake(self, data):
        load, _ = data.draw(st.sampled_from(self.asked))
        self.cache.forsake(load)
        assert self.cache.ask(
            load.oid, load.tid, self.cache.generation - 1)[0] is not load

    # What the client is told

    @precondition(lambda self: self.half_told or (
        self.arriving and self.arriving[0][0] <= self.announced))
    @rule(steps=st.integers(1, 4))
    def tell(self, steps):
        tid, oids = self.half_told or self.arriving.pop(0)
        self.cache.invalidate([(p64(tid), oids[:steps])])
        self.half_told = tid, oids[steps:]
        if len(oids) < steps:
            self.cache.set_last_tid(p64(tid))
            self.half_told = None

    @precondition(lambda self: self.half_told is None and not self.arriving)
    @rule(oids=some_oids, resolved=st.booleans())
    def commit(self, oids, resolved):
        """A transaction of this client's own."""
        self.publish(oids, True)
        tid, oids = self.arriving.pop()
        self.cache.committed(p64(tid), [
            (oid, b'%d' % tid, resolved) for oid in oids], lambda tid: None)

    @rule(drop=st.booleans(), really=st.sampled_from([False] * 4 + [True]))
    def connect_again(self, drop, really):
        """What was still to be told is asked for instead."""
        if not really:
            return
        self.cache.new_generation()
        last_tid = u64(self.cache.last_tid)
        if drop:
            self.cache.begin_anew(p64(last_tid))
        self.cache.drop([
            oid for oid in OIDS
            if any(last_tid < tid <= self.announced
                   for tid in self.changes[oid])])
        self.half_told = None
        self.arriving = [(tid, oids) for tid, oids in self.arriving
                         if tid > self.announced]
        self.cache.set_last_tid(p64(max(self.announced, last_tid)))

    # What holds

    @invariant()
    def what_is_current_is_current(self):
        last_tid = u64(self.cache.last_tid)
        for oid in OIDS:
            found = self.cache.load_before(oid, maxtid)
            if found is not None:
                data, serial, _ = found
                assert u64(serial) == self.at_server(oid, 1 << 62, last_tid)
                assert data == b'%d' % u64(serial)

    @invariant()
    def what_ended_is_forgotten(self):
        waiting = self.cache.pending._loads.values()
        assert all(waiting)  # no empty list for each object ever loaded
        assert sum(map(len, waiting)) <= len(self.asked)


def run_model(**options):
    Client.TestCase.settings = settings(
        stateful_step_count=40, deadline=None, database=None, **options)
    Client.TestCase('runTest').runTest()


class First:
    """In the place of Hypothesis' data: whatever can be chosen first."""

    def draw(self, strategy):
        return 0


def overtaken(client):
    """Its object is changed while the answer is under way."""
    client.ask(OIDS[0], as_of_now=False, looks=True)
    client.publish(OIDS[:1], announced=True)
    client.tell(len(OIDS))
    client.answer(First(), lost=False)


def serial(client):
    """The server knows a transaction of which the client has not heard."""
    client.ask(OIDS[0], as_of_now=False, looks=False)
    client.publish(OIDS[:1], announced=True)
    client.answer(First(), lost=False)


def generation(client):
    """Its connection is another one when its object is changed."""
    client.ask(OIDS[0], as_of_now=False, looks=True)
    client.connect_again(drop=False, really=True)
    client.publish(OIDS[:1], announced=True)
    client.tell(len(OIDS))
    client.answer(First(), lost=False)


def own_commit(client):
    """This client changes its object, and does not know the new state."""
    client.ask(OIDS[0], as_of_now=False, looks=True)
    client.commit(OIDS[:1], resolved=True)
    client.answer(First(), lost=False)


class Rule(unittest.TestCase):

    def test_every_order_of_events(self):
        run_model(max_examples=often(35, 300, 20))

    def test_where_each_part_of_the_rule_is_needed(self):
        for order in overtaken, serial, generation, own_commit:
            with self.subTest(order.__name__), contextlib.closing(
                    Client()) as client:
                order(client)
                client.what_is_current_is_current()

    def test_a_server_that_knows_less(self):
        """It cannot be, in the same generation; nothing of it is kept."""
        with contextlib.closing(Cache(None, 100_000)) as cache:
            cache.set_last_tid(p64(5))
            for as_of in 4, 5:
                load, _ = cache.ask(OIDS[0], maxtid, cache.generation)
                load.reply = Found(p64(as_of), b'', p64(1), None)
                cache.answered(load)
                self.assertEqual(len(cache), as_of - 4)

    def test_an_answer_that_is_no_revision(self):
        with contextlib.closing(Cache(None, 100_000)) as cache:
            for reply in None, unittest:
                load, _ = cache.ask(OIDS[0], maxtid, cache.generation)
                load.reply = reply
                cache.answered(load)
                self.assertEqual(len(cache), 0)
