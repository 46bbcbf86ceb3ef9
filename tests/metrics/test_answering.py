"""Whoever asks for metrics costs a bounded number of things, and no thread."""

import socket
import threading
import time
import warnings
from unittest import mock

from fsyncstorage.metrics import answering
from fsyncstorage.metrics.answering import Answer
from fsyncstorage.metrics.answering import Answering

from ..support import PATIENCE
from ..support import TestCase
from ..support import Thread
from ..support import read_to_the_end
from ..support import until
from .asking import get

FOR_EVER = 3600

BODY = b'a figure\n' * 1000
PAGES = {'/page': Answer(200, 'text/plain', BODY)}
REQUEST = b'GET /page HTTP/1.1\r\nHost: localhost\r\n\r\n'


class AnsweringTestCase(TestCase):

    def setUp(self):
        super().setUp()
        self.answering = Answering(('127.0.0.1', 0), PAGES.get)
        self.addCleanup(self.answering.close)

    def connect(self):
        connection = socket.create_connection(
            self.answering.address, PATIENCE)
        self.addCleanup(connection.close)
        return connection

    def say(self, words):
        """All that is answered, until the connection is closed."""
        connection = self.connect()
        connection.sendall(words)
        return read_to_the_end(connection)

    def check_it_answers(self):
        self.assertEqual(
            get(self.answering.address, '/page'), (200, BODY.decode()))

    def connect_and_hang(self, number):
        hanging = [self.connect() for _ in range(number)]
        until(lambda: len(self.answering._open) == number, 'all are accepted')
        return hanging


class Requests(AnsweringTestCase):

    def test_a_page(self):
        head, _, body = self.say(REQUEST).partition(b'\r\n\r\n')
        self.assertEqual(body, BODY)
        self.assertRegex(head, rb'^HTTP/1.0 200 OK\r\n')
        self.assertIn(b'Content-Type: text/plain\r\n', head)
        self.assertIn(b'Content-Length: %d' % len(BODY), head)

    def test_a_request_in_pieces(self):
        connection = self.connect()
        for byte in REQUEST:
            connection.sendall(bytes([byte]))
        self.assertIn(BODY, read_to_the_end(connection))

    def test_what_is_no_request(self):
        for words, status in (
                (b'POST /page HTTP/1.0\r\n\r\n', b' 501 '),
                (b'X' * 99 + b' /page HTTP/1.0\r\n\r\n', b' 501 '),
                (b'\x16\x03\x01\0\r\n\r\n', b' 400 '),
                (b'GET /page HTTP/2.0\r\n\r\n', b' 400 '),
                (b'GET /page\r\n\r\n', b' 400 '),
                (b'\r\n\r\n', b' 400 ')):
            with self.subTest(words[:20]):
                self.assertIn(status, self.say(words).partition(b'\r\n')[0])
        self.check_it_answers()

    def test_other_headers_say_nothing(self):
        with self.assertNoLogs('asyncio'):
            for header in (b'a:b\r\n' * 200, b'\xff', b' : ;\r\n x',
                           b'Content-Type: multipart/x; boundary*=x;'
                           b' boundary*0=y',
                           b'Connection: keep-alive\r\nExpect: \0'):
                with self.subTest(header[:20]):
                    self.assertIn(BODY, self.say(
                        b'GET /page HTTP/1.1\r\n' + header
                        + b'\r\n\r\n'))

    def test_a_long_request_gets_no_answer(self):
        with mock.patch.object(answering, 'PATIENCE', FOR_EVER):
            self.assertEqual(
                self.say(b'GET /' + b'x' * answering.LONGEST), b'')
        self.check_it_answers()


class Hanging(AnsweringTestCase):

    def test_who_hangs_keeps_nobody_from_asking(self):
        self.connect_and_hang(answering.MOST - 1)
        self.check_it_answers()

    def test_who_hangs_makes_room_when_others_wait(self):
        with mock.patch.object(answering, 'GRACE', 0.05), \
                mock.patch.object(answering, 'PATIENCE', FOR_EVER):
            hanging = self.connect_and_hang(answering.MOST - 1)
            more = [self.connect() for _ in range(5)]
            self.check_it_answers()
            # The oldest had to go.
            self.assertEqual(read_to_the_end(hanging[0]), b'')
        del more

    def test_who_hangs_is_closed_in_the_end(self):
        with mock.patch.object(answering, 'PATIENCE', 0.05):
            hanging = self.connect()
            hanging.sendall(REQUEST[:-1])
            self.assertEqual(read_to_the_end(hanging), b'')

    def test_who_does_not_take_the_answer_is_closed_in_the_end(self):
        asked = threading.Event()

        def large(path):
            asked.set()
            return Answer(200, 'text/plain', b'x' * (1 << 24))

        self.answering._answer = large
        with mock.patch.object(answering, 'PATIENCE', 1):
            self.connect().sendall(REQUEST)
            self.assertTrue(asked.wait(PATIENCE))
            until(lambda: not self.answering._open, 'it is over')
        self.answering._answer = PAGES.get
        self.check_it_answers()

    def test_a_hundred_at_once_are_answered_by_one_thread(self):
        before = threading.active_count()
        most = []
        answer = PAGES.get

        def watched(path):
            most.append((len(self.answering._open), threading.active_count()))
            return answer(path)

        self.answering._answer = watched
        connections = [self.connect() for _ in range(100)]
        for connection in connections:
            connection.sendall(REQUEST)
        for connection in connections:
            self.assertIn(BODY, read_to_the_end(connection))
        self.assertEqual(len(most), 100)
        self.assertLessEqual(
            max(open_ones for open_ones, _ in most), answering.MOST)
        self.assertEqual({threads for _, threads in most}, {before})

    def test_it_ends_while_others_hang(self):
        answering = Answering(('127.0.0.1', 0), PAGES.get)
        with socket.create_connection(answering.address, PATIENCE) as hanging:
            until(lambda: answering._open, 'it is accepted')
            Thread(answering.close).result()
            self.assertEqual(read_to_the_end(hanging), b'')

    def test_it_ends_just_when_somebody_connects(self):
        loop = self.answering._loop
        waits, go_on = threading.Event(), threading.Event()

        def wait():
            loop.call_later(0, self.answering._end)  # behind the connection
            waits.set()
            go_on.wait(PATIENCE)

        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter('always', ResourceWarning)
            loop.call_soon_threadsafe(wait)
            self.assertTrue(waits.wait(PATIENCE))
            connection = self.connect()
            go_on.set()
            self.assertEqual(read_to_the_end(connection), b'')
            self.answering._thread.join(PATIENCE)
        self.assertEqual(seen, [])


class Processor(AnsweringTestCase):

    def test_whatever_it_does_is_followed_by_a_rest(self):
        rests = []

        def long(path):
            end = time.thread_time() + 0.05
            while time.thread_time() < end:
                pass
            return PAGES[path]

        self.answering._answer = long
        with mock.patch.object(
                self.answering._loop._selector, '_rest', rests.append):
            self.assertIn(BODY, self.say(REQUEST))
            until(lambda: sum(rests) >= 19 * 0.05, 'it rests')

    def test_its_end_waits_for_no_rest(self):
        closing = Answering(('127.0.0.1', 0), PAGES.get)
        resting = threading.Event()

        def rest(seconds):
            resting.set()
            closing._ending.wait(FOR_EVER)

        closing._loop._selector._rest = rest
        with mock.patch.object(answering, 'MOMENT', 0), \
                socket.create_connection(closing.address, PATIENCE):
            self.assertTrue(resting.wait(PATIENCE))
            Thread(closing.close).result()
