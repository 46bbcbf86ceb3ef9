"""Who reads the stream: the threads of a client, line by line, in every order.

The stream is the real one.  Its connection has little room in each direction,
and the server at its other end is the worst that keeps to the protocol: it
reads only while nothing of what it has to send is left.  The marker comes at
any time, and so does the end.  Whatever the order: when every thread waits,
all that the server sent was completed, and each request is answered.  So
somebody reads, always.  When the stream has ended, all that came before was
read, and all threads are done with it.
"""

import unittest
from unittest import mock

from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine
from hypothesis.stateful import precondition
from hypothesis.stateful import rule
from hypothesis.stateful import run_state_machine_as_test
from ZEO.Exceptions import ClientDisconnected

from fsyncstorage.client import stream
from fsyncstorage.wire import commits
from fsyncstorage.wire import commitserver as server
from fsyncstorage.wire import framing

from ..generated import settings
from ..support import oid
from ..test_wire import ANNOUNCEMENT
from ..test_wire import INSTANCE
from ..test_wire_commits import TICKET
from ..test_wire_commits import received
from .schedule import Condition
from .schedule import Lock
from .schedule import Schedule

# Bytes that the system holds of what one side sends.
HELD = 20
MOST_THREADS = 4


class Connection:
    """Both sockets, and what the system holds of what they send."""

    def __init__(self, schedule):
        self._schedule = schedule
        self.to_client = self.to_server = b''
        self.is_shut = self.is_closed = False

    @property
    def can_be_read(self):
        return self.to_client or self.is_shut

    def recv(self, most, flags=0):
        if flags and not self.can_be_read:
            raise BlockingIOError
        self._schedule.wait_for(lambda: self.can_be_read)
        data, self.to_client = self.to_client, b''
        return data

    def sendall(self, data):
        while data:
            self._schedule.wait_for(
                lambda: len(self.to_server) < HELD or self.is_shut)
            if self.is_shut:
                raise BrokenPipeError
            room = HELD - len(self.to_server)
            self.to_server += data[:room]
            data = data[room:]

    def shutdown(self, how):
        self.is_shut = True  # what has come can still be read

    def close(self):
        self.is_closed = True


class Watch:

    def __init__(self, schedule, connection):
        self._schedule = schedule
        self._connection = connection
        self._tells = self._tells_the_end
        self._is_woken = False

    def arm(self):
        self._tells = lambda: self._is_woken or self._connection.can_be_read

    def wake(self):
        self._is_woken = True
        self._tells = lambda: True

    def disarm(self):
        self._tells = self._tells_the_end

    def _tells_the_end(self):
        return self._connection.is_shut

    def wait(self, seconds=None):
        """However long it takes."""
        self._schedule.wait_for(lambda: self._tells())
        self._tells = lambda: False  # once
        self._is_woken = False


def answers_of(schedule):
    """The class; such an answer never looks for itself."""

    class Answer(stream.Answer):

        def __init__(self):
            super().__init__()
            self.is_woken = False

        def wake(self):
            self.is_woken = True

        def sleep(self, seconds):
            schedule.wait_for(lambda: self.is_woken)
            self.is_woken = False

    return Answer


class Turns(RuleBasedStateMachine):

    def __init__(self):
        super().__init__()
        self.schedule = Schedule(stream)
        self.connection = Connection(self.schedule)
        self.unsent = self.unread = b''  # at the server
        self.tid = 0
        self.completed = []
        patch = mock.patch.multiple(
            stream, Answer=answers_of(self.schedule),
            Watch=lambda connection: Watch(self.schedule, connection))
        patch.start()
        self.stop_patching = patch.stop
        client = commits.Client(INSTANCE, TICKET)
        received(client, ANNOUNCEMENT, framing.welcome())
        self.stream = self.make_stream(
            self.connection, client, b'Z5', self.completed.extend,
            lambda stream: None)
        for name in '_states', '_sending', '_completing', '_room_lock':
            setattr(self.stream, name, Lock(self.schedule))
        self.stream._room = Condition(self.schedule, self.stream._room_lock)
        self.background = self.schedule.start(self.stream.read_in_background)
        self.has_moved = self.has_ended = False

    make_stream = stream.Stream

    # The client

    @property
    def committing(self):
        return [thread for thread in self.schedule.threads[1:]
                if not thread.is_over]

    @precondition(lambda self: len(self.committing) < MOST_THREADS)
    @rule(size=st.sampled_from([0, 5 * HELD]))
    def vote(self, size):
        self.schedule.start(lambda: self.begin_and_vote(bytes(size)))

    def begin_and_vote(self, data):
        transaction = mock.Mock()
        frame = self.stream.begin(transaction, data)
        return self.stream.vote(transaction.number, frame)

    @precondition(lambda self: len(self.committing) < MOST_THREADS)
    @rule()
    def ping(self):
        self.schedule.start(self.stream.ping)

    @rule(turns=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 80)),
                         min_size=1, max_size=6))
    def run(self, turns):
        for which, lines in turns:
            able = [each for each in self.schedule.threads if each.can_run]
            if able:
                able[which % len(able)].run(lines)

    # What comes once

    @precondition(lambda self: not self.has_moved)
    @rule()
    def move(self):
        self.has_moved = True
        self.schedule.start(self.stream.moved)

    @precondition(lambda self: not self.has_ended)
    @rule(now=st.sampled_from([False] * 19 + [True]),
          lines=st.sampled_from([0, 1000]))
    def end(self, now=True, lines=0):
        if now:
            self.has_ended = True
            self.schedule.start(
                lambda: self.stream.end('enough')).run(lines)

    # The server

    @rule(number=st.sampled_from([0, 10]))
    def announce(self, number):
        self.tid += 1
        self.unsent += server.invalid(oid(self.tid), [oid(1)] * number)

    @rule()
    def serve(self):
        if self.connection.is_shut:
            return
        room = HELD - len(self.connection.to_client)
        self.connection.to_client += self.unsent[:room]
        self.unsent = self.unsent[room:]
        if not self.unsent:
            self.unread += self.connection.to_server
            self.connection.to_server = b''
            self.answer()

    def answer(self):
        while len(self.unread) >= 4:
            end = 4 + int.from_bytes(self.unread[:4], 'big')
            if len(self.unread) < end:
                break
            frame, self.unread = self.unread[4:end], self.unread[end:]
            request = server.request(frame)
            if isinstance(request, server.Vote):
                self.unsent += server.voted(request.number, ())
            elif isinstance(request, server.Ping):
                self.unsent += server.pong(request.number, oid(self.tid))

    # What holds

    def teardown(self):
        try:
            if not self.has_moved:
                self.move()
            self.let_all_run()
            self.check_all_are_answered()
            if not self.has_ended:
                assert not self.unsent, 'nobody reads what was announced'
                assert len(self.completed) == self.tid
                self.end()
                self.let_all_run()
            assert self.background.is_over, 'it is not told of the end'
            assert self.background.error is None, self.background.error
            assert self.connection.is_closed
            assert not self.connection.to_client, 'what came is left'
        finally:
            self.schedule.stop()
            self.stop_patching()

    def check_all_are_answered(self):
        for thread in self.schedule.threads[1:]:
            assert thread.is_over, 'nobody reads its answer'
            if thread.error is not None:
                assert isinstance(thread.error, ClientDisconnected)
                assert self.has_ended

    def let_all_run(self):
        """Until each thread waits."""
        goes_on = True
        while goes_on:
            before = len(self.unsent), len(self.connection.to_server)
            self.serve()
            goes_on = before != (
                len(self.unsent), len(self.connection.to_server))
            for thread in self.schedule.threads:
                while thread.can_run:
                    thread.run(1000)
                    goes_on = True


class _OneThatDoesNotSayWhenItWaits(stream.Stream):
    """A thread that still sends is woken, to read."""

    def _hand_on(self):
        for answer in list(self._answers.values()):
            answer.waits = True
        super()._hand_on()


class WakesThoseThatSend(Turns):

    make_stream = _OneThatDoesNotSayWhenItWaits


class _OneThatDoesNotHandOn(stream.Stream):
    """Whoever gives up the turn leaves it to the background reader."""

    def _hand_on(self):
        if 0 not in self._turn and not self._answers:
            self._watch.arm()


class HandsNothingOn(Turns):

    make_stream = _OneThatDoesNotHandOn


def run(machine, examples):
    run_state_machine_as_test(machine, settings=settings(
        max_examples=examples, stateful_step_count=60, derandomize=True,
        deadline=None, phases=[Phase.generate]))


class TheTurn(unittest.TestCase):

    level = 2

    def test_somebody_reads(self):
        run(Turns, 60)

    def test_those_that_send_are_woken(self):
        with self.assertRaises(AssertionError):
            run(WakesThoseThatSend, 2000)

    def test_nobody_is_woken(self):
        with self.assertRaises(AssertionError):
            run(HandsNothingOn, 2000)


class Long(unittest.TestCase):

    level = 3

    def test_somebody_reads(self):
        run(Turns, 2000)
