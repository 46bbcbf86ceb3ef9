"""A member that sends anything at all costs a bounded time and memory, and is
Unanswered; the log goes on with the others, and with it when it is well."""

import json
import time
import tracemalloc
import unittest

from fsyncstorage.quorum.etcd import messages
from fsyncstorage.quorum.etcd.trouble import Lost
from fsyncstorage.quorum.log import Unanswered

from ..support import PATIENCE
from .gateway import GatewaysCase
from .logcontract import START
from .logcontract import A
from .logcontract import place
from .samples import LOG

HEAD = b'HTTP/1.1 200 OK\r\n'
CHUNKED = HEAD + b'Transfer-Encoding: chunked\r\n\r\n'


def of_length(body, length=None):
    return HEAD + b'Content-Length: %d\r\n\r\n%s' % (
        len(body) if length is None else length, body)


#: What is sent at once, by what is wrong with it.
SENT = {
    'nothing': b'',
    'no HTTP': b'SSH-2.0-OpenSSH_9.2\r\n',
    'another version of it': b'HTTP/9.9 200 OK\r\n\r\n',
    'a status that is no number': b'HTTP/1.1 xyz OK\r\n\r\n',
    'a long status': b'HTTP/1.1 200 ' + b'x' * 100_000,
    'many headers': HEAD + b'a: b\r\n' * 1000 + b'\r\n',
    'a long header': HEAD + b'a: ' + b'b' * 100_000 + b'\r\n\r\n',
    'a length that is none': HEAD + b'Content-Length: -5\r\n\r\n{}',
    'a huge length': of_length(b'{}', 1 << 60),
    'less than its length': of_length(b'{"header":{}}', 20),
    'no JSON': of_length(b'{"header":'),
    'no object': of_length(b'[]'),
    'no text': of_length(b'{"header": "\xff"}'),
    'NaN': of_length(b'{"header": NaN}'),
    'a float': of_length(b'{"header": 1e999}'),
    'deep JSON': of_length(b'{"kvs":' + b'[' * 60_000),
    'a long number': of_length(b'{"count":' + b'9' * 60_000 + b'}'),
    'a huge chunk': CHUNKED + b'fffffffffffffff\r\n{}',
    'a negative chunk': CHUNKED + b'-1\r\n' + b'x' * 100_000,
    'another negative chunk': CHUNKED + b'-5\r\nxxxxx\r\n',
    'a chunk that is no number': CHUNKED + b'zz\r\n{}\r\n',
    'a chunk that is cut off': CHUNKED + b'14\r\n{"header":',
    'an error that is cut off':
        b'HTTP/1.1 503 no\r\nContent-Length: 60\r\n\r\n{"code"',
    'another place': b'HTTP/1.1 302 there\r\nLocation: http://127.0.0.1:1/\r\n'
                     b'Content-Length: 0\r\n\r\n',
}

#: Answers that are JSON, to any question.
ANSWERS = [
    {'kvs': 7}, {'kvs': [7]}, {'kvs': [{}] * 1000}, {'kvs': [{'key': 7}]},
    {'kvs': [{'key': 'no base64!'}]}, {'kvs': [{'key': 'abc'}]},
    {'kvs': [{'key': '\u20ac'}]}, {'responses': {}}, {'responses': [7, 8, 9]},
    {'responses': [{}] * 3}, {'responses': [{'response_put': {}}] * 3},
    {'responses': [{'response_range': 7}] * 3},
    {'responses': [{'response_range': {'kvs': [{'value': []}]}}] * 3},
    {'header': [], 'succeeded': 'yes'}, {'succeeded': 1},
    {'header': {'revision': '-1'}, 'responses': []},
    {'header': {'revision': '1' * 30}},
    {'header': {'revision': True}}, {'header': {'revision': '\u0663'}},
]


class HostileCase(GatewaysCase):

    patience = 1.5

    def setUp(self):
        super().setUp()
        self.log = self.another()
        self.log.create(LOG)
        self.log.append(START, place(1), b'1')

    def all_send(self, instead):
        for gateway in self.gateways.members:
            gateway.instead = instead

    def bytes_are_sent(self, raw, ends=True):
        def instead(handler, request):
            handler.wfile.write(raw)
            handler.wfile.flush()
            if not ends:
                handler.rfile.read(1)  # until it is closed
            handler.close_connection = True
            return True

        self.all_send(instead)

    def is_well(self):
        self.all_send(None)
        self.assertEqual(self.log.read(1), [b'1'])

    def calls(self):
        """Those that take an answer apart, each in another way."""
        yield 'ends',
        yield 'ends', 1
        yield 'read', 1
        yield 'append', place(1), place(2), b'2'
        yield 'hold', A, 60
        yield 'notes',
        yield 'all_staged',
        yield 'staged', A, 0
        yield 'trim', 1

    def unanswered(self, name, *args):
        with self.assertRaises(Unanswered):
            getattr(self.log, name)(*args)


class AtOnce(HostileCase):

    def test_what_is_no_answer(self):
        for name, raw in SENT.items():
            with self.subTest(name):
                self.bytes_are_sent(raw)
                for call in self.calls():
                    self.unanswered(*call)
                self.unanswered('wait', 2, 0)
                self.is_well()

    def test_what_is_no_answer_of_etcd(self):
        for answer in ANSWERS:
            with self.subTest(answer):
                self.bytes_are_sent(of_length(json.dumps(answer).encode()))
                for call in self.calls():
                    try:
                        getattr(self.log, call[0])(*call[1:])
                    except Unanswered:
                        pass
                self.is_well()

    def test_an_empty_answer(self):
        """All that etcd leaves out: it is no log, and no success."""
        self.bytes_are_sent(of_length(b'{}'))
        for call in ('ends',), ('append', place(1), place(2), b'2'), (
                'hold', A, 60):
            self.unanswered(*call)
        self.is_well()


class InTime(HostileCase):
    """One that waits, or sends a byte now and then."""

    def test_silence(self):
        for raw in b'', HEAD, CHUNKED, of_length(b'{}', 3):
            with self.subTest(raw):
                self.bytes_are_sent(raw, ends=False)
                begin = time.monotonic()
                self.unanswered('ends')
                self.assertLess(time.monotonic() - begin, PATIENCE)
                self.is_well()

    def test_a_byte_now_and_then(self):
        def instead(handler, request):
            handler.wfile.write(CHUNKED)
            while True:
                try:
                    handler.wfile.write(b'1\r\n \r\n')
                except OSError:
                    break
                time.sleep(0.01)
            handler.close_connection = True
            return True

        self.all_send(instead)
        begin = time.monotonic()
        self.unanswered('ends')
        self.assertLess(time.monotonic() - begin, PATIENCE)
        self.is_well()

    def test_one_that_reads_nothing(self):
        """A large question does not get into it."""
        def keep(request, address):
            self.addCleanup(request.close)

        for gateway in self.gateways.members:
            gateway.server.process_request = keep
        log = self.another()
        with self.assertRaises(Unanswered):
            log.stage(A, 0, bytes(1 << 20))


class InMemory(HostileCase):
    """What never ends is cut off."""

    def endless(self, begin, more):
        def instead(handler, request):
            try:
                handler.wfile.write(begin)
                while True:
                    handler.wfile.write(more)
            except OSError:
                handler.close_connection = True
            return True

        self.all_send(instead)

    def test_an_answer_without_end(self):
        chunk = b'10000\r\n' + b' ' * 0x10000 + b'\r\n'
        for begin, more in (
                (CHUNKED, chunk), (CHUNKED + b'-1\r\n', b'x' * 10_000),
                (HEAD, b'a: b\r\n' * 1000),
                (b'', b'HTTP/1.1 100 Continue\r\n\r\n' * 1000),
                (HEAD + b'\r\n', b'x' * 10_000),
                (HEAD + b'Content-Length: %d\r\n\r\n' % (1 << 40),
                 b' ' * 10_000)):
            with self.subTest(begin + more[:10]):
                self.endless(begin, more)
                tracemalloc.start()
                try:
                    for call in ('ends',), ('read', 1), ('wait', 2, 60):
                        self.unanswered(*call)
                    _, peak = tracemalloc.get_traced_memory()
                finally:
                    tracemalloc.stop()
                self.assertLess(peak, 32 << 20)
                self.is_well()

    def test_a_stream_of_notices_without_end(self):
        """None of them is what is waited for: its time comes to an end."""
        def instead(handler, request):
            if handler.path != '/v3/watch':
                return False
            handler.begin_stream()
            handler.send_chunk({'result': {'created': True}})
            try:
                while True:
                    handler.send_chunk({'result': {'events': []}})
            except OSError:
                handler.close_connection = True
            return True

        self.all_send(instead)
        self.log.wait(2, 0.2)
        self.is_well()

    def test_a_notice_without_end(self):
        def instead(handler, request):
            if handler.path != '/v3/watch':
                return False
            handler.begin_stream()
            handler.send_chunk({'result': {'created': True}})
            try:
                while True:
                    handler.wfile.write(b'4\r\n    \r\n')
            except OSError:
                handler.close_connection = True
            return True

        self.all_send(instead)
        self.unanswered('wait', 2, 60)
        self.is_well()


class Fields(unittest.TestCase):
    """What is taken out of an answer."""

    def test_numbers(self):
        for value, found in (
                ('7', 7), (7, 7), (0, 0), (str((1 << 64) - 1), (1 << 64) - 1)):
            self.assertEqual(messages.number({'n': value}, 'n'), found)
        self.assertEqual(messages.number({}, 'n'), 0)
        for value in '-1', -1, 1 << 64, '', '1.0', True, None, [], '9' * 21:
            with self.subTest(value), self.assertRaises(Lost):
                messages.number({'n': value}, 'n')

    def test_a_number_of_more_digits_than_any_of_etcd(self):
        self.assertEqual(messages.parse(b'{"n":%d}' % 10**19), {'n': 10**19})
        with self.assertRaises(Lost):
            messages.parse(b'{"n":%d}' % 10**20)

    def test_data(self):
        self.assertEqual(messages.data({'d': 'AAEC'}, 'd'), b'\0\1\2')
        self.assertEqual(messages.data({}, 'd'), b'')
        for value in 'A', 'AAE', 'AA=E', 'AA\nEC', 'AAE-', 7, None:
            with self.subTest(value), self.assertRaises(Lost):
                messages.data({'d': value}, 'd')
