"""The server's end of a commit channel, with a client by hand.  Goes with
`server/commitchannel.py`.
"""

import contextlib
import socket
import struct
import threading
from unittest import mock

from ZEO.asyncio.marshal import decoder
from ZEO.asyncio.marshal import encoder
from ZEO.StorageServer import never_resolve_conflict
from ZODB.POSException import POSKeyError
from ZODB.utils import maxtid
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

from fsyncstorage.server import ballot
from fsyncstorage.server import connection
from fsyncstorage.server import door
from fsyncstorage.server import frames as server_frames
from fsyncstorage.server import quiet
from fsyncstorage.server.ballot import Ballot
from fsyncstorage.wire import commits
from fsyncstorage.wire import commitserver
from fsyncstorage.wire import plainbegin

from ..support import PATIENCE
from ..support import Thread
from ..support import commit
from ..support import oid
from ..support import until
from .serving import Served
from .serving import counter
from .serving import record
from .serving import state_of

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

    def begin(self, **changes):
        number, frame = self.begun(**changes)
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

    def stores(self, transaction, records, serial=z64):
        self.send(self.client.stores(transaction, [
            (oid(number), serial, data)
            for number, data in records.items()]))

    def call(self, transaction, name, *arguments):
        self.send(self.client.call(
            transaction, encode(0, True, name, arguments)))

    def vote(self, records, serial=z64, **changes):
        transaction = self.begin(**changes)
        for number, data in records.items():
            self.store(transaction, number, data, serial)
        self.send(self.client.vote(transaction))
        return transaction

    def trip(self, records, serial=z64):
        """A vote that is finished at once."""
        transaction, frames = self.trip_frames(records, serial)
        self.send(frames)
        return transaction

    def trip_frames(self, records, serial=z64):
        transaction, frames = self.begun()
        for number, data in records.items():
            frames += self.client.store(transaction, oid(number), serial, data)
        return transaction, frames + self.client.trip(transaction)

    def done(self):
        """The Done that comes next, but for invalidations."""
        while isinstance(event := self.next(), commits.Invalid):
            pass
        assert isinstance(event, commits.Done), event
        return event

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
        self.disk = self.controlled_disk()
        self.storage = self.open(blob_dir=self.path('blobs'))
        self.server = self.serve(self.storage)
        self.zeo = self.connect(self.server)
        self.channel = Channel(self.server, self.zeo)
        self.addCleanup(self.channel.close)

    def again(self):
        quiet.said.allowances.clear()
        self.zeo = self.connect(self.server)
        self.channel = Channel(self.server, self.zeo)
        self.addCleanup(self.channel.close)

    def in_loop(self, *functions):
        """Call them in one step of the loop; return when that is over."""
        called = threading.Event()

        def call():
            for function in functions:
                function()
            # Behind what was posted meanwhile.
            self.server.mailbox.post(called.set)

        self.server.acceptor.event_loop.call_soon_threadsafe(call)
        self.assertTrue(called.wait(PATIENCE))

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

    def test_many_stores_in_a_frame(self):
        """In memory, and in a file; in the order in which they came."""
        tids = []
        for most in ballot.IN_MEMORY, 10_000, 10:
            with self.subTest(most), \
                    mock.patch.object(ballot, 'IN_MEMORY', most):
                serial = tids[-1] if tids else z64
                transaction = self.channel.begin()
                self.channel.stores(transaction, dict.fromkeys(
                    range(1, 50), b'too early %d' % most), serial)
                self.channel.store(transaction, 50, b'%d' % most, serial)
                for first in 1, 26:
                    self.channel.stores(transaction, {
                        number: b'%d of %d' % (number, most)
                        for number in range(first, first + 25)}, serial)
                self.channel.send(self.channel.client.vote(transaction))
                self.assertIsInstance(self.channel.next(), commits.Voted)
                tids.append(self.channel.finish(transaction))
                for number in range(1, 51):
                    self.assertEqual(
                        self.storage.load(oid(number)),
                        (b'%d of %d' % (number, most), tids[-1]))
        self.assertEqual(self.server.stats['1'].stores, 300)

    def test_a_plain_begin(self):
        """Described by a user and a text; as it is stored."""
        for user, text in (b'', b''), (b'me', b'why'), (bytes(60_000), b''):
            number, begin = self.channel.client.begin(
                plainbegin.pack(user, text), commits.BEGIN_PLAIN)
            self.channel.send(begin)
            self.channel.store(number, 1, b'data', self.last)
            self.channel.send(self.channel.client.trip(number))
            tid = self.channel.done().tid
            found, = self.storage.iterator(tid)
            self.assertEqual((found.user, found.description), (user, text))
            self.assertEqual(found.extension, {})

    def test_plain_begins_that_fail(self):
        """Too long a text: its own vote fails, and no other."""
        client = self.channel.client
        number, begin = client.begin(plainbegin.pack(
            b'', bytes(commitserver.MOST_OF_A_BEGIN + 1)),
            commits.BEGIN_PLAIN)
        with self.assertLogs('fsyncstorage', 'ERROR'):
            self.channel.send(begin + client.vote(number))
            error = self.channel.next()
        self.assertIn('a description of', str(self.channel.error(error)))
        self.test_a_commit()
        self.channel.send(raw(commits.BEGIN_PLAIN, 7, b'\0\5user'))
        with self.assertRaises(EOFError):
            self.channel.next()

    def test_a_trip_whose_client_resolves(self):
        """It stores again, and asks for the same again; or gives up."""
        self.resolve_at_the_client()
        first = commit(self.storage, {1: counter(1)})
        second = commit(self.storage, {1: counter(3)}, {1: first})
        transaction, conflicts = self.trip_that_conflicts(first)
        self.assertEqual(conflicts[0]['serials'], (second, first))
        self.channel.store(transaction, 1, counter(4), second)
        self.channel.send(self.channel.client.trip(transaction))
        self.assertEqual(self.channel.done().oids, [])
        self.assertEqual(state_of(self.storage.load(oid(1))[0]), 4)
        transaction, conflicts = self.trip_that_conflicts(first)
        self.channel.send(self.channel.client.abort(transaction))
        self.assertEqual(self.channel.next(), commits.Aborted(transaction))
        self.check_nothing_is_left()

    def resolve_at_the_client(self):
        for session in self.server.services['1'].sessions:
            session.client_conflict_resolution = True
        self.storage.tryToResolveConflict = never_resolve_conflict

    def trip_that_conflicts(self, serial):
        transaction = self.channel.trip({1: counter(2)}, serial)
        while isinstance(event := self.channel.next(), commits.Invalid):
            pass
        self.assertIsInstance(event, commits.Conflicts)
        return transaction, decoder(b'Z5')(event.message)[3]

    def test_a_storage_that_votes_something_else(self):
        """The client gets an answer all the same."""
        for result in ['no oid'], [None], 7:
            with self.subTest(result), mock.patch.object(
                    Ballot, 'vote', return_value=result):
                for ask in self.channel.vote, self.channel.trip:
                    self.check_an_error_answers(ask, {1: record(1)})

    def check_an_error_answers(self, ask, records):
        with self.assertLogs('fsyncstorage.server.commitchannel', 'ERROR'):
            transaction = ask(records)
            error = self.channel.next()
        self.assertIsInstance(error, commits.Error)
        self.assertEqual(error.number, transaction)
        until(lambda: not self.server.stats['1'].active_txns, 'ended')


class BadInput(ChannelTestCase):

    def check_error(self, event, text):
        name, (found,) = self.channel.error(event)
        self.assertEqual(name, 'StorageTransactionError')
        self.assertIn(text, found)

    def test_a_vote_and_a_finish_for_nothing(self):
        """Such as a vote that is gone: the client waits for an answer."""
        for kind in b'VFT':
            self.channel.client._states[7] = commits.VOTING
            self.channel.send(raw(kind, 7))
            self.check_error(self.channel.next(), 'over')
        self.channel.ping()

    def test_a_step_that_cannot_come_now(self):
        """A vote twice, a trip behind a vote, a finish without a vote."""
        for state, kind, is_voted in (
                (commits.VOTING, 'V', True), (commits.IN_ONE_TRIP, 'T', True),
                (commits.FINISHING, 'F', False)):
            with self.subTest(kind):
                if is_voted:
                    transaction = self.channel.vote({1: b'x'}, self.last)
                    self.channel.next()
                else:
                    transaction = self.channel.begin()
                self.channel.client._states[transaction] = state
                self.channel.send(raw(ord(kind), transaction))
                self.check_error(
                    self.channel.next(), 'voted' if is_voted else 'begun')
                self.channel.close()
                self.check_nothing_is_left()
                self.again()

    def test_a_vote_or_a_finish_behind_a_finish(self):
        """It may be committed: an error would not be true."""
        for kind in b'VFT':
            with self.subTest(chr(kind)):
                before = self.storage.lastTransaction()
                self.disk.hold_again()
                transaction = self.channel.trip({kind: b'x'})
                self.disk.wait_for_sync()
                with self.assertLogs('fsyncstorage.server', 'ERROR'):
                    self.channel.send(raw(kind, transaction))
                    with self.assertRaises(EOFError):
                        self.fail(self.channel.next())
                self.disk.release_syncs()
                until(lambda: self.storage.lastTransaction() > before,
                      'it is committed')
                self.again()

    def test_a_trip_in_the_middle_of_a_blob(self):
        transaction = self.channel.begin()
        self.channel.call(transaction, 'storeBlobStart')
        self.channel.send(self.channel.client.trip(transaction))
        self.check_error(self.channel.next(), 'completely')
        self.check_nothing_is_left()

    def test_an_abort_behind_a_trip(self):
        """While it waits for its objects, too."""
        other = self.connect(self.server)
        other.vote({1: b'x'})
        transaction = self.channel.trip({1: b'y'})
        until(lambda: self.server.services['1'].committer.waiting, 'waits')
        with self.assertLogs('fsyncstorage.server', 'ERROR'):
            self.channel.send(raw(ord('A'), transaction))
            with self.assertRaises(EOFError):
                self.channel.next()
        other.close()
        self.zeo.wait_for_end()
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
        """A kind that there is not, a question about no commit, a store and a
        call without a begin, a begin twice, a store behind a vote."""
        for frame in (raw(ord('x'), 1), raw(ord('Q'), 1, bytes(35)),
                      raw(ord('S'), 7, bytes(20)),
                      raw(ord('C'), 7, encode(
                          0, True, 'storeBlobStart', ())),
                      raw(ord('B'), 1, encode(
                          0, True, 'tpc_begin',
                          (1, b'', b'', {}, None, ' '))),
                      raw(ord('S'), 1, bytes(20))):
            with self.subTest(frame):
                number = self.channel.vote({1: b'x'}, self.last)
                self.assertEqual(self.channel.next(), (number, []))
                self.assertEqual(number, 1)
                self.check_it_ends(frame)
                self.again()

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

    def test_what_is_no_message(self):
        for message in b'', b'.', b'c\n', encode(0, True, 'tpc_begin', 7):
            self.check_it_ends(self.channel.client.begin(message)[1])
            self.again()

    def test_half_a_frame(self):
        with mock.patch.object(server_frames, 'PER_FRAME', 0.05):
            self.check_it_ends(raw(ord('S'), 1, bytes(100))[:50])


class TroubleTestCase(ChannelTestCase):

    @contextlib.contextmanager
    def beside_another(self):
        neighbour = self.channel.vote({9: record()})
        self.assertEqual(self.channel.next(), commits.Voted(neighbour, []))
        yield
        self.channel.send(self.channel.client.abort(neighbour))
        self.assertEqual(self.channel.next(), commits.Aborted(neighbour))
        self.check_nothing_is_left()

    def ask(self, transaction):
        """The error that answers its vote."""
        self.channel.send(self.channel.client.vote(transaction))
        event = self.channel.next()
        self.assertEqual(event.number, transaction)
        return self.channel.error(event)

    def fails_before_its_vote(self):
        return self.assertLogs('fsyncstorage.server.commitchannel', 'ERROR')


class Trouble(TroubleTestCase):
    """That of one transaction is not that of others beside it."""

    def test_arguments_of_wrong_types(self):
        for name, arguments in (
                ('restorea', (oid(1), z64, 'text', None, 1)),
                ('deleteObject', (b'short', z64, 1)),
                ('undoa', (b'x' * 2000, 1)),
                ('storeBlobChunk', ('text',)),
                ('storeBlobEnd', (oid(1), z64, b'')),
                ('storeBlobShared', (oid(1), z64, b'', '../x.tmp', 1)),
                ('storeBlobChunk', (b'without a begin',))):
            with self.subTest(name, arguments=arguments):
                with self.beside_another(), self.assertLogs(level='ERROR'):
                    transaction = self.channel.begin()
                    self.channel.call(transaction, name, *arguments)
                    self.ask(transaction)

    def test_begins_of_wrong_types(self):
        for changes in (
                dict(user=1), dict(description=None), dict(extension=b'x'),
                dict(tid=b'short'), dict(status='x'), dict(status=None)):
            with self.subTest(changes):
                with self.beside_another(), \
                        self.fails_before_its_vote() as logs:
                    transaction, frame = self.channel.begun(**changes)
                    self.channel.send(frame)
                    self.channel.store(transaction, 1, b'x')
                    self.ask(transaction)
                self.assertIsNone(logs.records[0].exc_info)

    def test_many_long_descriptions(self):
        """What those of one client take is bounded, until they are over."""
        before = ballot.kept.memory_only
        with self.beside_another(), mock.patch.object(
                ballot, 'MEMORY_ONLY_OF_ONE', 50000):
            for _ in range(2):
                others = [self.begin_described() for _ in range(4)]
                for each in others[:2]:  # voted: they are still described
                    self.channel.send(self.channel.client.vote(each))
                    self.assertEqual(
                        self.channel.next(), commits.Voted(each, []))
                with self.fails_before_its_vote():
                    self.assertIn('of this client', str(
                        self.ask(self.begin_described())))
                for each in others:
                    self.channel.send(self.channel.client.abort(each))
                    self.assertEqual(
                        self.channel.next(), commits.Aborted(each))
        until(lambda: ballot.kept.memory_only == before, 'given back')

    def begin_described(self):
        number, frame = self.channel.begun(description=bytes(10000))
        self.channel.send(frame)
        return number


class Descriptors(TroubleTestCase):

    def setUp(self):
        super().setUp()
        self.door = self.server.door
        self.channel.ping()
        self.left = self.door._left

    def begin_a_blob(self):
        transaction = self.channel.begin()
        self.channel.call(transaction, 'storeBlobStart')
        self.channel.ping()
        return transaction

    def abort(self, transaction):
        self.channel.send(self.channel.client.abort(transaction))
        self.assertEqual(self.channel.next(), commits.Aborted(transaction))

    def test_none_are_left(self):
        self.door._left = 0
        with self.beside_another():
            with self.fails_before_its_vote():
                transaction = self.begin_a_blob()
            self.assertIn('no descriptors', str(self.ask(transaction)))
            self.assertEqual(self.door._left, 0)

    def test_when_the_client_is_gone(self):
        left = self.door._left
        self.begin_a_blob()
        self.channel.close()
        # Its two connections, and what it might have opened.
        until(lambda: self.door._left
              == left + door.COMMIT_CHANNEL + 1 + door.MOST_STREAMS, 'left')


class Gaps(ChannelTestCase):
    """A client that has missed something must not hear of what came later."""

    level = 2

    def tid(self, number):
        """The tid of a transaction that nobody has committed."""
        return p64(u64(self.server.services['1'].last_tid) + number)

    def announced(self, number):
        """Another server, of which this one is a client, has told of it."""
        return lambda: self.server.invalidate(
            None, '1', self.tid(number), [oid(number)])

    def test_a_stock_client_that_reads_slowly(self):
        """What it has not taken yet is not followed by what came later."""
        peer = self.connect(self.server)
        commit(self.storage, {1: bytes(16 << 20)})  # more than buffers hold
        peer.ask('loadBefore', oid(1), maxtid)
        session = self.server.services['1'].sessions[-1]
        until(lambda: session.connection.account.full, 'it does not read')
        self.in_loop(lambda: self.server._invalidateCache('1'),
                     self.announced(1))
        with contextlib.suppress(ConnectionError):
            while data := peer.socket.recv(1 << 20):
                self.assertNotIn(b'invalidateTransaction', data)


class Ends(ChannelTestCase):

    def test_a_server_that_stops_says_goodbye(self):
        """In each state: nothing of it is committed.  Also of what it has not
        read."""
        begun, voted = self.channel.begin(), self.channel.vote({1: b'x'})
        self.assertEqual(self.channel.next(), commits.Voted(voted, []))
        self.channel.vote({1: b'other'})  # waits for that one
        self.channel.store(begun, 2, b'x')
        self.channel.ping()
        told = self.server.services['1'].sessions[0].announced_on
        self.in_loop(told.transport.pause_reading)
        self.channel.send(self.channel.client.finish(voted))
        self.channel.send(self.channel.client.trip(begun))
        self.server.close()
        self.assertEqual(self.channel.next(), commits.Goodbye())
        with self.assertRaises(EOFError):
            self.channel.next()
        self.assertEqual(len(self.open()), 0)

    def test_a_goodbye_comes_behind_the_answers(self):
        """What is on its way to the disk is finished before."""
        transaction = self.channel.vote({1: record()})
        self.channel.next()
        self.disk.hold_syncs()
        self.channel.send(self.channel.client.finish(transaction))
        self.disk.wait_for_sync()
        closing = Thread(self.server.close)
        until(lambda: self.server._closing, 'it closes')
        self.disk.release_syncs()
        self.assertEqual(self.channel.done().number, transaction)
        self.assertEqual(self.channel.next(), commits.Goodbye())
        closing.result()

    def test_no_goodbye_while_one_is_finishing(self):
        """Nor if it is noted what became of one that was not told."""
        for is_settled in False, True:
            with self.subTest(is_settled=is_settled):
                number = self.channel.vote({1 + is_settled: record()})
                self.channel.next()
                session = self.server.services['1'].sessions[-1]
                channel = session.announced_on.session
                transaction = channel._transactions[number]
                if is_settled:
                    self.in_loop(lambda: transaction.finished(None))
                else:
                    transaction.ballot.state = ballot.FINISHING
                self.in_loop(
                    channel.say_goodbye, channel._connection.close)
                with self.assertRaises(EOFError):
                    self.channel.next()
                transaction.ballot = None
                self.again()

    def test_of_the_connection_while_the_channel_is_not_read(self):
        """What was voted does not wait for what nobody takes."""
        self.channel.vote({1: record()})
        self.channel.next()
        told = self.server.services['1'].sessions[0].announced_on
        if hasattr(socket, 'TCP_USER_TIMEOUT'):  # this would end it, too
            told.transport.get_extra_info('socket').setsockopt(
                socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 0)
        oids = [bytes(8)] * (1 << 20)
        self.in_loop(
            lambda: told.outbox.announce(commitserver.invalid(oid(1), oids)))
        self.assertTrue(told.account.full)
        with mock.patch.object(connection, 'LINGER', 10 * PATIENCE):
            self.zeo.close()
            until(lambda: not self.server.stats['1'].active_txns, 'aborted')
        self.check_nothing_is_left()
