"""A stream, used by several threads, and a server at its other end that the
test plays."""

import contextlib
import itertools
import os
import random
import socket
import threading
import time
from unittest import mock

from ZEO.Exceptions import ClientDisconnected
from ZODB.POSException import StorageError
from ZODB.utils import p64
from ZODB.utils import z64

from fsyncstorage.client import stream as streams
from fsyncstorage.client.stream import Stream
from fsyncstorage.client.stream import Unanswered
from fsyncstorage.client.watch import PollWatch
from fsyncstorage.wire import frames

from ..often import often
from ..support import PATIENCE
from ..support import TestCase
from ..support import Thread
from ..support import interrupt
from ..support import until
from .talking import ByHand

WELCOME = frames.Welcome(0, 1, bytes(16), z64, b'')


class Streams(TestCase):

    def open(self, may_be_silent=None, told=None):
        near, far = socket.socketpair()
        far.settimeout(PATIENCE)
        self.addCleanup(far.close)
        self.near, self.told = near, []
        self.stream = Stream(near, frames.Inbox(), WELCOME, may_be_silent,
                             told or self.told.extend)
        self.stream._inbox.longest = frames.LONGEST
        self.reader = Thread(self.stream.read_in_background)
        self.far = ByHand(far)
        self.addCleanup(self.end)

    def end(self):
        self.stream.end('the test is over')
        self.reader.result()

    def begun(self):
        number = self.stream.begin()
        self.stream.say([frames.Begin(
            number, bytes(16), z64, b' ', b'', b'', b'')])
        return number

    def test_what_comes_unasked(self):
        self.open()
        self.far.say(frames.Invalid(0, p64(1), p64(7)))
        until(lambda: self.told, 'what was told')
        self.assertEqual(self.stream.last_tid, p64(1))

    def test_a_thread_reads_for_others(self):
        self.open()
        first = Thread(self.stream.ask, frames.Load(0, p64(1), p64(9)))
        one = self.far.next()
        second = Thread(self.stream.ask, frames.Load(0, p64(2), p64(9)))
        two = self.far.next()
        self.far.say(frames.Missing(two.number, p64(3)))
        self.assertEqual(second.result(), frames.Missing(two.number, p64(3)))
        self.far.say(frames.Nothing(one.number, p64(3)))
        self.assertEqual(first.result(), frames.Nothing(one.number, p64(3)))

    def test_who_is_told_asks_for_nothing(self):
        """A finaliser, too, that loads in the middle of that: there is nobody
        to read the answer."""
        errors = []

        def told(messages):
            try:
                self.stream.ask(frames.Load(0, p64(1), p64(9)))
            except StorageError as error:
                errors.append(error)

        self.open(told=told)
        for tid in 1, 2:
            self.far.say(frames.Invalid(0, p64(tid), p64(7)))
            until(lambda: len(errors) == tid, 'an error')  # noqa: B023
        self.stream.check()

    def test_completed_in_the_order_of_the_stream(self):
        """Before anything that comes later, and by whoever reads."""
        order = []
        self.open(told=lambda messages: order.extend(messages))
        number = self.begun()
        self.far.next()
        waiting = Thread(self.stream.ask, frames.Trip(number), (),
                         order.append)
        self.far.next()
        done = frames.Done(number, p64(2), 1, 1, b'')
        messages = [frames.Invalid(0, p64(1), p64(7)), done,
                    frames.Invalid(0, p64(3), p64(7))]
        self.far.say(*messages)
        self.assertEqual(waiting.result(), done)
        until(lambda: len(order) == 3, 'what was told')
        self.assertEqual(order, messages)

    def test_what_cannot_be_sent(self):
        """Nothing was asked for; the transaction can be aborted."""
        self.open()
        number = self.begun()
        self.far.next()
        too_long = frames.Undo(number, bytes(2000))
        self.assertRaises(frames.CallerError, self.stream.ask,
                          frames.Trip(number), [too_long])
        self.stream.abort(number)
        self.assertEqual(self.far.next(), frames.Abort(number))

    def test_room_for_a_transaction(self):
        """It is there again when one has ended, and not before."""
        self.open()
        numbers = [self.stream.begin() for _ in range(frames.MOST_OPEN)]
        waiting = [Thread(self.stream.begin) for _ in range(2)]
        self.stream.abort(numbers[0])
        self.far.say(frames.Aborted(self.far.next().number))
        until(lambda: not all(each.is_alive() for each in waiting), 'room')
        self.assertTrue(any(each.is_alive() for each in waiting))
        self.stream.end('the test is over')
        ended = 0
        for each in waiting:
            try:
                each.result()
            except ClientDisconnected:
                ended += 1
        self.assertEqual(ended, 1)

    def test_an_interrupt_while_it_waits_for_room(self):
        """Another thread that waits gets the place."""
        self.open()
        numbers = [self.stream.begin() for _ in range(frames.MOST_OPEN)]
        waiting = []
        for number in range(2):
            waiting.append(Thread(self.stream.begin))
            until(lambda: len(self.stream._room._waiters) > number, 'it waits')
        interrupt(waiting[0])
        self.stream.abort(numbers[0])
        self.far.say(frames.Aborted(self.far.next().number))
        self.assertRaises(KeyboardInterrupt, waiting[0].result)
        self.assertTrue(waiting[1].result())

    def test_two_full_buffers(self):
        """The server sends, and reads nothing until all of that is taken."""
        self.open()
        number = self.begun()
        piece = frames.BlobPiece(number, bytes(1 << 16))

        def send():
            self.stream.say([frames.BlobBegin(number)])
            for _ in range(200):
                self.stream.say([piece])

        self.far.next()
        sending = Thread(send)
        for tid in range(1, 200):
            self.far.say(frames.Invalid(0, p64(tid), p64(7) * 8000))
        while self.far.next() != frames.BlobBegin(number):
            pass
        for _ in range(200):
            self.assertEqual(self.far.next(), piece)
        sending.result()
        until(lambda: len(self.told) == 199, 'what was told')

    def test_others_send_between_the_pieces(self):
        self.open()
        number = self.begun()
        self.far.next()
        ended = threading.Event()

        def send():
            while not ended.is_set():
                self.stream.say([frames.BlobPiece(number, bytes(1 << 16))])

        sending = Thread(send)
        try:
            for _ in range(10):
                ping = Thread(self.stream.ask, frames.Ping(0))
                while (message := self.far.next()).__class__ is (
                        frames.BlobPiece):
                    pass
                self.far.say(frames.Pong(message.number, p64(1)))
                while ping.is_alive():
                    self.far.next()
        finally:
            ended.set()
        self.far.socket.shutdown(socket.SHUT_RDWR)
        self.reader.result()
        with contextlib.suppress(ClientDisconnected):
            sending.result()
        self.assertRaises(ClientDisconnected, self.stream.check)

    def test_it_keeps_no_descriptors(self):
        before = os.listdir('/proc/self/fd')
        self.open()
        self.end()
        self.far.socket.close()
        self.assertEqual(len(os.listdir('/proc/self/fd')), len(before))
        self.stream.end('once more')

    def test_the_end_in_the_middle(self):
        self.open()
        waiting = [Thread(self.stream.ask, frames.Ping(0)) for _ in range(3)]
        for _ in waiting:
            self.far.next()
        self.far.say(frames.Invalid(0, p64(1), p64(7)))
        self.far.socket.close()
        for thread in waiting:
            self.assertRaises(Unanswered, thread.result)
        self.assertEqual(len(self.told), 1)
        self.assertRaises(ClientDisconnected, self.stream.check)

    def test_a_goodbye(self):
        self.open()
        waiting = Thread(self.stream.ask, frames.Ping(0))
        self.far.next()
        self.far.say(frames.Goodbye(0))
        self.assertRaises(Unanswered, waiting.result)
        self.assertTrue(self.stream.said_goodbye)

    def test_something_else_than_frames(self):
        for data in (b'\xff' * 100, frames.frame(frames.Pong(7, p64(1))),
                     b'\0\0\0\1?', frames.frame(frames.Ping(7))):
            self.open()
            self.far.socket.sendall(data)
            self.reader.result()
            self.assertTrue(self.stream.is_over)

    def test_an_error_of_what_is_told(self):
        def fail(messages):
            raise ValueError('the database')

        self.open(told=fail)
        self.far.say(frames.Invalid(0, p64(1), p64(7)))
        self.reader.result()
        self.assertTrue(self.stream.is_broken)
        self.assertEqual(self.stream.end_reason, 'the database')

    def test_an_interrupt_while_it_waits(self):
        """It ends the stream; another thread is not left alone."""
        self.open()
        started = threading.Event()
        outcome = []

        def wait():
            started.set()
            try:
                self.stream.ask(frames.Ping(0))
            except BaseException as error:
                outcome.append(type(error))

        thread = threading.Thread(target=wait)
        thread.start()
        self.far.next()
        other = Thread(self.stream.ask, frames.Ping(0))
        self.far.next()
        interrupt(thread, SystemExit)
        self.far.say(frames.Invalid(0, p64(1), p64(7)))
        self.assertRaises(Unanswered, other.result)
        thread.join(PATIENCE)
        self.assertIn(outcome, ([SystemExit], [Unanswered]))

    def test_an_interrupt_of_any_kind(self):
        """The handler of a signal may raise what it likes."""
        self.open()
        asked, waiting = [], []
        for _ in range(2):
            waiting.append(Thread(self.stream.ask, frames.Ping(0)))
            asked.append(self.far.next().number)
        interrupt(waiting[1], ZeroDivisionError)
        self.far.say(frames.Pong(asked[0], z64))
        waiting[0].result()  # and hands the right to read on
        self.assertRaises(ZeroDivisionError, waiting[1].result)
        self.assertRaises(ClientDisconnected, self.stream.check)

    def test_an_interrupt_behind_what_was_received(self):
        """What is lost then was perhaps a change: nothing is told of later
        ones."""
        self.open()
        waiting = Thread(self.stream.ask, frames.Ping(0))
        until(lambda: self.stream._reader not in (None, streams._BACKGROUND),
              'the thread reads')
        clock = mock.Mock()
        clock.monotonic.side_effect = itertools.chain(
            [ZeroDivisionError], itertools.repeat(0))  # of a signal handler
        with mock.patch.object(streams, 'time', clock):
            self.far.say(frames.Invalid(0, p64(1), p64(7)))
            self.assertRaises(ZeroDivisionError, waiting.result)
        self.assertTrue(self.stream.is_over)
        self.assertEqual(self.told, [])

    def test_silence(self):
        self.open(may_be_silent=.2)
        waiting = Thread(self.stream.ask, frames.Load(0, p64(1), p64(2)))
        self.assertRaises(Unanswered, waiting.result)
        self.assertIn('nothing was heard', self.stream.end_reason)

    def test_silence_when_nothing_more_can_be_sent(self):
        """Who looks for a sign of life does not wait to ask for it."""
        self.open(may_be_silent=.5)
        waiting = Thread(self.stream.ask, frames.Load(0, p64(1), p64(2)))
        self.far.next()
        with contextlib.suppress(BlockingIOError):
            while True:
                self.near.send(bytes(1), socket.MSG_DONTWAIT)
        self.assertRaises(Unanswered, waiting.result)

    def test_a_sign_of_life_of_one_that_is_sent_much(self):
        """It has nothing to say, and the right to send is never free."""
        self.open(may_be_silent=1)
        number = self.begun()
        self.far.next()
        ended = threading.Event()

        def send():
            while not ended.is_set():
                self.stream.say([frames.BlobPiece(number, bytes(1 << 20))])

        sending = Thread(send)
        until_then = time.monotonic() + often(2.5, 10)
        while time.monotonic() < until_then:
            message = self.far.next()
            time.sleep(.01)  # no event can stand for a slow server
            if message.__class__ is frames.Ping:
                self.far.say(frames.Pong(message.number, p64(1)))
        ended.set()
        self.stream.check()
        self.end()
        with contextlib.suppress(ClientDisconnected):
            sending.result()

    def test_a_sign_of_life(self):
        """It is asked for each fifth of the time: so that time passes here."""
        self.open(may_be_silent=1)
        for _ in range(often(6, 30)):
            message = self.far.next()
            self.far.say(frames.Pong(message.number, p64(1)))
        self.stream.check()

    def test_many_threads(self):
        """A server that answers in any order, and announces in between."""
        self.open()
        chance = random.Random(often(1, time.time()))
        threads = 8
        asked = often(100, 2000)

        def serve():
            open_ones, tid, left = [], 0, threads * asked
            self.far.socket.settimeout(.001)
            while left:
                try:
                    open_ones.append(self.far.next())
                except TimeoutError:
                    pass
                if open_ones and chance.random() < .7:
                    message = open_ones.pop(chance.randrange(len(open_ones)))
                    self.far.say(frames.Nothing(message.number, message.oid))
                    left -= 1
                if chance.random() < .3:
                    tid += 1
                    self.far.say(frames.Invalid(0, p64(tid), p64(7)))
            return tid

        def ask(thread):
            for number in range(asked):
                oid = p64(thread * asked + number)
                answer = self.stream.ask(frames.Load(0, oid, p64(9)))
                self.assertEqual(answer.as_of, oid)

        serving = Thread(serve)
        for thread in [Thread(ask, number) for number in range(threads)]:
            thread.result()
        last = serving.result()
        until(lambda: len(self.told) == last, 'what was told')
        self.assertEqual([each.tid for each in self.told],
                         [p64(tid) for tid in range(1, last + 1)])


class StreamsWithoutEpoll(Streams):
    """On systems that are not Linux."""

    def setUp(self):
        super().setUp()
        self.patch(streams, Watch=PollWatch)

    def test_a_watch_that_is_armed_waits_for_what_arrives(self):
        near, far = socket.socketpair()
        self.addCleanup(near.close)
        self.addCleanup(far.close)
        watch = PollWatch(near)
        self.addCleanup(watch.close)
        rounds = mock.Mock(wraps=watch._poll)
        self.patch(watch, _poll=rounds)
        waiting = Thread(watch.wait)
        until(lambda: rounds.call_count == 1, 'it waits')
        watch.arm()
        until(lambda: rounds.call_count == 2, 'it waits for the connection')
        far.send(b'x')
        waiting.result()
        watch.wait(0)  # it is not armed any more
        watch.arm()
        watch.wait()
        watch.wake()
        watch.wait()
