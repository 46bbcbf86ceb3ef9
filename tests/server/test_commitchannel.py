"""The server's end of a commit channel, with a client by hand."""

import socket
import struct
from unittest import mock

from ZEO.asyncio.marshal import decoder
from ZEO.asyncio.marshal import encoder
from ZODB.POSException import POSKeyError
from ZODB.utils import z64

from fsyncstorage.server import frames as server_frames
from fsyncstorage.server import quiet
from fsyncstorage.server.ballot import Ballot
from fsyncstorage.server.door import Full
from fsyncstorage.wire import commits

from ..support import PATIENCE
from ..support import commit
from ..support import oid
from ..support import until
from .serving import Served
from .serving import record

encode = encoder(b'Z5')


class Channel:
    """The channel of a client that speaks ZEO's protocol by hand."""

    def __init__(self, server, zeo):
        about = zeo.call('get_info')['fsyncstorage']
        self.client = commits.Client(about['instance'], about['ticket'])
        self.client.moved()
        self.socket = socket.create_connection(server.addr, PATIENCE)
        self.send = self.socket.sendall
        self.close = self.socket.close
        self.send(self.client.hello)
        assert self.next() == commits.Welcome()

    def next(self):
        """The next message; EOFError when the server has closed."""
        while (event := self.client.next()) is None:
            try:
                more = self.client.fill(self.socket.recv, 1 << 16)
            except ConnectionError:
                more = False
            if not more:
                raise EOFError
        return event

    def begin(self):
        number, frame = self.begun()
        self.send(frame)
        return number

    def begun(self, **changes):
        """The number and the frame of a begin."""
        arguments = dict(id=1, user=b'', description=b'', extension={},
                         tid=None, status=' ') | changes
        return self.client.begin(
            encode(0, True, 'tpc_begin', tuple(arguments.values())))

    def store(self, transaction, number, data, serial=z64):
        self.send(self.client.store(transaction, oid(number), serial, data))

    def call(self, transaction, name, *arguments):
        self.send(self.client.call(
            transaction, encode(0, True, name, arguments)))

    def vote(self, records, serial=z64):
        transaction = self.begin()
        for number, data in records.items():
            self.store(transaction, number, data, serial)
        self.send(self.client.vote(transaction))
        return transaction

    def finish(self, transaction):
        self.send(self.client.finish(transaction))
        while not isinstance(event := self.next(), commits.Done):
            assert isinstance(event, commits.Invalid)
        return event.tid

    def ping(self):
        """What was sent before was processed; there is nothing to be read."""
        number, frame = self.client.ping()
        self.send(frame)
        event = self.next()
        assert event.number == number, event

    def error(self, event):
        _, flag, _, (name, arguments) = decoder(b'Z5')(event.message)
        return name.rpartition('.')[2], arguments


def raw(kind, number, rest=b''):
    return struct.pack('>IBI', 5 + len(rest), kind, number) + rest


class ChannelTestCase(Served):

    def setUp(self):
        super().setUp()
        self.storage = self.open(blob_dir=self.path('blobs'))
        self.server = self.serve(self.storage)
        self.zeo = self.connect(self.server)
        self.channel = Channel(self.server, self.zeo)
        self.addCleanup(self.channel.close)

    def again(self):
        quiet.said._places.clear()
        self.zeo = self.connect(self.server)
        self.channel = Channel(self.server, self.zeo)
        self.addCleanup(self.channel.close)

    def check_nothing_is_left(self):
        stats = self.server.stats['1']
        until(lambda: not stats.active_txns, 'ended')
        commit(self.storage, {1: b'x'}, {1: self.last})

    @property
    def last(self):
        """The serial of the object 1."""
        try:
            return self.storage.load(oid(1))[1]
        except POSKeyError:
            return z64


class Transactions(ChannelTestCase):

    def test_a_commit(self):
        transaction = self.channel.vote({1: b'one', 2: b'two'})
        self.assertEqual(self.channel.next(), commits.Voted(transaction, []))
        tid = self.channel.finish(transaction)
        self.assertEqual(self.storage.load(oid(1)), (b'one', tid))
        self.assertEqual(self.server.stats['1'].commits, 1)
        self.check_nothing_is_left()

    def test_what_others_commit(self):
        other = self.connect(self.server)
        tid = other.commit({1: b'x'})
        self.assertEqual(self.channel.next(), commits.Invalid(tid, [oid(1)]))
        # And nothing on the other connection, but the marker.
        self.zeo.ping()
        self.assertEqual(self.zeo.invalidations, [])

    def test_the_tids_rise(self):
        """Own commits, and those of a stock client, mixed."""
        other = self.connect(self.server)
        tids = []
        for number in range(1, 40, 2):
            transaction = self.channel.vote({number: b'x'})
            other.commit({number + 1: b'x'})
            while isinstance(event := self.channel.next(), commits.Invalid):
                tids.append(event.tid)
            self.channel.send(self.channel.client.finish(transaction))
            while isinstance(event := self.channel.next(), commits.Invalid):
                tids.append(event.tid)
            tids.append(event.tid)
        self.channel.ping()
        self.assertEqual(tids, sorted(set(tids)))
        self.assertEqual(len(tids), 40)

    def test_a_conflict(self):
        commit(self.storage, {1: record(1)})
        self.channel.vote({1: record(2)})
        error = self.channel.next()
        self.assertEqual(self.channel.error(error)[0], 'ConflictError')
        self.check_nothing_is_left()

    def test_a_storage_that_votes_something_else(self):
        """The client gets an answer all the same."""
        with mock.patch.object(Ballot, 'vote_in', return_value=['no oid']):
            transaction = self.channel.vote({1: record(1)})
            error = self.channel.next()
        self.assertEqual(error.number, transaction)
        self.assertIn('CallerError', self.channel.error(error)[0])
        until(lambda: not self.server.stats['1'].active_txns, 'ended')

    def test_all_other_operations(self):
        tid = commit(self.storage, {1: b'one', 2: b'two'})
        transaction = self.channel.begin()
        self.channel.call(transaction, 'deleteObject', oid(1), tid, 7)
        self.channel.call(transaction, 'checkCurrentSerialInTransaction',
                          oid(2), tid, 7)
        self.channel.call(transaction, 'storea', oid(3), '\0' * 8, b'x', 7)
        self.channel.call(transaction, 'storeBlobStart')
        self.channel.call(transaction, 'storeBlobChunk', b'content')
        self.channel.call(transaction, 'storeBlobEnd', oid(4), z64, b'x', 7)
        self.channel.send(self.channel.client.vote(transaction))
        self.assertIsInstance(self.channel.next(), commits.Voted)
        tid = self.channel.finish(transaction)
        with open(self.storage.loadBlob(oid(4), tid), 'rb') as file:
            self.assertEqual(file.read(), b'content')
        transaction = self.channel.begin()
        self.channel.call(
            transaction, 'undoa', self.storage.undoLog()[0]['id'], 7)
        self.channel.send(self.channel.client.vote(transaction))
        self.assertIsInstance(self.channel.next(), commits.Voted)
        self.channel.finish(transaction)
        self.assertEqual(self.storage.load(oid(1))[0], b'one')

    def test_an_abort_in_each_state(self):
        for steps in range(3):
            with self.subTest(steps):
                transaction = self.channel.begin()
                if steps:
                    self.channel.store(transaction, 1, b'x')
                    self.channel.send(self.channel.client.vote(transaction))
                if steps == 2:
                    self.channel.next()
                self.channel.send(self.channel.client.abort(transaction))
                self.assertEqual(
                    self.channel.next(), commits.Aborted(transaction))
                self.assertEqual(self.server.stats['1'].active_txns, 0)
        self.check_nothing_is_left()


class BadInput(ChannelTestCase):

    def check_error(self, event, text):
        name, (found,) = self.channel.error(event)
        self.assertEqual(name, 'StorageTransactionError')
        self.assertIn(text, found)

    def test_a_vote_and_a_finish_for_nothing(self):
        """Such as a vote that is gone: the client waits for an answer."""
        for kind in b'VF':
            self.channel.client._states[7] = commits.VOTING
            self.channel.send(raw(kind, 7))
            self.check_error(self.channel.next(), 'over')
        self.channel.ping()

    def test_a_vote_twice(self):
        transaction = self.channel.vote({1: b'x'})
        self.channel.next()
        self.channel.client._states[transaction] = commits.VOTING
        self.channel.send(raw(ord('V'), transaction))
        self.check_error(self.channel.next(), 'voted')
        self.check_nothing_is_left()

    def test_a_finish_without_a_vote(self):
        transaction = self.channel.begin()
        self.channel.client._states[transaction] = commits.FINISHING
        self.channel.send(raw(ord('F'), transaction))
        self.check_error(self.channel.next(), 'begun')
        self.check_nothing_is_left()

    def check_it_ends(self, *frames):
        with self.assertLogs('fsyncstorage.server', 'ERROR'):
            for frame in frames:
                self.channel.send(frame)
            with self.assertRaises(EOFError):
                while True:
                    self.channel.next()
        self.zeo.wait_for_end()
        self.check_nothing_is_left()

    def test_what_is_no_request(self):
        self.check_it_ends(raw(ord('x'), 1))

    def test_a_store_without_a_begin(self):
        self.check_it_ends(raw(ord('S'), 7, bytes(20)))

    def test_a_call_without_a_begin(self):
        self.check_it_ends(raw(
            ord('C'), 7, encode(0, True, 'storeBlobStart', ())))

    def test_a_begin_twice(self):
        number = self.channel.begin()
        self.check_it_ends(raw(ord('B'), number, encode(
            0, True, 'tpc_begin', (1, b'', b'', {}, None, ' '))))

    def test_a_store_behind_a_vote(self):
        transaction = self.channel.vote({1: b'x'})
        self.channel.next()
        self.check_it_ends(raw(ord('S'), transaction, bytes(20)))

    def test_too_many_transactions(self):
        for _ in range(commits.MOST_OPEN):
            self.channel.begin()
        self.channel.ping()
        self.assertEqual(
            self.server.stats['1'].active_txns, commits.MOST_OPEN)
        self.check_it_ends(self.channel.begun()[1])

    def test_calls_that_are_not_offered(self):
        for name, arguments in (
                ('pack', (0.0, True)), ('tpc_begin', (1, b'', b'', {})),
                ('get_info', ()), ('vote', (1,)), ('__init__', ())):
            with self.subTest(name):
                number = self.channel.begin()
                self.check_it_ends(self.channel.client.call(
                    number, encode(0, True, name, arguments)))
                self.again()

    def test_arguments_of_wrong_types(self):
        for name, arguments in (
                ('restorea', (oid(1), z64, 'text', None, 1)),
                ('deleteObject', (b'short', z64, 1)),
                ('undoa', (b'x' * 2000, 1)),
                ('storeBlobChunk', ('text',)),
                ('storeBlobEnd', (oid(1), z64, b'')),
                ('storeBlobShared', (oid(1), z64, b'', '../x.tmp', 1))):
            with self.subTest(name):
                number = self.channel.begin()
                self.check_it_ends(self.channel.client.call(
                    number, encode(0, True, name, arguments)))
                self.again()

    def test_begins_of_wrong_types(self):
        for changes in (
                dict(user=1), dict(description=None), dict(extension=b'x'),
                dict(tid=b'short'), dict(status='x'), dict(status=None)):
            with self.subTest(changes):
                self.check_it_ends(self.channel.begun(**changes)[1])
                self.again()

    def test_what_is_no_message(self):
        for message in b'', b'.', b'c\n', encode(0, True, 'tpc_begin', 7):
            self.check_it_ends(self.channel.client.begin(message)[1])
            self.again()

    def test_half_a_frame(self):
        with mock.patch.object(server_frames, 'PER_FRAME', 0.05):
            self.check_it_ends(raw(ord('S'), 1, bytes(100))[:50])

    def test_no_descriptors(self):
        """A second transaction may need files of its own."""
        self.channel.begin()
        self.channel.ping()
        with mock.patch.object(self.server.door, 'stay', side_effect=Full):
            self.check_it_ends(self.channel.begun()[1])

    def test_descriptors_are_given_back(self):
        door = self.server.door
        left = door._left
        transactions = [self.channel.begin() for _ in range(5)]
        self.channel.ping()
        self.assertEqual(left - door._left, 8)
        for each in transactions:
            self.channel.send(self.channel.client.abort(each))
            self.channel.next()
        self.assertEqual(door._left, left)


class Ends(ChannelTestCase):

    def test_in_each_state(self):
        for end in 'channel', 'zeo':
            for steps in range(3):
                with self.subTest(end, steps=steps):
                    transaction = self.channel.begin()
                    self.channel.call(transaction, 'storeBlobStart')
                    self.channel.call(transaction, 'storeBlobChunk', b'x')
                    self.channel.store(transaction, 1, b'x')
                    if steps:
                        self.channel.send(
                            self.channel.client.vote(transaction))
                    if steps == 2:
                        self.channel.next()
                    getattr(self, end).close()
                    until(lambda: not self.server.services['1'].sessions,
                          'both have ended')
                    until(lambda: not self.server.stats['1'].active_txns,
                          'aborted')
                    self.again()
        self.check_nothing_is_left()
