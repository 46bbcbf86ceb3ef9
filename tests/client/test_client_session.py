"""The client that speaks one protocol: what it promises to ZODB."""

import contextlib
import gc
import os
import socket
import threading
from unittest import mock

from ZEO.Exceptions import ClientDisconnected
from ZEO.Exceptions import ServerException
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import ReadOnlyError
from ZODB.utils import maxtid
from ZODB.utils import p64
from ZODB.utils import z64

from fsyncstorage.client import commit as commits
from fsyncstorage.client import failover
from fsyncstorage.client.failover import Failover
from fsyncstorage.client.failover import NoServer
from fsyncstorage.client.failover import opened
from fsyncstorage.client.raised import exception
from fsyncstorage.client.readers import Readers
from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.errors import OutcomeUnknown
from fsyncstorage.server.server import Server
from fsyncstorage.wire import frames
from fsyncstorage.wire import values

from ..server.serving import record
from ..support import PATIENCE
from ..support import TestCase
from ..support import Thread
from ..support import in_a_child
from ..support import interrupt
from ..support import name_of_error
from ..support import oid
from ..support import until
from .talking import ByHand
from .talking import Talking
from .talking import hello


class ClientCase(Talking):

    def setUp(self):
        super().setUp()
        self.storage = self.open()
        self.server = self.serve(self.storage)

    def connect(self, server=None, **options):
        return self.connect_to((server or self.server).addr, **options)

    def connect_to(self, address, **options):
        client = FsyncClient(address, **options)
        self.addCleanup(client.close)
        return client

    def end_stream(self, client):
        """Return when the client has another one."""
        stream = client._failover.stream
        stream.end('the test wants it')
        return client._failover.wait(PATIENCE, beyond=stream)

    def commit(self, client, records, serial=z64, **more):
        txn = TransactionMetaData(**more)
        client.tpc_begin(txn)
        for number, data in records.items():
            client.store(oid(number), serial, data, '', txn)
        client.tpc_vote(txn)
        return client.tpc_finish(txn)


class Commits(ClientCase):

    def test_more_than_may_be_open(self):
        """One waits until another ends, and says so."""
        self.patch(frames, MOST_OPEN=1)
        self.patch(commits, SILENT_WAIT=.01)
        client = self.connect()
        txn = TransactionMetaData()
        client.tpc_begin(txn)
        client.store(oid(1), z64, b'first', '', txn)
        client.tpc_vote(txn)
        with self.assertLogs(commits.__name__, 'WARNING') as logged:
            waiting = Thread(self.commit, client, {2: b'second'})
            until(lambda: logged.output, 'the warning')
        self.assertIn('a commit waits', logged.output[0])
        self.assertLess(client.tpc_finish(txn), waiting.result())


class Database:
    """One that is not ZODB's."""

    def __init__(self, invalidate):
        self.invalidate = invalidate

    def invalidateCache(self):
        pass

    def transform_record_data(self, data):
        return data

    untransform_record_data = transform_record_data


class Iterators(ClientCase):

    def test_one_ends_with_its_stream(self):
        """On the next one, its number may name another iterator."""
        client = self.connect()
        for number in range(1, 4):
            self.commit(client, {number: b'data'})
        old = client.iterator()
        next(old)
        self.end_stream(client)
        new = client.iterator()
        self.assertRaises(ClientDisconnected, next, old)
        del old
        self.assertEqual(len(list(new)), 3)

    def test_the_garbage_collector_closes_one(self):
        """In the thread that reads the stream; the server hears of it."""
        client, other = self.connect(server_timeout=None), self.connect()
        self.commit(client, {1: b'data'})
        cycle = [client.iterator()]
        cycle.append(cycle)
        del cycle
        client.registerDB(Database(lambda *_: gc.collect()))
        self.commit(other, {2: b'data'})
        Thread(client.ping).result()
        self.assertEqual(len(list(client.iterator())), 2)


class Servers(ClientCase):
    """That go, and come back."""

    def restart(self, address, storage):
        server = Server(address, {'1': storage})
        thread = Thread(server.loop)
        self.addCleanup(thread.result)
        self.addCleanup(server.close)
        return server

    def test_a_begin_waits_for_it(self):
        client = self.connect()
        address = self.server.addr
        self.server.close()
        until(lambda: not client.is_connected(), 'that it has gone')
        committing = Thread(self.commit, client, {1: b'data'})
        self.restart(address, self.open())
        committing.result()

    def test_no_server(self):
        client = self.connect(wait_timeout=.1)
        self.server.close()
        until(lambda: not client.is_connected(), 'that it has gone')
        self.assertRaises(ClientDisconnected, client.loadBefore, oid(1),
                          maxtid)
        self.assertRaises(ClientDisconnected, self.commit, client, {1: b''})

    def test_an_address_that_is_none(self):
        """The others are tried all the same."""
        with self.assertLogs(failover.__name__, 'WARNING') as logged:
            client = self.connect_to([('a', 'b', 'c'), self.server.addr])
        self.commit(client, {1: record()})
        line, = logged.output
        self.assertIn('unpack', line)

    def test_a_persistent_cache(self):
        """Verified by what has changed since."""
        self.check_what_is_kept(self.server)

    def test_a_persistent_cache_that_was_away_for_long(self):
        """What has changed is in the file."""
        self.check_what_is_kept(self.serve(
            self.open('other.fs'), invalidation_queue_size=1,
            invalidation_age=3600))

    def check_what_is_kept(self, server):
        client = self.connect(server, cache=self.path('kept'))
        tid = self.commit(client, {1: b'one', 2: b'two'})
        client.close()
        other = self.connect(server)
        self.commit(other, {2: b'more'}, tid)
        later = self.commit(other, {3: b'three'})
        client = self.connect(server, cache=self.path('kept'))
        self.assertEqual(client.lastTransaction(), later)
        loads = server.services['1'].stats.loads
        self.assertEqual(client.loadBefore(oid(1), maxtid)[0], b'one')
        self.assertEqual(server.services['1'].stats.loads, loads)
        self.assertEqual(client.loadBefore(oid(2), maxtid)[0], b'more')

    def test_oids_of_an_earlier_run(self):
        """They came as the stream ended, and may belong to others by now."""
        client = self.connect()
        call, answers = client._call, []

        def call_before_a_restart(method):
            answers.append(call(method))
            if len(answers) == 1:
                self.end_stream(client)
            return answers[-1]

        self.patch(client, _call=call_before_a_restart)
        self.assertNotIn(client.new_oid(), answers[0])

    def test_a_fork(self):
        """It uses none of the connections of its parent."""
        client = self.connect()
        self.commit(client, {1: b'data'})
        for use in (client.ping, lambda: client.prefetch([oid(2)], maxtid),
                    lambda: client.loadBefore(oid(2), maxtid)):
            self.assertEqual(in_a_child(name_of_error, use),
                             'ClientDisconnected')
        stream = client._failover.stream
        in_a_child(name_of_error, client.new_addr, self.server.addr)
        client.ping()
        self.assertIs(client._failover.stream, stream)

    def test_read_only(self):
        server = self.serve(self.open('ro.fs'), read_only=True)
        with self.assertRaises(ClientDisconnected):
            self.connect(server, wait_timeout=.2)
        client = self.connect(server, read_only_fallback=True)
        self.assertTrue(client.isReadOnly())
        self.assertRaises(
            ReadOnlyError, client.tpc_begin, TransactionMetaData())

    def test_closed_while_threads_wait(self):
        client = self.connect(wait_timeout=60)
        self.server.close()
        until(lambda: not client.is_connected(), 'that it has gone')
        threads = [Thread(client.loadBefore, oid(1), maxtid),
                   Thread(self.commit, client, {1: b'data'})]
        client.close()
        for thread in threads:
            self.assertRaises(ClientDisconnected, thread.result)

    def test_without_readers(self):
        """A load would wait for one for ever."""
        self.assertRaises(ValueError, self.connect, read_channels=0)

    def test_nothing_is_left_behind(self):
        before = threading.active_count()
        with contextlib.closing(self.connect()) as client:
            self.commit(client, {1: record()})
            client.loadBefore(oid(1), z64)
        self.assertEqual(threading.active_count(), before)


class Hostile(ClientCase):
    """Servers that the test plays, or that answer wrongly."""

    def play(self, serve, greeting=b'\0\0\0\x09Z5+fsync1'):
        """The address of a server; `serve(far)` is called for each hello."""
        listener = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(listener.close)

        def run():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection, contextlib.suppress(EOFError):
                        connection.sendall(greeting)
                        connection.settimeout(PATIENCE)
                        far = ByHand(connection)
                        serve(far, far.next())

        thread = Thread(run)
        self.addCleanup(thread.result)
        self.addCleanup(listener.shutdown, socket.SHUT_RDWR)
        return listener.getsockname()

    def welcome(self, far, tid=z64, instance=bytes(16), **about):
        far.say(frames.Welcome(0, 1, instance, tid, values.encoded(
            {'changed': b'', **about})))

    def test_a_welcome_that_cannot_be_used(self):
        """Of the same run, and yet behind; the next one will do."""
        tids = [p64(9), p64(7), p64(9)]
        registered = threading.Event()

        def serve(far, hello):
            self.welcome(far, tids.pop(0))
            registered.wait(PATIENCE)
            if not tids:
                far.next()

        client = self.connect_to(self.play(serve))
        client.registerDB(Database(lambda *_: None))
        registered.set()
        until(lambda: not tids and client.is_connected(), 'the server')

    def test_a_welcome_byte_by_byte(self):
        """All of it has to be there in time."""
        ended = threading.Event()
        self.addCleanup(ended.set)

        def serve(far, _):
            with contextlib.suppress(OSError):
                far.socket.sendall(b'\0\1\0\0')
                for _ in range(100):
                    ended.wait(.05)
                    far.socket.sendall(b'W')

        self.patch(failover, WELCOME_WITHIN=.5)
        with self.assertRaisesRegex(NoServer, 'within|timed out'):
            opened(self.play(serve), None, None, hello(), PATIENCE)

    def test_a_server_of_stock(self):
        """It is said once what to do: the client waits for another one."""
        hellos = []
        with self.assertLogs(failover.__name__, 'WARNING') as logged:
            self.connect_to(self.play(
                lambda far, hello: hellos.append(hello),
                b'\0\0\0\2Z5'), wait=False)
            until(lambda: len(hellos) > 2, 'three rounds')
        line, = logged.output
        self.assertIn('it is a stock server', line)
        self.assertIn('server-kind', line)

    def test_a_server_that_always_ends_the_stream(self):
        """It is not asked without a pause."""
        pauses, hellos = [], []
        pause = Failover._pause

        def pauses_too(failover, rounds):
            pauses.append(rounds)
            pause(failover, rounds)

        def serve(far, hello):
            hellos.append(hello)
            self.welcome(far)

        self.patch(Failover, _pause=pauses_too)
        self.connect_to(self.play(serve), wait=False)
        until(lambda: len(hellos) > 4, 'the hellos')
        self.assertGreaterEqual(len(pauses), 4)

    def test_closed_while_a_server_says_nothing(self):
        self.patch(failover, WELCOME_WITHIN=2 * PATIENCE, END_WITHIN=PATIENCE)
        listener = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(listener.close)
        before = threading.active_count()
        client = FsyncClient(listener.getsockname(), wait=False)
        connection, _ = listener.accept()
        self.addCleanup(connection.close)
        until(lambda: client._failover._opening, 'the connection')
        client.close()
        self.assertEqual(threading.active_count(), before)

    def test_what_is_said_in_the_place_of_a_conflict(self):
        """The vote fails as if the connection were lost, which it is then."""
        for wrong in (values.encoded([{}]), values.encoded({}), b'rubbish',
                      values.encoded([]), values.encoded([[]]),
                      values.encoded([
                          {'oid': oid(1), 'serials': 1, 'data': b''}])):
            def serve(far, hello):
                self.welcome(far)
                vote = far.next()
                while vote.__class__ is not frames.Vote:
                    vote = far.next()
                far.say(frames.Conflicts(vote.number, wrong))  # noqa: B023
                far.next()

            client = self.connect_to(self.play(serve))
            stream = client._failover.stream
            self.assertRaises(
                ClientDisconnected, self.commit, client, {1: b'data'})
            self.assertRaises(ClientDisconnected, stream.check)
            client.close()

    def test_an_error_runs_no_code(self):
        """A ConflictError that is called would unpickle its last argument."""
        ran = self.path('ran')
        record = b'N0cos\nmkdir\n(V' + ran.encode() + b'\ntR.'
        arguments = 'a text', None, None, None, record
        error = exception(frames.Error(
            1, b'ZODB.POSException.ConflictError', values.encoded(arguments)))
        self.assertEqual(error.args, arguments)
        self.assertFalse(os.path.exists(ran))

    def test_an_error_that_cannot_be_read(self):
        error = exception(frames.Error(1, b'builtins.ValueError', b'rubbish'))
        self.assertIsInstance(error, ServerException)

    def test_an_outcome_that_comes_too_late(self):
        """Nothing is told to a thread that has given up."""
        asked, go_on, told = threading.Event(), threading.Event(), []

        def serve(far, hello):
            self.welcome(far)
            if hello.stream == 1:
                while (message := far.next()).__class__ is not frames.Trip:
                    if message.__class__ is frames.Vote:
                        far.say(frames.Voted(message.number, b''))
                    if message.__class__ is frames.Finish:
                        return
            question = far.next()
            asked.set()
            go_on.wait(PATIENCE)
            far.say(frames.Invalid(0, p64(7), oid(1)),
                    frames.Outcome(question.number, frames.COMMITTED, p64(7),
                                   b''),
                    frames.Invalid(0, p64(8), oid(1)))
            far.next()

        client = self.connect_to(self.play(serve), wait_timeout=1,
                                 server_timeout=None)
        txn = TransactionMetaData()
        client.tpc_begin(txn)
        client.store(oid(1), z64, b'data', '', txn)
        client.tpc_vote(txn)
        self.assertRaises(OutcomeUnknown, client.tpc_finish, txn, told.append)
        self.assertTrue(asked.is_set())
        go_on.set()
        until(lambda: client.lastTransaction() == p64(8), 'what came behind')
        self.assertEqual(told, [])

    def test_a_question_without_an_answer(self):
        """The outcome of a commit is then unknown."""
        def serve(far, hello):
            self.welcome(far)
            far.socket.settimeout(None)
            while (message := far.next()).__class__ is not frames.Finish:
                if message.__class__ is frames.Vote:
                    far.say(frames.Voted(message.number, b''))

        client = self.connect_to(self.play(serve), wait_timeout=2,
                                 server_timeout=None)
        committing = Thread(self.commit, client, {1: b'data'})
        self.assertRaises(OutcomeUnknown, committing.result)


class SeveralThreads(TestCase):

    def test_an_interrupt_while_it_waits_for_a_reader(self):
        """Another thread that waits gets it."""
        readers = Readers('', 1, lambda within: mock.Mock())
        reader = readers.take()
        waiting = []
        for number in range(2):
            waiting.append(Thread(readers.take))
            until(lambda: len(readers._changed._waiters) > number, 'it waits')
        interrupt(waiting[0])
        readers.give_back(reader)
        self.assertRaises(KeyboardInterrupt, waiting[0].result)
        self.assertIs(waiting[1].result(), reader)
