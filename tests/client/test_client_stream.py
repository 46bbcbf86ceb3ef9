"""The commit channel of a client: who reads, who waits, and how it ends.  Goes
with `client/stream.py` and `client/watch.py`.
"""

import contextlib
import select
import socket
import struct
import threading
import unittest
from unittest import mock

from ZEO.Exceptions import ClientDisconnected

from fsyncstorage.client import stream
from fsyncstorage.client import watch
from fsyncstorage.wire import commits
from fsyncstorage.wire import commitserver as server
from fsyncstorage.wire import framing

from ..commit.test_interrupts import Interrupter
from ..support import PATIENCE
from ..support import TestCase
from ..support import Thread
from ..support import oid
from ..support import until
from ..test_wire import ANNOUNCEMENT
from ..test_wire import INSTANCE
from ..test_wire_commits import TICKET
from ..test_wire_commits import received

CUT = ClientDisconnected


class Peer:
    """The server's end, by hand."""

    def __init__(self, connection):
        connection.settimeout(PATIENCE)
        self.socket = connection
        self.send = connection.sendall
        self._file = connection.makefile('rb')

    def next(self):
        """The next request; None at the end."""
        length = self._file.read(4)
        return server.request(self._file.read(
            struct.unpack('>I', length)[0])) if length else None

    def close(self):
        self._file.close()
        self.socket.close()


class Transaction:
    """What a stream gives a number."""

    number = None


class StreamTestCase(TestCase):

    #: More than the system holds of what one side sends.
    much = server.invalid(oid(1), [oid(n) for n in range(1 << 18)])

    #: Longer than a test may take: no thread finds by itself what another
    #: should have told it.
    look_again = 2 * PATIENCE

    def setUp(self):
        super().setUp()
        self.patch(stream, LOOK_AGAIN=self.look_again)
        ours, theirs = socket.socketpair()
        self.peer = Peer(theirs)
        self.addCleanup(self.peer.close)
        client = commits.Client(INSTANCE, TICKET)
        received(client, ANNOUNCEMENT, framing.welcome())
        #: What was completed, in order: Invalid and Done.
        self.completed = []
        self.before_completing = lambda event: None
        self.ends = []
        made = threading.Event()

        def start():
            ready = stream.Stream(
                ours, client, b'Z5', self.complete_each, self.ends.append)
            self.stream = ready
            made.set()
            ready.read_in_background()

        self.background = threading.Thread(target=start)
        self.background.start()
        self.assertTrue(made.wait(PATIENCE))
        self.addCleanup(self.stream.close, 'the test is over')

    def complete_each(self, events):
        for event in events:
            self.complete(event)

    def complete(self, event):
        self.before_completing(event)
        self.completed.append(event)

    def begin_here(self):
        """The number of a transaction, and its first frame."""
        transaction = Transaction()
        frame = self.stream.begin(transaction, b'')
        return transaction.number, frame

    def begin(self):
        number, frame = self.begin_here()
        self.stream.send(frame)
        self.assertEqual(self.peer.next(), server.Begin(number, b''))
        return number

    def ask_vote(self, number):
        """A thread that waits for the outcome; its request has come."""
        thread = Thread(self.stream.vote, number, b'')
        self.assertEqual(self.peer.next(), server.Vote(number))
        return thread

    def vote(self, number):
        thread = self.ask_vote(number)
        self.peer.send(server.voted(number, ()))
        thread.result()

    def ask_finish(self, number, complete=None):
        thread = Thread(
            self.stream.finish, number, complete or self.complete)
        self.assertEqual(self.peer.next(), server.Finish(number))
        return thread

    def check_it_goes_on(self):
        number = self.begin()
        self.vote(number)
        finish = self.ask_finish(number)
        self.peer.send(server.done(number, oid(1 << 40), 1, 1))
        self.assertEqual(finish.result().tid, oid(1 << 40))

    def check_it_has_ended(self):
        for ask in self.stream.ping, self.begin_here:
            with self.assertRaises(CUT):
                Thread(ask).result()
        self.background.join(PATIENCE)
        self.assertFalse(self.background.is_alive())
        self.assertIn(self.stream, self.ends)


class Opened(StreamTestCase):

    def setUp(self):
        super().setUp()
        self.stream.moved()
        until(lambda: 0 not in self.stream._turn, 'read in the background')


@contextlib.contextmanager
def another(look_again=StreamTestCase.look_again):
    """For tests that need a stream for each of several cases."""
    case = Answers('check_it_goes_on')
    case.look_again = look_again
    case.setUp()
    try:
        yield case
    finally:
        case.doCleanups()


class Answers(Opened):

    #: A transaction that `answer_all` leaves without answers.
    held = None

    def answer_all(self):
        """Votes and finishes in reverse, as many as are there."""
        tid = 0
        while (request := self.peer.next()) is not None:
            number = request.number
            if number == self.held:
                continue
            if isinstance(request, server.Vote):
                self.peer.send(server.voted(number, ()))
            elif isinstance(request, server.Finish):
                tid += 2
                self.peer.send(server.invalid(oid(tid - 1), [oid(1)])
                               + server.done(number, oid(tid), 1, 1))
            elif isinstance(request, server.Abort):
                self.peer.send(server.aborted(number))
            elif isinstance(request, server.Ping):
                self.peer.send(server.pong(number, oid(tid)))

    def commit_some(self, count):
        for _ in range(count):
            number, frame = self.begin_here()
            self.stream.vote(number, frame)
            self.stream.finish(number, self.complete)

    def test_too_many_transactions(self):
        """The next thread waits until one is over."""
        numbers = [self.begin() for _ in range(commits.MOST_OPEN)]
        one_more = Thread(self.begin_here)
        for each in numbers[:3]:
            self.stream.abort(each)
            self.assertEqual(self.peer.next(), server.Abort(each))
            self.assertTrue(one_more.is_alive())
        self.peer.send(server.aborted(numbers[0]))
        one_more.result()
        # When it ends, each one that waits is told, however many they are.
        waiting = [Thread(self.begin_here) for _ in range(150)]
        until(lambda: len(self.stream._room._waiters) == 150, 'waiting')
        self.stream.end('enough')
        for each in waiting:
            with self.assertRaises(CUT):
                each.result()

    def test_both_send_more_than_the_system_holds_with_a_vote(self):
        """A thread that gives up the turn leaves it to no thread that still
        sends."""
        large, small = self.begin(), self.begin()
        waiting = self.ask_vote(small)
        until(lambda: 0 in self.stream._turn, 'reading')
        voting = Thread(self.stream.vote, large, self.stream.call(
            large, bytes(1 << 24)))
        until(lambda: large in self.stream._answers
              and self.stream._sending.locked(), 'sending')
        self.peer.send(server.voted(small, ()))
        waiting.result()
        self.peer.send(self.much)
        self.assertEqual(len(self.peer.next().message), 1 << 24)
        self.assertEqual(self.peer.next(), server.Vote(large))
        self.peer.send(server.voted(large, ()))
        voting.result()
        self.assertEqual(len(self.completed), 1)


class Order(Opened):

    def test_a_message_is_completed_before_the_next_one(self):
        """Also if another thread waits for that one."""
        go_on, entered = threading.Event(), threading.Event()

        def hold_up(event):
            if isinstance(event, commits.Invalid):
                entered.set()
                go_on.wait(PATIENCE)

        self.before_completing = hold_up
        number = self.begin()
        self.vote(number)
        self.peer.send(server.invalid(oid(1), [oid(7)]))
        self.assertTrue(entered.wait(PATIENCE))
        finish = self.ask_finish(number)
        self.peer.send(server.done(number, oid(2), 1, 1))
        finish.join(0.1)
        self.assertEqual(self.completed, [])
        go_on.set()
        finish.result()
        self.assertEqual([each.tid for each in self.completed],
                         [oid(1), oid(2)])

    def test_nothing_is_completed_behind_a_close(self):
        """It waits for what is being completed, and for what has come, but
        not without end."""
        go_on, entered = threading.Event(), threading.Event()

        def hold_up(event):
            entered.set()
            go_on.wait(PATIENCE)

        # It is a thread that waits for an answer that completes it.
        vote = self.ask_vote(self.begin())
        until(lambda: 0 in self.stream._turn, 'reading')
        self.before_completing = hold_up
        self.peer.send(server.invalid(oid(1), []))
        self.assertTrue(entered.wait(PATIENCE))
        self.peer.send(server.invalid(oid(2), []))
        with mock.patch.object(stream, 'END_WITHIN', 0):
            closing = Thread(self.stream.close, 'enough')
            closing.join(0.1)
            self.assertTrue(closing.is_alive())
            until(lambda: self.stream._is_over, 'over')
            go_on.set()
            closing.result()
        with self.assertRaises(CUT):
            vote.result()
        self.assertEqual(len(self.completed), 1)


class BeforeTheEnd(Opened):
    """What has come was kept by the server: it is completed.

    It waits here or in the system: the thread that has the turn is held up in
    the middle of the first message.
    """

    def test_what_has_come_is_completed(self):
        """When it is closed; when it ends here, as when a thread was
        interrupted while it sent; when the server closes."""
        def close(case):
            case.peer.close()
            case.stream.close('its other connection has ended')

        for end in (lambda case: case.stream.close('enough'),
                    lambda case: case.stream.end('enough'), close):
            for waits_here in True, False:
                with self.subTest(waits_here=waits_here):
                    with another() as case:
                        self.check_all_are_completed(case, end, waits_here)

    def check_all_are_completed(self, case, end, waits_here):
        entered, go_on = threading.Event(), threading.Event()

        def hold_up(event):
            entered.set()
            go_on.wait(PATIENCE)

        numbers = [case.begin() for _ in range(3)]
        for each in numbers:
            case.vote(each)
        finishes = [case.ask_finish(each) for each in numbers]
        case.before_completing = hold_up
        first, *others = [server.done(each, oid(tid), 1, 1)
                          for tid, each in enumerate(numbers, 1)]
        if waits_here:
            case.peer.send(b''.join([first, *others]))
            self.assertTrue(entered.wait(PATIENCE))
        else:
            case.peer.send(first)
            self.assertTrue(entered.wait(PATIENCE))
            case.peer.send(b''.join(others))
        ending = Thread(end, case)
        until(lambda: case.stream.end_reason, 'ending')
        with self.assertRaises(CUT):
            case.stream.check()
        go_on.set()
        self.assertEqual([each.result().tid for each in finishes],
                         [oid(1), oid(2), oid(3)])
        ending.result()
        self.assertEqual([each.tid for each in case.completed],
                         [oid(1), oid(2), oid(3)])
        case.check_it_has_ended()

    def test_behind_what_is_no_reply(self):
        """Nothing can be trusted there."""
        first, second = self.begin(), self.begin()
        self.vote(first)
        self.vote(second)
        finishes = [self.ask_finish(first), self.ask_finish(second)]
        self.peer.send(server.done(first, oid(1), 1, 1) + b'\0\0\0\5xxxxx'
                       + server.done(second, oid(2), 1, 1))
        self.assertEqual(finishes[0].result().tid, oid(1))
        with self.assertRaises(CUT):
            finishes[1].result()
        self.check_it_has_ended()
        self.assertEqual([each.tid for each in self.completed], [oid(1)])


class BeforeTheMarker(StreamTestCase):

    def test_nothing_is_completed(self):
        self.peer.send(server.invalid(oid(1), []))
        begin = Thread(self.begin_here)
        begin.join(0.1)
        self.assertTrue(begin.is_alive())
        self.assertEqual(self.completed, [])
        self.stream.moved()
        begin.result()
        until(lambda: self.completed, 'completed')

    def test_too_much_comes(self):
        with mock.patch.object(stream, 'MOST_BEFORE_OPEN', 1000):
            self.peer.send(server.invalid(oid(1), [oid(2)] * 200))
            self.check_it_has_ended()


class Ends(Opened):

    def check_all_are_told(self, end):
        number, voting = self.begin(), self.begin()
        self.vote(number)
        waiting = [self.ask_finish(number), self.ask_vote(voting),
                   Thread(self.stream.ping)]
        self.peer.next()
        end()
        for each in waiting:
            with self.assertRaises(CUT):
                each.result()
        self.check_it_has_ended()

    def test_the_server_closes(self):
        self.check_all_are_told(self.peer.close)

    def test_it_is_ended(self):
        self.check_all_are_told(lambda: self.stream.end('enough'))

    def test_half_a_frame(self):
        def end():
            self.peer.send(server.invalid(oid(1), [oid(7)])[:9])
            self.peer.close()
        self.check_all_are_told(end)
        self.assertEqual(self.completed, [])

    def test_what_is_no_reply(self):
        self.check_all_are_told(lambda: self.peer.send(b'\0\0\0\5xxxxx'))

    def test_a_close_leaves_the_descriptor_to_a_thread_that_receives(self):
        """Another connection could get its number."""
        entered, go_on = threading.Event(), threading.Event()
        connection = self.stream._socket

        def held_up(most, flags):
            entered.set()
            go_on.wait(PATIENCE)
            return connection.recv(most, flags)

        held = mock.Mock(wraps=connection, recv=held_up)
        number = self.begin()
        with mock.patch.object(self.stream, '_socket', held):
            vote = self.ask_vote(number)
            self.assertTrue(entered.wait(PATIENCE))
            with mock.patch.object(stream, 'END_WITHIN', 0.1):
                self.stream.close('enough')
            self.assertNotEqual(connection.fileno(), -1)
            go_on.set()
            with self.assertRaises(CUT):
                vote.result()
            self.check_it_has_ended()
        self.assertEqual(connection.fileno(), -1)

    def test_wrong_answers(self):
        """A Done for a vote, an answer that comes twice, one that nobody
        asked for."""
        for wrong in (lambda number: server.done(number, oid(1), 1, 1),
                      lambda number: server.error(number, b'') * 2,
                      lambda number: server.voted(number + 1, ()),
                      lambda number: server.aborted(number),
                      lambda number: server.pong(number, oid(1))):
            with self.subTest(wrong):
                with another() as case:
                    vote = case.ask_vote(number := case.begin())
                    case.peer.send(wrong(number))
                    with contextlib.suppress(CUT):
                        self.assertIsInstance(vote.result(), commits.Error)
                    case.check_it_has_ended()


class Taking(Interrupter):
    """Interrupts where messages are taken out of the buffer."""

    def _trace(self, frame, event, arg):
        if frame.f_code.co_name not in (
                'next_together', '_further_invalid', 'next', '_take',
                '_invalid', '_rises', '_taken_apart'):
            return None
        return super()._trace(frame, event, arg)


class OfAnnouncements(TestCase):
    """An interrupt where several are taken out of the buffer: none is left
    out before others are completed."""

    level = 2
    sent = [commits.Invalid(oid(tid), [oid(7), oid(8)]) for tid in (1, 2, 3)]

    def test_at_each_line(self):
        at = 0
        while True:
            at += 1
            with self.subTest(at=at):
                interrupter = Taking(at)
                with another() as case:
                    self.check(case, interrupter)
            if not interrupter.fired:
                break
        self.assertGreater(at, 40)

    def check(self, case, interrupter):
        number = case.begin()
        vote = Thread(self.vote, case, number, interrupter)
        self.assertEqual(case.peer.next(), server.Vote(number))
        until(lambda: 0 in case.stream._turn, 'reading')
        case.peer.send(b''.join(
            server.invalid(*each) for each in self.sent)
            + server.voted(number, ()))
        with contextlib.suppress(KeyboardInterrupt):
            vote.result()
        if interrupter.fired:
            case.check_it_has_ended()
        self.assertIn(case.completed, ([], self.sent[:1], self.sent))

    def vote(self, case, number, interrupter):
        with interrupter:
            case.stream.vote(number, b'')


class EveryLine(TestCase):
    """An interrupt at each line of a commit: nobody is left waiting (I10).

    Another thread waits for an answer that comes later.
    """

    level = 2

    def test_of_a_commit(self):
        at, interrupted, went_on = 1, 0, 0
        while True:
            # The interrupt may have come before.
            with another(look_again=1) as case:
                case.held = case.begin()
                sleeping = case.ask_vote(case.held)
                answering = Thread(case.answer_all)
                interrupter = Interrupter(at)
                committing = Thread(self.commit, case, interrupter)
                with contextlib.suppress(CUT, KeyboardInterrupt):
                    committing.result()
                with contextlib.suppress(OSError):  # the client has ended it
                    case.peer.send(server.voted(case.held, ()))
                with contextlib.suppress(CUT):
                    sleeping.result()
                went_on += self.check_the_next_one(case)
                with contextlib.suppress(OSError):  # the client has ended it
                    case.peer.socket.shutdown(socket.SHUT_RDWR)
                    answering.result()
            if not interrupter.fired:
                break
            interrupted += 1
            at += 1
        self.assertGreater(interrupted, 50)
        self.assertGreater(went_on, interrupted // 3)

    def commit(self, case, interrupter):
        with interrupter:
            case.commit_some(1)

    def check_the_next_one(self, case):
        """It is committed, or the stream has ended and says so."""
        following = Thread(case.commit_some, 1)
        try:
            following.result()
        except CUT:
            case.check_it_has_ended()
            return False
        return True


@unittest.skipUnless(watch.is_possible, 'this system has no epoll')
class AWatch(unittest.TestCase):
    """What tells the background reader that something comes."""

    def setUp(self):
        connection, self.other = socket.socketpair()
        for end in connection, self.other:
            self.addCleanup(end.close)
        self.watch = watch.Watch(connection)

    def tells(self):
        """Would the background reader go on?"""
        return bool(select.select([self.watch._poll], [], [], 0)[0])

    def test_wakes_although_another_thread_arms_it(self):
        """What an interrupted thread has left lies here."""
        self.watch.wake()
        for _ in range(2):
            self.watch.arm()
            self.assertTrue(self.tells())
        self.watch.disarm()  # by one that completes all of it
        self.assertFalse(self.tells())

    def test_wakes_although_another_thread_is_about_to_arm_it(self):
        with mock.patch.object(
                self.watch, '_set', side_effect=self.watch._set) as sets:
            def set_later(events):
                sets.side_effect = set_now
                self.watch.wake()
                set_now(events)

            set_now, sets.side_effect = sets.side_effect, set_later
            self.watch.arm()
        self.assertTrue(self.tells())
