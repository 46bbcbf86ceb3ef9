"""The server's end of a stream, with a client by hand.  Goes with
`server/oursession.py`.
"""

import collections
import contextlib
import logging
import os
import socket
import struct
import threading
from unittest import mock

from ZEO.StorageServer import never_resolve_conflict
from ZODB.POSException import POSKeyError
from ZODB.utils import maxtid
from ZODB.utils import z64

from fsyncstorage.server import ballot
from fsyncstorage.server import connection
from fsyncstorage.server import door
from fsyncstorage.server import incoming
from fsyncstorage.server import oursession
from fsyncstorage.server import quiet
from fsyncstorage.server.ballot import Ballot
from fsyncstorage.server.server import Server
from fsyncstorage.wire import frames
from fsyncstorage.wire import values

from ..client.talking import Talking
from ..client.talking import connected
from ..client.talking import hello
from ..support import PATIENCE
from ..support import Thread
from ..support import begin
from ..support import commit
from ..support import oid
from ..support import owners
from ..support import until
from .fuzzing import StreamFuzzer
from .serving import counter
from .serving import record
from .serving import state_of

ID = b'id of the commit'


def raw(kind, number, rest=b''):
    """A frame that no client of ours would make."""
    return struct.pack('>IBI', 5 + len(rest), ord(kind), number) + rest


class StreamTestCase(Talking):

    def setUp(self):
        super().setUp()
        self.disk = self.controlled_disk()
        self.storage = self.open(blob_dir=self.path('blobs'))
        self.server = self.serve(self.storage)
        self.again()

    def again(self):
        """Another client, which the log tells of."""
        quiet.said.allowances.clear()
        self.client = os.urandom(16)
        self.stream = self.talk(self.server, hello(self.client))

    @property
    def service(self):
        return self.server.services['1']

    def session(self):
        """Of the stream that was opened last."""
        return self.service.sessions[-1]

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

    def ping(self, stream=None):
        """What was sent before was processed."""
        self.assertIsInstance(
            (stream or self.stream).ask(frames.Ping(0)), frames.Pong)

    def voted(self, records, serial=z64, stream=None, **more):
        stream = stream or self.stream
        number = stream.stored(records, serial, **more)
        self.assertIsInstance(stream.vote(number), frames.Voted)
        return number

    def trip(self, records, stream=None, **more):
        """A trip that is asked for."""
        stream = stream or self.stream
        number = stream.stored(records, **more)
        stream.say(frames.Trip(number))
        return number

    def finishing(self, records, **more):
        """One whose sync has begun, and is held up."""
        self.disk.hold_again()
        number = self.trip(records, **more)
        self.disk.wait_for_sync()
        return number

    def abort(self, number):
        self.stream.say(frames.Abort(number))
        self.assertIsInstance(self.stream.answer(number), frames.Aborted)

    def check_error(self, answer, text, name='StorageTransactionError'):
        self.assertIsInstance(answer, frames.Error)
        self.assertEqual(answer.name.decode().rpartition('.')[2], name)
        self.assertIn(text, str(values.decoded(answer.arguments)))

    def check_ended(self, stream=None):
        with self.assertRaises(ConnectionError):
            while True:
                (stream or self.stream).next()

    def check_nothing_is_left(self):
        stats = self.server.stats['1']
        until(lambda: not stats.active_txns, 'ended')
        commit(self.storage, {1: b'x'}, {1: self.last})
        self.assertEqual(
            os.listdir(self.storage.temporaryDirectory()), [])

    @property
    def last(self):
        """The serial of the object 1."""
        try:
            return self.storage.load(oid(1))[1]
        except POSKeyError:
            return z64


class Answers(StreamTestCase):

    def test_the_welcome(self):
        version, instance, tid, about = self.stream.welcome[1:]
        self.assertEqual(version, frames.HIGHEST)
        self.assertEqual(instance, self.server.instance)
        self.assertEqual(tid, self.storage.lastTransaction())
        self.assertFalse(values.decoded(about, dict)['read_only'])

    def test_bytes_written_by_hand(self):
        """Those of docs/internals/wire.rst."""
        self.stream.socket.sendall(
            bytes.fromhex('00000022 42 00000007') + b'A' * 16 + bytes(8)
            + b' ' + bytes(4)
            + bytes.fromhex('00000018 53 00000007 0000000000000001')
            + bytes(8) + b'abc'
            + bytes.fromhex('00000005 54 00000007'))
        answer = b''
        while len(answer) < 33:
            answer += self.stream.socket.recv(33 - len(answer))
        self.assertEqual(
            answer, bytes.fromhex('0000001d 64 00000007')
            + self.storage.lastTransaction() + (1).to_bytes(8, 'big')
            + self.storage.getSize().to_bytes(8, 'big'))
        self.assertEqual(self.storage.load(oid(1))[0], b'abc')

    def test_a_call_with_something_else(self):
        """The client gets an error, and goes on."""
        answer = self.stream.ask(frames.Call(
            0, b'history', values.encoded(('text', 5))))
        self.assertEqual(answer.name, b'builtins.TypeError')
        self.ping()

    def test_what_has_changed(self):
        first, _, _ = (self.stream.commit({number: b'data'})
                       for number in (1, 2, 3))
        later = self.talk(self.server, hello(tid=first))
        changed = values.decoded(later.welcome.about)['changed']
        self.assertEqual(
            sorted(frames.split(changed)), [oid(2), oid(3)])
        later = self.talk(self.server, hello(tid=b'x' * 8))
        self.assertIsNone(values.decoded(later.welcome.about)['changed'])

    def test_a_blob_from_behind_its_end(self):
        """An error; more of them than blobs that may be sent at once."""
        transaction = begin(self.storage)
        self.store_blob(self.storage, transaction, 1)
        self.storage.tpc_vote(transaction)
        tid = self.storage.tpc_finish(transaction)
        for offset in [8, (1 << 64) - 1] * 20:
            answer = self.stream.ask(
                frames.GetBlob(0, oid(1), tid, offset, 9))
            self.assertEqual(answer.name, b'builtins.ValueError')


class Transactions(StreamTestCase):

    def test_what_is_stored_again(self):
        """In memory, and in a file; the last one counts."""
        serial = z64
        for most in ballot.IN_MEMORY, 10_000, 10:
            with self.subTest(most), \
                    mock.patch.object(ballot, 'IN_MEMORY', most):
                number = self.stream.begin()
                self.stores(number, range(1, 50), b'too early', serial)
                self.stream.say(
                    frames.Store(number, oid(50), serial, b'%d' % most))
                for first in 1, 26:
                    self.stores(number, range(first, first + 25),
                                b'%d' % most, serial)
                serial = self.stream.trip(number).tid
                for each in range(1, 51):
                    self.assertEqual(self.storage.load(oid(each)),
                                     (b'%d' % most, serial))
        self.assertEqual(self.server.stats['1'].stores, 300)
        self.assertEqual(self.server.stats['1'].commits, 3)

    def stores(self, transaction, names, data, serial):
        self.stream.say(frames.Stores(transaction, frames.many(
            [(oid(name), serial, data) for name in names])))

    def test_how_it_is_described(self):
        for user, text, extension in (
                (b'', b'', {}), (b'me', b'why', {'a': [1, None]}),
                (bytes(60_000), b'', {})):
            tid = self.stream.commit(
                {1: b'data'}, self.last, user=user, description=text,
                extension=values.encoded(extension) if extension else b'')
            found, = self.storage.iterator(tid)
            self.assertEqual(
                (found.user, found.description, found.extension),
                (user, text, extension))

    def test_a_trip_whose_client_resolves(self):
        """It stores again, and asks for the same again; or gives up."""
        self.session().client_conflict_resolution = True
        self.storage.tryToResolveConflict = never_resolve_conflict
        first = commit(self.storage, {1: counter(1)})
        second = commit(self.storage, {1: counter(3)}, {1: first})
        number, conflict = self.trip_that_conflicts(first)
        self.assertEqual(conflict['serials'], (second, first))
        self.stream.say(frames.Store(number, oid(1), second, counter(4)))
        self.assertEqual(self.stream.trip(number).oids, b'')
        self.assertEqual(state_of(self.storage.load(oid(1))[0]), 4)
        number, _ = self.trip_that_conflicts(first)
        self.abort(number)
        self.check_nothing_is_left()

    def trip_that_conflicts(self, serial):
        number = self.stream.stored({1: counter(2)}, serial)
        conflicts = self.stream.trip(number)
        self.assertIsInstance(conflicts, frames.Conflicts)
        conflict, = values.decoded(conflicts.conflicts, list)
        return number, conflict

    def test_what_the_server_has_resolved(self):
        first = commit(self.storage, {1: counter(1)})
        commit(self.storage, {1: counter(3)}, {1: first})
        done = self.stream.trip(self.stream.stored({1: counter(2)}, first))
        self.assertEqual(done.oids, oid(1))

    def test_a_storage_that_votes_something_else(self):
        """The client gets an answer all the same."""
        for result in ['no oid'], [None], 7:
            with self.subTest(result), mock.patch.object(
                    Ballot, 'vote', return_value=result):
                for ask in self.stream.vote, self.stream.trip:
                    with self.assertLogs('fsyncstorage.server', 'ERROR'):
                        answer = ask(self.stream.stored({1: record(1)}))
                    self.assertIsInstance(answer, frames.Error)
                    until(lambda: not self.server.stats['1'].active_txns,
                          'ended')


class BadInput(StreamTestCase):

    def test_a_vote_and_a_finish_for_nothing(self):
        """Such as a vote that is gone: the client waits for an answer."""
        for kind in frames.Vote, frames.Finish, frames.Trip:
            self.check_error(self.stream.ask(kind(0)), 'over')
        self.stream.say(frames.Abort(7))
        self.assertIsInstance(self.stream.answer(7), frames.Aborted)

    def test_a_step_that_cannot_come_now(self):
        """A vote twice, a trip behind a vote, a finish without a vote."""
        for kind, is_voted in (
                (frames.Vote, True), (frames.Trip, True),
                (frames.Finish, False)):
            with self.subTest(kind):
                number = self.stream.stored({1: b'x'}, self.last)
                if is_voted:
                    self.stream.vote(number)
                self.stream.say(kind(number))
                self.check_error(self.stream.answer(number),
                                 'voted' if is_voted else 'begun')
                self.check_nothing_is_left()

    def test_a_vote_or_a_finish_behind_a_finish(self):
        """It may be committed: an error would not be true."""
        for at, kind in enumerate(
                (frames.Vote, frames.Finish, frames.Trip, frames.Abort)):
            with self.subTest(kind):
                before = self.storage.lastTransaction()
                number = self.finishing({at: b'x'})
                with self.assertLogs('fsyncstorage.server', 'ERROR'):
                    self.stream.say(kind(number))
                    self.assertRaises(ConnectionError, self.stream.next)
                self.disk.release_syncs()
                until(lambda: self.storage.lastTransaction() > before,
                      'it is committed')
                self.again()

    def test_values_of_many_parts(self):
        """The loop decodes no more of them than of a stock client's."""
        for many in [None] * 10_000, [[] for _ in range(100)]:
            number = self.stream.begin(extension=values.encoded({'': many}))
            self.assertIsInstance(self.stream.vote(number), frames.Error)
            with self.assertLogs('fsyncstorage.server', 'ERROR'):
                self.stream.say(frames.Call(
                    1, b'iterator_gc', values.encoded((many,))))
                self.check_ended()
            self.again()

    def test_a_trip_in_the_middle_of_a_blob(self):
        number = self.stream.begin()
        self.stream.say(frames.BlobBegin(number))
        self.check_error(self.stream.trip(number), 'completely')
        self.check_nothing_is_left()

    def test_an_abort_behind_a_trip(self):
        """While it waits for its objects, too."""
        other = self.talk(self.server)
        self.voted({1: b'x'}, stream=other)
        number = self.trip({1: b'y'})
        until(lambda: self.service.committer.waiting, 'it waits')
        with self.assertLogs('fsyncstorage.server', 'ERROR'):
            self.stream.say(frames.Abort(number))
            self.check_ended()
        other.close()
        self.check_nothing_is_left()

    def check_it_ends(self, *said):
        with self.assertLogs('fsyncstorage.server', 'ERROR'):
            for each in said:
                self.stream.socket.sendall(each)
            self.check_ended()
        self.check_nothing_is_left()

    def test_what_is_out_of_place(self):
        """A kind that there is not, what is too short, what only a server
        says, a hello, a request without a number, an operation without a
        begin, a begin twice, a store behind a vote."""
        begin = frames.Begin(1, ID, z64, b' ', b'', b'', b'')
        for said in (
                raw('x', 1), raw('Q', 1, bytes(20)), raw('V', 1, b'x'),
                frames.frame(frames.Done(1, z64, 0, 0, b'')),
                frames.frame(hello(self.client, 2)),
                frames.frame(frames.Vote(0)),
                frames.frame(frames.Store(7, z64, z64, b'')),
                frames.frame(frames.BlobBegin(7)),
                frames.frame(begin), raw('B', 2, bytes(1 << 19)),
                frames.frame(frames.Stores(7, b'')),
                frames.frame(frames.Store(1, z64, z64, b''))):
            with self.subTest(said[:20]):
                self.assertEqual(self.voted({1: b'x'}, self.last), 1)
                self.check_it_ends(said)
                self.again()

    def test_stores_that_are_none(self):
        for stores in b'', b'\0\0\0\2' + bytes(20), b'\xff' * 100:
            with self.subTest(stores):
                number = self.stream.begin()
                self.check_it_ends(
                    frames.frame(frames.Stores(number, stores)))
                self.again()

    def test_too_many_transactions(self):
        for _ in range(frames.MOST_OPEN):
            self.stream.begin()
        self.ping()
        self.assertEqual(
            self.server.stats['1'].active_txns, frames.MOST_OPEN)
        self.check_it_ends(frames.frame(
            frames.Begin(1000, ID, z64, b' ', b'', b'', b'')))

    def test_calls_that_are_not_offered(self):
        for name, arguments in (
                (b'get_info', ()), (b'tpc_begin', (1, b'', b'', {})),
                (b'register', ('1', False)), (b'vote', (1,)),
                (b'__init__', ()), (b'say_goodbye', ()), (b'\xff', ())):
            with self.subTest(name):
                self.check_it_ends(frames.frame(
                    frames.Call(1, name, values.encoded(arguments))))
                self.again()

    def test_what_is_no_value(self):
        """A call whose arguments are none, or no tuple, or call something."""
        for arguments in (b'', b'.', b'cos\nsystem\n(Vls\ntR.',
                          values.encoded([1]), b'(' * 1000 + b'.'):
            self.check_it_ends(frames.frame(
                frames.Call(1, b'history', arguments)))
            self.again()

    def test_half_a_frame(self):
        with mock.patch.object(incoming, 'PER_FRAME', 0.05):
            self.check_it_ends(raw('S', 1, bytes(100))[:50])

    def test_a_client_that_only_reads(self):
        """It cannot begin a transaction; and cannot end a pack."""
        stream = self.talk(
            self.server, hello(flags=frames.WILL_NOT_WRITE))
        answer = stream.ask(frames.Call(
            0, b'pack_cancel', values.encoded(())))
        self.check_error(answer, '', 'ReadOnlyError')
        with self.assertLogs('fsyncstorage.server', 'ERROR'):
            stream.begin()
            self.check_ended(stream)


class Hellos(StreamTestCase):

    def refused(self, first):
        stream = self.talk(self.server, first)
        self.assertIsInstance(stream.welcome, frames.Refused)
        self.assertRaises(ConnectionError, stream.next)
        return stream.welcome

    def test_another_version(self):
        """Both sides are told which ones there are; also where the rest of
        the hello has another form."""
        later = frames.frame(hello(versions=(7, 9)))
        for said in later, raw('H', 0, later[9:19] + b'something new'):
            with self.assertLogs('fsyncstorage.server', 'WARNING') as logs:
                stream = socket.create_connection(
                    self.server.addr, PATIENCE)
                self.addCleanup(stream.close)
                stream.sendall(said)
                with stream.makefile('rb') as answer:
                    text = answer.read()
            for words in b'versions 1 to 1', b'the client 7 to 9':
                self.assertIn(words, text)
                self.assertIn(words.decode(), logs.output[0])

    def test_versions_that_overlap(self):
        stream = self.talk(self.server, hello(versions=(1, 9)))
        self.assertEqual(stream.welcome.version, frames.HIGHEST)

    def test_what_has_changed_takes_too_long(self):
        """The client is welcomed, and drops its cache."""
        tid = self.stream.trip(self.stream.stored({1: b'x'})).tid
        self.stream.trip(self.stream.stored({2: b'x'}))
        self.patch(self.service, invalidations_since=lambda tid: None,
                   young_enough=lambda tid: True)
        for seconds, changed in (oursession.WELCOME_WITHIN, oid(2)), (0, None):
            self.patch(oursession, WELCOME_WITHIN=seconds)
            stream = self.talk(self.server, hello(tid=tid))
            about = values.decoded(stream.welcome.about)
            self.assertEqual(about['changed'], changed)

    def test_a_storage_that_there_is_not(self):
        refused = self.refused(hello(storage=b'other\xff'))
        self.assertEqual(refused.reason, frames.UNKNOWN_STORAGE)

    def test_where_nobody_can_write(self):
        server = self.serve(self.open('other'), read_only=True)
        self.server = server
        self.assertEqual(self.refused(hello()).reason, frames.READ_ONLY)
        for flags in frames.WILL_NOT_WRITE, frames.TAKES_READ_ONLY:
            stream = self.talk(server, hello(flags=flags))
            about = values.decoded(stream.welcome.about)
            self.assertTrue(about['read_only'])

    def test_what_is_no_hello(self):
        good = frames.frame(hello())
        for said in (good[:4] + b'R' + good[5:],
                     raw('H', 0, frames.MAGIC), raw('H', 0, good[9:-4]),
                     raw('H', 0, good[9:] + b'more')):
            quiet.said.allowances.clear()
            with self.subTest(said), self.assertLogs(
                    'fsyncstorage.server', 'ERROR'):
                stream = socket.create_connection(
                    self.server.addr, PATIENCE)
                self.addCleanup(stream.close)
                stream.sendall(said)
                with stream.makefile('rb') as answer:
                    self.assertNotIn(self.server.instance, answer.read())
        self.ping()

    def test_two_storages_of_one_process(self):
        """Of the same client id, even: neither ends the other."""
        other = self.open('other')
        server = Server(('127.0.0.1', 0), {'1': self.open('one'), '2': other})
        thread = Thread(server.loop)
        self.addCleanup(thread.result)
        self.addCleanup(server.close)
        first = self.talk(server, hello(self.client, 1))
        second = self.talk(server, hello(self.client, 2, storage=b'2'))
        self.ping(first)
        self.ping(second)

    def test_no_descriptors_are_left(self):
        self.server.door._left = door.CLIENT - 1
        with self.assertLogs('fsyncstorage.server', 'ERROR') as logs:
            newer = self.talk(self.server, hello(self.client, 2))
        self.assertEqual(newer.welcome, frames.Refused(
            0, frames.TOO_MANY, b'no descriptors are left'))
        self.assertIn('no descriptors are left', logs.output[0])
        self.assertRaises(ConnectionError, newer.next)
        until(lambda: not self.server.connections, 'both are gone')
        self.assertEqual(self.service.streams._open, {})

    def test_one_of_a_number_that_was_there(self):
        """Or of a lower one: it was delayed, and ends nothing.  When the
        stream has gone, it is welcome."""
        for number in 0, 1:
            self.assertEqual(self.refused(
                hello(self.client, number)).reason, frames.SUPERSEDED)
            self.ping()
        self.stream.close()
        until(lambda: not self.service.sessions, 'it has gone')
        self.ping(self.talk(self.server, hello(self.client, 1)))

    def test_nobody_is_shown_the_id(self):
        """Whoever knows it could end the stream."""
        self.finishing({1: b'x'})
        with self.assertLogs('', 'DEBUG') as logs:
            other = self.talk(self.server)
            status = other.ask(frames.Call(
                0, b'server_status', values.encoded(())))
            self.disk.release_syncs()
            told = other.next()
            self.talk(self.server, hello(self.client, 2))
            self.check_ended()
        shown = b''.join((
            status.result, told.oids, other.welcome.about,
            repr(self.service.status()).encode(),
            '\n'.join(logs.output).encode()))
        for form in self.client, self.client.hex().encode(), repr(
                self.client).encode():
            self.assertNotIn(form, shown)


class Trouble(StreamTestCase):
    """That of one transaction is not that of others beside it."""

    @contextlib.contextmanager
    def beside_another(self):
        neighbour = self.voted({9: record()})
        yield
        self.abort(neighbour)
        self.check_nothing_is_left()

    def fails_before_its_vote(self):
        return self.assertLogs('fsyncstorage.server.session', 'ERROR')

    def test_operations_that_fail(self):
        for message in (
                frames.BlobPiece(0, b'without a begin'),
                frames.BlobEnd(0, oid(1), z64, b'record'),
                frames.BlobByName(0, oid(1), z64, b'../x.tmp', b''),
                frames.BlobByName(0, oid(1), z64, b'\xff.tmp', b''),
                frames.Undo(0, b'nothing')):
            with self.subTest(message), self.beside_another(), \
                    self.assertLogs('fsyncstorage', 'ERROR'):
                number = self.stream.begin()
                self.stream.say(
                    message._replace(number=number),
                    frames.Store(number, oid(1), z64, b'x'))
                self.assertIsInstance(
                    self.stream.trip(number), frames.Error)

    def test_begins_that_fail(self):
        for changes in (dict(extension=b'x'), dict(status=b'x'),
                        dict(extension=values.encoded([])),
                        dict(tid=b'\xff' * 8)):
            with self.subTest(changes), self.beside_another(), \
                    self.fails_before_its_vote():
                number = self.stream.stored({1: b'x'}, **changes)
                self.assertIsInstance(
                    self.stream.vote(number), frames.Error)

    def test_many_long_descriptions(self):
        """What those of one client take is bounded, and those of all, until
        they are over."""
        before = ballot.kept.memory_only
        for name, bound in (('MEMORY_ONLY_OF_ONE', 50000),
                            ('MEMORY_ONLY_OF_ALL', before + 50000)):
            with self.beside_another(), mock.patch.object(ballot, name, bound):
                others = [self.stream.begin(description=bytes(10000))
                          for _ in range(4)]
                for each in others[:2]:  # voted: they are still described
                    self.assertIsInstance(
                        self.stream.vote(each), frames.Voted)
                with self.fails_before_its_vote():
                    answer = self.stream.vote(
                        self.stream.begin(description=bytes(10000)))
                self.assertIn(b'of this client', answer.arguments)
                for each in others:
                    self.abort(each)
        until(lambda: ballot.kept.memory_only == before, 'given back')

    def test_descriptors(self):
        """A transaction takes some when it needs files, and gives them back;
        where none are left, it fails."""
        self.ping()
        left = self.server.door._left
        number = self.begin_a_blob()
        self.assertEqual(
            self.server.door._left, left - door.OF_A_TRANSACTION)
        self.abort(number)
        until(lambda: self.server.door._left == left, 'given back')
        self.begin_a_blob()
        self.stream.close()
        until(lambda: self.server.door._left == left + door.CLIENT, 'gone')

    def test_no_descriptors_are_left(self):
        self.ping()
        with self.beside_another():
            self.server.door._left = 0
            with self.fails_before_its_vote():
                number = self.begin_a_blob()
            self.check_error(self.stream.vote(number), 'no descriptors')

    def begin_a_blob(self):
        number = self.stream.begin()
        self.stream.say(frames.BlobBegin(number))
        self.ping()
        return number


class Asked(StreamTestCase):
    """What became of a commit: its client asks on a later stream."""

    def later(self):
        self.stream = self.talk(self.server, hello(self.client, 2))
        return self.stream

    def ask(self, id=ID):
        self.stream.say(frames.Ask(1000, id, z64))

    def answer(self):
        answer = self.stream.answer(1000)
        return answer.word, answer.tid

    def outcome(self, id=ID):
        self.ask(id)
        return self.answer()

    def check_not_committed(self):
        for _ in range(2):
            self.assertEqual(self.outcome(), (frames.NOT_COMMITTED, z64))

    def test_one_that_waits_for_its_objects(self):
        """A trip whose objects become free later is aborted all the same."""
        other = self.talk(self.server)
        holds = self.voted({1: b'x'}, stream=other)
        self.trip({1: b'y'}, id=ID)
        until(lambda: self.service.committer.waiting, 'it waits')
        self.later()
        self.check_not_committed()
        tid = other.finish(holds).tid
        self.check_not_committed()
        self.assertEqual(self.storage.load(oid(1)), (b'x', tid))

    def test_one_that_a_thread_votes(self):
        votes, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)
        vote = Ballot.vote

        def slowly(ballot, *args, **options):
            votes.set()
            go_on.wait(PATIENCE)
            return vote(ballot, *args, **options)

        with mock.patch.object(Ballot, 'is_light', return_value=False), \
                mock.patch.object(Ballot, 'vote', slowly):
            self.trip({1: b'x'}, id=ID)
            self.assertTrue(votes.wait(PATIENCE))
            self.later()
            self.check_not_committed()
            go_on.set()
            self.check_nothing_is_left()
        self.assertEqual(len(list(self.storage.iterator())), 1)
        self.check_not_committed()

    def test_what_has_come_and_waits_for_its_turn(self):
        """Frames that were received and not processed are dropped."""
        held, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)

        def hold(session, message):
            held.set()
            go_on.wait(PATIENCE)

        later = socket.create_connection(self.server.addr, PATIENCE)
        self.addCleanup(later.close)
        self.assertTrue(later.recv(100))  # the greeting
        with mock.patch.dict(oursession._METHODS, {frames.Ping: hold}), \
                mock.patch.object(connection, 'TURN', 1):
            self.stream.say(
                *[frames.Ping(1)] * 500,
                frames.Begin(7, ID, z64, b' ', b'', b'', b''),
                frames.Store(7, oid(1), z64, b'x'), frames.Trip(7))
            self.assertTrue(held.wait(PATIENCE))
            later.sendall(frames.frame(hello(self.client, 2)))
            go_on.set()
            self.check_ended()
        later.close()
        until(lambda: not self.service.sessions, 'they are gone')
        self.stream = self.talk(self.server, hello(self.client, 3))
        self.check_not_committed()
        self.check_nothing_is_left()
        self.assertEqual(len(list(self.storage.iterator())), 1)

    def test_one_that_is_finishing(self):
        """The answer comes when it is published, behind its announcement."""
        earlier = self.stream
        self.finishing({1: b'x'}, id=ID)
        self.later()
        self.check_ended(earlier)
        self.ask()
        self.ping()
        self.disk.release_syncs()
        word, tid = self.answer()
        self.assertEqual(word, frames.COMMITTED)
        self.assertEqual(
            self.stream.unasked, [frames.Invalid(0, tid, oid(1))])
        self.assertEqual(self.storage.load(oid(1)), (b'x', tid))

    def test_one_that_is_not_appended_yet(self):
        """Its finish is asked for, and waits for its thread."""
        held, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)
        finish = self.storage.tpc_finish

        def slowly(*args):
            held.set()
            go_on.wait(PATIENCE)
            return finish(*args)

        with mock.patch.object(Ballot, 'is_small', False), \
                mock.patch.object(self.storage, 'tpc_finish', slowly):
            self.trip({1: b'x'}, id=ID)
            self.assertTrue(held.wait(PATIENCE))
            self.later()
            self.ask()
            self.stream.ask(frames.Call(0, b'history', values.encoded((
                oid(1), 1))))
            go_on.set()
            word, tid = self.answer()
        self.assertEqual(word, frames.COMMITTED)
        self.assertEqual(self.storage.load(oid(1)), (b'x', tid))

    def test_one_whose_sync_fails(self):
        self.finishing({1: b'x'}, id=ID)
        self.later()
        self.ask()
        with self.assertLogs(level='CRITICAL'):
            self.disk.fail_sync(OSError(5, 'of a test'))
            self.disk.release_syncs()
            self.assertEqual(self.answer(), (frames.UNKNOWN, z64))

    def test_too_many_at_once(self):
        self.finishing({1: b'x'})
        self.later()
        with mock.patch.object(oursession, 'MOST_QUESTIONS', 1):
            self.ask()
            self.ping()
            with self.assertLogs('fsyncstorage.server', 'ERROR'):
                self.stream.say(frames.Ask(1001, ID, z64))
                self.check_ended()
        self.disk.release_syncs()

    def test_the_server_closes(self):
        """No answer is better than a false one: the next server is asked."""
        self.finishing({1: b'x'}, id=ID)
        self.later()
        self.ask()
        self.ping()
        closing = Thread(self.server.close)
        until(lambda: self.server._closing, 'it closes')
        self.disk.release_syncs()
        with self.assertRaises(ConnectionError):
            while True:
                message = self.stream.next()
                if message.__class__ not in (frames.Invalid, frames.Goodbye):
                    self.assertEqual(message.word, frames.COMMITTED)
        closing.result()


class Ends(StreamTestCase):

    def test_a_server_that_stops_says_goodbye(self):
        """In each state: nothing of it is committed.  Also of what it has not
        read."""
        begun, voted = self.stream.begin(), self.voted({1: b'x'})
        self.trip({1: b'other'})  # waits for that one
        self.ping()
        transport = self.session().connection.transport
        self.in_loop(transport.pause_reading)
        self.stream.say(frames.Store(begun, oid(2), z64, b'x'),
                        frames.Trip(begun), frames.Finish(voted))
        self.server.close()
        self.assertEqual(self.stream.next(), frames.Goodbye(0))
        self.assertRaises(ConnectionError, self.stream.next)
        self.assertEqual(len(self.open()), 0)

    def test_a_goodbye_comes_behind_the_answers(self):
        """What is on its way to the disk is finished before."""
        number = self.finishing({1: record()})
        closing = Thread(self.server.close)
        until(lambda: self.server._closing, 'it closes')
        self.disk.release_syncs()
        self.assertIsInstance(self.stream.answer(number), frames.Done)
        self.assertEqual(self.stream.next(), frames.Goodbye(0))
        closing.result()

    def test_of_a_client_that_does_not_read(self):
        """What it has voted does not wait for what nobody takes."""
        self.voted({1: record()})
        told = self.session().connection
        if hasattr(socket, 'TCP_USER_TIMEOUT'):  # this would end it, too
            told.transport.get_extra_info('socket').setsockopt(
                socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 0)
        invalid = frames.frame(frames.Invalid(0, maxtid, bytes(8 << 20)))
        self.in_loop(lambda: told.outbox.announce(invalid))
        self.assertTrue(told.account.full)
        with mock.patch.object(connection, 'LINGER', 10 * PATIENCE):
            self.in_loop(self.session().end)
            until(lambda: not self.server.stats['1'].active_txns, 'aborted')
        self.check_nothing_is_left()


class Rubbish(StreamTestCase):
    """Of peers that come and go, nothing is left; and the others commit.

    (Memory, and what they might run, is in test_server_frames.)
    """

    level = 2
    count = 200
    # Peers that are there at the same time.
    at_once = 5

    def test_peers(self):
        self.serial = self.stream.commit({100: record()})
        left, kept = self.server.door._left, ballot.kept.memory_only
        over = threading.Event()

        def go_on():
            while not over.is_set():
                self.serial = self.stream.commit({100: record()}, self.serial)

        with self.assertNoLogs('asyncio', 'ERROR'), \
                self.assertNoLogs('fsyncstorage.server.threads', 'ERROR'), \
                self.silence():
            honest = Thread(go_on)
            try:
                self.send(StreamFuzzer(1, None))
            finally:
                over.set()
                honest.result()
            until(lambda: self.server.door._left == left, 'they are gone')
        # What they had sent may be a commit.
        until(lambda: len(self.service.sessions) == 1, 'all is done')
        self.check_nothing_is_left()
        self.assertEqual(owners(self.storage._turns), 0)
        self.assertEqual(self.storage._begun, {})
        self.assertEqual(
            (ballot.kept.bytes, ballot.kept.memory_only), (0, kept))
        self.assertEqual(list(self.service.streams._open), [self.client])
        self.assertTrue(self.service.streams.are_settled(self.client))
        self.assertEqual(len(self.server.tallies), 1)

    @contextlib.contextmanager
    def silence(self):
        """What is said of them would fill the screen."""
        with contextlib.ExitStack() as stack:
            for name in ('fsyncstorage.server.connection',
                         'ZEO.StorageServer.session', 'ZEO.StorageServer',
                         'fsyncstorage.server.oursession',
                         'fsyncstorage.server.service'):
                stack.enter_context(mock.patch.object(
                    logging.getLogger(name), 'disabled', True))
            yield

    def send(self, fuzzer):
        there = collections.deque()
        for _ in range(self.count):
            peer = connected(self.server.addr)
            there.append(peer)
            with contextlib.suppress(ConnectionError):
                peer.sendall(fuzzer.conversation())
            if len(there) == self.at_once:
                there.popleft().close()
        for peer in there:
            peer.close()


class ManyRubbish(Rubbish):

    level = 3
    count = 20_000
