"""The log on etcd, whose members send anything at all.  Goes with
`quorum/etcd/member.py` and `quorum/etcd/messages.py`.
"""

import socketserver
import threading

from fsyncstorage.quorum.etcd.engine import EtcdLog
from fsyncstorage.quorum.etcd.member import LONGEST
from fsyncstorage.quorum.etcd.settings import Settings
from fsyncstorage.quorum.etcd.settings import address
from fsyncstorage.quorum.log.interface import Unanswered

from ..support import PATIENCE
from ..support import TestCase
from .gateway import WATCH
from .gateway import GatewaysCase
from .gateway import notice
from .logcontract import START
from .logcontract import A
from .logcontract import place
from .samples import LOG


def varint(number):
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes(found + bytes([number]))


def message(*fields):
    """Of pairs: a number, and what is under it."""
    return b''.join(
        varint(number << 3) + varint(value) if type(value) is int
        else varint(number << 3 | 2) + varint(len(value)) + value
        for number, value in fields)


#: In the place of an answer to any question.
ANSWERS = [
    b'\xff' * 20, b'\x0a', b'\x0a\x05abc', b'\x0b', b'\x0c', b'\x0d\0',
    b'\x09',
    b'\x10' + b'\xff' * 11, b'\x10' + b'\xff' * 9 + b'\x7f', b'\0\0',
    message((2, 7)), message((2, b'\xff')), message(*[(2, b'')] * 9000),
    message((2, message((1, 7)))), message((2, message((1, b'\xff\xfe')))),
    message((2, message((1, b'a'), (1, b'b')))),
    message((3, b'')), message((3, 7)), message(*[(3, b'')] * 3),
    message(*[(3, message((2, b'')))] * 3),
    message(*[(3, message((1, 7)))] * 3),
    message(*[(3, message((1, message((2, message((5, 7)))))))] * 3),
    message((1, 7), (2, 2)), message((2, 1), (2, 1)),
    message((1, message((3, b'')))), message((1, message((3, 1 << 63)))),
    message((1, b'\xff')), message(*[(9, b'')] * 30_000),
]


class Calls:
    """Those that take an answer apart, each in another way."""

    CALLS = (
        ('ends',), ('ends', 1), ('read', 1),
        ('append', place(1), place(2), b'2'), ('hold', A, 60), ('notes',),
        ('all_staged',), ('staged', A, 0), ('trim', 1))

    def unanswered(self, name, *args):
        with self.assertRaises(Unanswered) as raised:
            getattr(self.log, name)(*args)
        return str(raised.exception)


class HostileCase(Calls, GatewaysCase):

    patience = 1.5

    def setUp(self):
        super().setUp()
        self.log = self.another()
        self.log.create(LOG)
        self.log.append(START, place(1), b'1')

    def all_send(self, instead):
        for gateway in self.gateways.members:
            gateway.instead = instead

    def is_well(self):
        self.all_send(lambda call: None)
        self.assertEqual(self.log.read(1), [b'1'])


class Answers(HostileCase):

    level = 2

    def test_what_is_no_answer_of_etcd(self):
        """Nothing but Unanswered comes of it, or what a member may say."""
        for answer in ANSWERS:
            with self.subTest(answer[:30]):
                self.all_send(lambda call: [answer])
                for name, *args in self.CALLS:
                    try:
                        getattr(self.log, name)(*args)
                    except Unanswered:
                        pass
                self.is_well()

    def test_another_number_of_answers(self):
        self.all_send(lambda call: [])
        for call in *self.CALLS, ('wait', 2, 0.1):
            self.unanswered(*call)
        self.is_well()

    def test_one_that_is_too_long(self):
        self.all_send(lambda call: [bytes(LONGEST + 1)])
        self.assertIn('larger than max', self.unanswered('ends'))
        self.is_well()


class InTime(HostileCase):

    def test_silence(self):
        def instead(call):
            call.wait_for_the_end()
            return []

        self.all_send(instead)
        self.assertIn('in time', self.unanswered('ends'))
        self.is_well()

    def test_a_stream_of_notices_without_end(self):
        """None of them is what is waited for: its time comes to an end."""
        def instead(call):
            return notices(call) if call.path == WATCH else None

        def notices(call):
            yield notice(created=True)
            while not call.has_ended:
                yield notice()

        self.all_send(instead)
        self.log.wait(2, 0.2)
        self.is_well()


#: What is sent at once, in the place of HTTP/2, by what is said of it.
NO_HTTP = {
    'no connection': b'SSH-2.0-OpenSSH_9.2\r\n',
    'no etcd': b'HTTP/1.1 400 Bad Request\r\n\r\n',
}


class Server(socketserver.ThreadingTCPServer):

    daemon_threads = False
    said = b''

    def __init__(self):
        super().__init__(('127.0.0.1', 0), Handler)
        self.over = threading.Event()
        self.thread = threading.Thread(
            target=self.serve_forever, args=(0.02,))
        self.thread.start()

    def close(self):
        self.over.set()
        self.shutdown()
        self.server_close()
        self.thread.join()


class Handler(socketserver.BaseRequestHandler):

    def handle(self):
        if self.server.said is None:
            self.server.over.wait(PATIENCE)
        else:
            self.request.recv(1)
            self.request.sendall(self.server.said)


class NoEtcd(Calls, TestCase):
    """Something else has these addresses."""

    def setUp(self):
        super().setUp()
        self.servers = []
        for _ in range(3):
            server = Server()
            self.addCleanup(server.close)
            self.servers.append(server)

    def begin(self, said):
        for server in self.servers:
            server.said = said
        self.log = EtcdLog(Settings([
            address('http://127.0.0.1:%d' % server.server_address[1])
            for server in self.servers], 'test'))
        self.addCleanup(self.log.close)

    def test_what_is_no_http_2(self):
        for words, said in NO_HTTP.items():
            with self.subTest(words):
                self.begin(said)
                self.assertIn(words, self.unanswered('ends'))

    def test_one_that_reads_nothing(self):
        """A large question does not get into it."""
        self.begin(None)
        self.log.cluster.patience = 0.6
        self.assertIn(
            'in time', self.unanswered('stage', A, 0, bytes(1 << 20)))
