"""A stream, used by several threads, and a server at its other end that the
test plays."""

import contextlib
import itertools
import socket
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

    def test_an_interrupt_of_any_kind(self):
        """The handler of a signal may raise what it likes."""
        self.open()
        asked, waiting = [], []
        for _ in range(2):
            waiting.append(Thread(self.stream.ask, frames.Ping(0)))
            asked.append(self.far.next().number)
        interrupt(waiting[1], ZeroDivisionError)
        # Before the second thread waits, it ends the stream at once.
        with contextlib.suppress(BrokenPipeError, ClientDisconnected):
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

    def test_silence_when_nothing_more_can_be_sent(self):
        """Who looks for a sign of life does not wait to ask for it."""
        self.open(may_be_silent=.5)
        waiting = Thread(self.stream.ask, frames.Load(0, p64(1), p64(2)))
        self.far.next()
        with contextlib.suppress(BlockingIOError):
            while True:
                self.near.send(bytes(1), socket.MSG_DONTWAIT)
        self.assertRaises(Unanswered, waiting.result)

    def test_a_sign_of_life(self):
        """It is asked for each fifth of the time: so that time passes here."""
        self.open(may_be_silent=1)
        for _ in range(often(6, 30)):
            message = self.far.next()
            self.far.say(frames.Pong(message.number, p64(1)))
        self.stream.check()


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
