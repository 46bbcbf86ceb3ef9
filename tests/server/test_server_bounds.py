"""What a peer costs at most, and what the others notice of it."""

import contextlib
import errno
import functools
import gc
import logging
import os
import socket
import struct
import threading
import time
import unittest
import weakref
from base64 import decodebytes
from unittest import mock

from ZODB.POSException import POSKeyError
from ZODB.TimeStamp import TimeStamp
from ZODB.utils import maxtid
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

from fsyncstorage.server import accounts
from fsyncstorage.server import ballot
from fsyncstorage.server import connection
from fsyncstorage.server import door
from fsyncstorage.server import incoming
from fsyncstorage.server import listening
from fsyncstorage.server import listing
from fsyncstorage.server import quiet
from fsyncstorage.server import session
from fsyncstorage.server import workers
from fsyncstorage.wire import frames

from ..client.talking import Talker
from ..support import PATIENCE
from ..support import Thread
from ..support import commit
from ..support import oid
from ..support import until
from . import zeowire
from .oneserver import OneServerTestCase
from .serving import ErrorReply
from .serving import Peer
from .serving import record

try:
    import uvloop
except ImportError:
    uvloop = None

LOG = 'fsyncstorage.server'

linux = unittest.skipUnless(
    hasattr(socket, 'TCP_USER_TIMEOUT'), 'the system has no such option')


class BoundsTestCase(OneServerTestCase):

    def setUp(self):
        super().setUp()
        self.tid = commit(self.storage, {1: b'one'})
        self.serve()

    def connect(self, handshake=True):
        """A socket, which has shaken hands or not."""
        one = socket.create_connection(self.server.acceptor.addr, PATIENCE)
        self.addCleanup(one.close)
        if handshake:
            one.sendall(zeowire.frame(zeowire.HANDSHAKE))
        return one

    def client(self):
        peer = Peer(self.server.acceptor.addr)
        self.addCleanup(peer.close)
        return peer

    def peer(self):
        """One of ours, which has a stream."""
        stream = Talker(self.server.acceptor.addr, tls=self.tls)
        self.addCleanup(stream.close)
        return stream

    def open_blobs(self):
        """The files of blobs that this process has open."""
        found = []
        for number in os.listdir('/proc/self/fd'):
            with contextlib.suppress(FileNotFoundError):
                name = os.readlink(f'/proc/self/fd/{number}')
                if name.startswith(self.path('blobs')):
                    found.append(name)
        return found

    def until_closed(self, one):
        try:
            while one.recv(1 << 16):
                pass
        except ConnectionError:
            pass

    def connections(self):
        return self.in_loop(lambda: len(self.server.connections))

    def until_nothing_moves(self, look):
        """What `look` sees has been the same for a while."""
        looks = []

        def the_same():
            looks.append(self.in_loop(look))
            return len(looks) > 50 and looks[-50:] == 50 * looks[-1:]

        until(the_same, 'nothing moves')


class Unread(BoundsTestCase):
    """Answers that the peer does not take."""

    level = 2

    SIZE = 4 << 20
    #: Some times more than what is on its way, or waits for it, at once.
    ASKED = 25

    def setUp(self):
        super().setUp()
        self.looked_up = 0
        self.patch(self.storage, loadBefore=self.load)
        self.patch(self.storage, loadSerial=self.load)
        self.nothing_is_cached()

    def load(self, oid, tid):
        self.looked_up += 1
        data = bytes(self.SIZE)
        return data if tid == self.tid else (data, self.tid, None)

    def check(self):
        self.until_nothing_moves(lambda: self.looked_up)
        # What was under way when the first one filled all buffers.
        self.assertLessEqual(self.looked_up, 12)

    def test_of_a_stream(self):
        stream = self.peer()
        stream.say(*[frames.Load(number, oid(1), maxtid)
                     for number in range(1, 1 + self.ASKED)])
        self.check()
        for _ in range(self.ASKED):
            self.assertEqual(len(stream.next().data), self.SIZE)

    def test_loads_over_zeo(self):
        peer = self.client()
        asked = [peer.ask('loadBefore', oid(1), maxtid)
                 for _ in range(self.ASKED)]
        self.check()
        for one in asked:
            self.assertEqual(len(peer.answer(one)[0]), self.SIZE)

    def test_loads_from_memory(self):
        """The answers to calls that came together do not gather, either."""
        self.patch(connection, LONGEST_TURN=PATIENCE)
        service = self.service
        self.patch(service, load_cached=self.load)
        peer = self.client()
        peer.socket.sendall(b''.join(
            zeowire.call(number, 'loadBefore', oid(1), maxtid)
            for number in range(2, 2 + self.ASKED)))
        self.check()
        self.assertEqual(len(peer.answer(self.ASKED)[0]), self.SIZE)

    def test_of_all_together(self):
        """The ones that hold most have to go; the others are served."""
        self.SIZE = 16 << 20  # more than the system takes
        self.patch(accounts, MOST_OF_ALL=3 * self.SIZE)
        peers = [self.peer() for _ in range(10)]
        honest = self.client()
        with self.assertLogs(LOG, 'ERROR'):
            for peer in peers:
                peer.ask_to_load(1)
            until(lambda: self.looked_up == 10, 'all are looked up')
            self.until_nothing_moves(lambda: self.server.accounts.held)
        self.assertLessEqual(self.server.accounts.held, 3 * self.SIZE)
        self.assertGreaterEqual(self.connections(), 3)
        honest.ping()
        for peer in peers:
            peer.close()
        until(lambda: self.connections() == 1, 'they have gone')
        self.assertEqual(self.server.accounts.held, 0)

    def test_announcements(self):
        """Who does not read them is cut off, however small each of them is;
        the others hear of all."""
        self.patch(accounts, MOST_OF_ONE=4 << 20)
        deaf, honest = self.client(), self.client()
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        service, oids = self.service, [oid(1)] * (1 << 15)
        with self.assertLogs(LOG, 'ERROR'):
            for number in range(1, 200):
                self.in_loop(service.changed_elsewhere,
                             p64(u64(service.last_tid) + 1), oids)
                honest.ping()
                if self.connections() == 1:
                    break
        self.assertEqual(self.connections(), 1)
        self.assertLess(self.server.accounts.held, 4 << 20)
        honest.wait_for_invalidations(number)

    def test_loads_of_a_stream_that_has_gone(self):
        """Those that wait are dropped, without a word."""
        stream = self.peer()
        with self.assertNoLogs(LOG, 'ERROR'):
            for _ in range(200):
                stream.ask_to_load(1)
            until(lambda: self.looked_up, 'it begins')
            stream.close()
            until(lambda: self.connections() == 0, 'it has gone')

    def test_who_has_gone_is_owed_nothing(self):
        peer = self.client()
        for _ in range(200):
            peer.ask('loadSerial', oid(1), self.tid)
        until(lambda: self.looked_up, 'it begins')
        peer.close()
        until(lambda: self.connections() == 0, 'it has gone')
        self.until_nothing_moves(lambda: self.service.readers.waiting)
        self.assertEqual(self.service.readers.waiting, 0)
        self.assertLess(self.looked_up, 100)


class Newcomers(BoundsTestCase):

    def test_who_does_not_register(self):
        self.patch(listening, REGISTER_WITHIN=0.01)
        for handshake in False, True:
            self.until_closed(self.connect(handshake))
        self.assertEqual(self.connections(), 0)

    def test_too_many(self):
        """The oldest have to go; who has registered stays."""
        self.patch(door, MOST_SPEAKING=3)
        client, stream = self.client(), self.peer()
        idle = [self.connect() for _ in range(5)]
        for one in idle[:2]:
            self.until_closed(one)
        # (The last one is made behind the one that had to go.)
        until(lambda: self.connections() == 5, 'all others are there')
        other = self.client()
        self.until_closed(idle[2])
        client.ping()
        other.ping()
        self.assertEqual(stream.load(1).data, b'one')

    def test_no_descriptors_are_left(self):
        self.server.door._left = 2 * door.CLIENT + door.NEWCOMER
        clients = [self.client() for _ in range(2)]
        with self.assertLogs(LOG, 'ERROR'):
            with self.assertRaises(ConnectionError):
                self.client()
        clients[0].close()
        until(lambda: self.connections() == 1, 'one has gone')
        self.client().ping()
        clients[1].ping()

    def newcomers(self):
        return self.in_loop(lambda: len(self.server.acceptor.newcomers))

    def test_who_says_nothing_is_a_socket(self):
        """Nothing is made for it; and it is told who is there."""
        made = []
        self.patch(self.server, new_connection=lambda *args: made.append(1))
        idle = [self.connect(handshake=False) for _ in range(3)]
        for one in idle:
            self.assertEqual(one.recv(100), zeowire.frame(b'Z5+fsync1'))
        self.assertEqual(self.newcomers(), 3)
        self.assertEqual(made, [])
        for one in idle:
            one.close()
        until(lambda: not self.newcomers(), 'they have left')
        self.assertEqual(self.in_loop(lambda: self.server.door._needs), {})

    def without_descriptors(self):
        """A listening socket that cannot accept, as the server has found out;
        its `accept` fails until the test gives it back; and a client."""
        listener = self.server.acceptor
        listening_to, = listener.sockets
        poor = mock.Mock(wraps=listening_to)
        poor.fileno = listening_to.fileno
        poor.accept.side_effect = OSError(errno.EMFILE, 'too many open files')
        self.in_loop(lambda: listener.event_loop.remove_reader(listening_to))
        listener.sockets = [poor]
        with self.assertLogs(LOG, 'ERROR') as logged:
            self.in_loop(lambda: listener._listen())
            one = self.connect(handshake=False)
            until(lambda: logged.records, 'it was tried')
        return poor, listening_to.accept, one

    def test_the_system_has_no_descriptors(self):
        """It is tried again; and the loop does not spin meanwhile."""
        poor, accept, one = self.without_descriptors()
        poor.accept.side_effect = accept
        self.assertTrue(one.recv(100))
        self.assertLess(poor.accept.call_count, 100)

    def test_it_has_none_and_the_port_is_closed(self):
        """Then nothing is tried any more."""
        poor, accept, _ = self.without_descriptors()
        self.in_loop(self.server.hang_up)
        calls = poor.accept.call_count
        poor.accept.side_effect = accept
        self.in_loop_after(2 * listening.PAUSE)
        self.assertEqual(poor.accept.call_count, calls)

    def in_loop_after(self, seconds):
        """Return when what was to be called within that time was called."""
        over = threading.Event()
        self.in_loop(lambda: self.server.acceptor.event_loop.call_later(
            seconds, over.set))
        self.assertTrue(over.wait(PATIENCE))
        self.in_loop(list)


class NewcomersOverTLS(BoundsTestCase):

    tls = True

    def test_who_does_not_shake_hands(self):
        """Who does not even shake hands is one, too."""
        self.patch(door, MOST_SILENT=3)
        # It has to leave for the others, and not because it takes too long.
        self.patch(listening, REGISTER_WITHIN=10 * PATIENCE)
        reader = self.peer()
        idle = [self.connect(handshake=False) for _ in range(5)]
        for one in idle[:2]:
            self.until_closed(one)
        other = self.peer()
        self.until_closed(idle[2])
        for peer in reader, other:
            self.assertEqual(peer.load(1).data, b'one')
        for one in idle:
            one.close()
        until(lambda: self.in_loop(lambda: len(self.server.door._needs)) == 2,
              'they have left')

    def test_one_that_shakes_hands_speaks(self):
        """It makes way only for others that do: each takes memory."""
        self.patch(door, MOST_SILENT=2)
        self.patch(door, MOST_SPEAKING=3)
        shaking = []
        for _ in range(5):
            shaking.append(self.connect(handshake=False))
            shaking[-1].sendall(b'\x16')
            until(self.nobody_is_silent, 'it speaks')
        for one in shaking[:2]:
            self.until_closed(one)
        silent = [self.connect(handshake=False) for _ in range(3)]
        self.until_closed(silent[0])
        shaking[2].setblocking(False)
        with self.assertRaises(BlockingIOError):
            shaking[2].recv(1)

    def nobody_is_silent(self):
        silent = self.in_loop(lambda: len(self.server.door._silent))
        return len(self.in_loop(lambda: self.server.door._needs)) and (
            not silent)


class TheDoor(unittest.TestCase):

    def test_whose_newcomer_has_to_leave(self):
        """That of an address that has many."""
        for most, speaks in ('MOST_SILENT', False), ('MOST_SPEAKING', True):
            with self.subTest(most), mock.patch.object(door, most, 4):
                everybody, left = door.Door(), []
                for number in range(11):
                    one = mock.Mock(abort=functools.partial(
                        left.append, number))
                    everybody.come(one, 'bad' if number else 'good')
                    if speaks:
                        everybody.speaks(one)
                self.assertEqual(left, list(range(1, 8)))


class Frames(BoundsTestCase):

    def long(self, number, size):
        return zeowire.call(number, 'loadBefore', b'x' * size, maxtid)

    def test_one_that_does_not_end(self):
        client = self.client()
        self.patch(incoming, PER_FRAME=0.01)
        client.socket.sendall(struct.pack('>I', 60000) + b'x')
        with self.assertLogs(LOG, 'ERROR'):
            client.wait_for_end()

    def test_room_for_long_ones(self):
        """One that waits is not read; then it is."""
        self.patch(incoming, ROOM=1 << 20)
        self.in_loop(self.new_room)
        one, other = self.client(), self.client()
        first, second = self.long(5, 900 << 10), self.long(6, 800 << 10)
        one.socket.sendall(first[:300 << 10])
        until(lambda: self.in_loop(lambda: self.server.room._since), 'room')
        sending = Thread(other.socket.sendall, second)
        until(lambda: self.in_loop(lambda: self.server.room._line.waiting),
              'the other one waits')
        self.until_nothing_moves(lambda: self.server.traffic.received)
        self.assertLess(self.server.traffic.received, 900 << 10)
        one.socket.sendall(first[300 << 10:])
        sending.result()
        for peer, number in (one, 5), (other, 6):
            with self.assertRaises(ErrorReply):
                peer.answer(number)
        self.assertEqual(self.server.room._line._taken, 0)

    def test_who_has_had_room_for_longest(self):
        """gives way, and nobody else."""
        self.patch(incoming, ROOM=1 << 20, ROOM_SECONDS=0.01,
                   PER_FRAME=PATIENCE)
        self.in_loop(self.new_room)
        peers = [self.client() for _ in range(3)]
        long = [self.long(number, 400 << 10) for number in range(5, 8)]
        for had, peer in enumerate(peers[:2], 1):
            peer.socket.sendall(long[had - 1][:300 << 10])
            until(lambda: self.in_loop(
                lambda: len(self.server.room._since)) == had,  # noqa: B023
                'room')
        with self.assertLogs(LOG, 'ERROR'):
            peers[2].socket.sendall(long[2])
            peers[0].wait_for_end()
        peers[1].socket.sendall(long[1][300 << 10:])
        for peer, number in (peers[1], 6), (peers[2], 7):
            with self.assertRaises(ErrorReply):
                peer.answer(number)

    def new_room(self):
        self.server.room = incoming.Room(self.server.acceptor.event_loop)

    def test_who_is_slow_and_goes_on(self):
        """There is patience as long as so much comes in each time."""
        timers, ended = [], []
        loop = mock.Mock()
        loop.call_later = lambda seconds, call: (
            timers.append(call) or mock.Mock())
        patience = incoming.Patience(loop, lambda: ended.append('ended'))
        patience.came(100)
        for _ in range(5):
            patience.came(incoming.PROGRESS)
            timers.pop()()
        self.assertEqual((len(timers), ended), (1, []))
        patience.came(incoming.PROGRESS - 1)
        timers.pop()()
        self.assertEqual((timers, ended), ([], ['ended']))


class Floods(BoundsTestCase):

    def setUp(self):
        super().setUp()
        # However long it takes, no further line is earned meanwhile.
        self.now = quiet.time.monotonic()
        self.patch(quiet, time=mock.Mock(monotonic=lambda: self.now))

    def test_the_log(self):
        """So many lines from each place, and how many were left out."""
        client = self.client()
        with self.assertLogs(level='WARNING') as logs:
            for _ in range(1000):
                with self.assertRaises(ErrorReply):
                    client.call('vote', 1)
        self.assertEqual(len(logs.output), quiet.BURST)
        self.now += quiet.INTERVAL
        with self.assertLogs(level='WARNING') as logs:
            with self.assertRaises(ErrorReply):
                client.call('vote', 1)
        self.assertIn(f'({1000 - quiet.BURST} more lines were left out)',
                      logs.output[0])

    def test_many_hosts(self):
        """They share lines, until the first ones may write all of theirs."""
        self.patch(quiet, MOST=3)
        said = quiet.Filter()

        def lines(host):
            """How many of one more connection."""
            label = quiet.Label('label', host)
            return sum(said.filter(logging.LogRecord(
                'name', logging.ERROR, 'path', 1, '%s', (label,), None))
                for _ in range(2 * quiet.BURST))

        self.assertEqual(
            [lines(str(host)) for host in range(6)],
            [quiet.BURST] * 4 + [0, 0])
        self.now += quiet.INTERVAL * quiet.BURST
        self.assertEqual(
            [lines(str(host)) for host in range(6, 9)],
            [quiet.BURST] * 3)

    def test_no_traceback_for_what_a_peer_has_sent(self):
        client = self.client()
        with self.assertLogs(LOG, 'ERROR') as logs:
            with self.assertRaises(ErrorReply):
                client.call('history', oid(1), None)
            client.post('tpc_begin', 7, b'', b'', {}, None, 'bad')
            with self.assertRaisesRegex(ErrorReply, "status 'bad'"):
                client.call('vote', 7)
            client.begin()
            client.post('undoa', b'no transaction', 7)
            with self.assertRaises(ErrorReply):
                client.call('vote', 7)
        self.assertEqual(len(logs.records), 3)
        self.assertEqual(
            [record for record in logs.records if record.exc_info], [])

    def test_a_line_is_one(self):
        client = self.client()
        with self.assertLogs(LOG, 'ERROR') as logs:
            client.post('set_client_label', 'me\n12:00 CRITICAL all is lost')
            client.post('no such call')
            client.wait_for_end()
        self.assertIn(r'me\n12:00 CRITICAL', logs.output[0])
        self.assertNotIn('\n', logs.output[0])

    def test_files_of_blobs(self):
        tid = self.store_blob(2, b'x' * (1 << 22))
        client = self.client()
        client.socket.sendall(b''.join(
            zeowire.call(number, 'sendBlob', oid(2), tid)
            for number in range(2, 52)))
        self.until_nothing_moves(lambda: self.server.traffic.sent)
        self.assertLessEqual(len(self.open_blobs()), door.MOST_STREAMS)
        client.close()
        until(lambda: self.open_blobs() == [], 'they are closed')

    def test_a_turn_each(self):
        """Who asks for little does not wait for who asks for much."""
        self.nothing_is_cached()
        held, goes_on = threading.Semaphore(0), threading.Semaphore(0)
        order = []

        def load(number, tid):
            held.release()
            assert goes_on.acquire(timeout=PATIENCE)
            order.append(number)
            return b'', self.tid, None

        self.patch(self.storage, loadBefore=load)
        greedy, modest = self.peer(), self.peer()
        for _ in range(200):
            greedy.ask_to_load(1)
        for _ in range(4):
            self.assertTrue(held.acquire(timeout=PATIENCE))
        modest.ask_to_load(2)
        modest.say(frames.Ping(1))
        goes_on.release(1000)
        modest.answer(1)
        self.assertLessEqual(order.index(oid(2)), 16)
        greedy.close()

    def test_calls_that_take_long(self):
        """A turn ends in time, not only after so many calls."""
        loop, order = self.server.acceptor.event_loop, []

        def ping(session):
            if not order:
                loop.call_soon(order.append, 'others')
            order.append('ping')
            time.sleep(0.01)

        client = self.client()
        self.patch(session.Session, ping=ping)
        client.socket.sendall(b''.join(
            zeowire.call(number, 'ping') for number in range(2, 32)))
        until(lambda: len(order) == 31, 'all are answered')
        self.assertEqual(order.index('others'), 1)

    def test_slow_calls(self):
        """One at a time of each client, so that there are threads left."""
        held, goes_on = threading.Semaphore(0), threading.Event()
        self.addCleanup(goes_on.set)

        def undo_log(first, last, filter):
            held.release()
            goes_on.wait(PATIENCE)
            for number in range(last):
                filter({'number': number})

        self.patch(self.storage, undoLog=undo_log)
        self.patch(listing, MOST_ENTRIES=3)
        greedy, modest = self.client(), self.client()
        asked = [greedy.ask('undoLog', 0, -(1 << 60)) for _ in range(20)]
        self.assertTrue(held.acquire(timeout=PATIENCE))
        self.assertEqual(len(modest.call('history', oid(1), 1 << 60)), 1)
        goes_on.set()
        self.assertEqual(greedy.answer(asked[-1]), [
            {'number': number} for number in range(3)])

    def test_iterators(self):
        """The one that was not used for longest is ended for another one."""
        self.patch(session, MOST_ITERATORS=3)
        client = self.client()
        first, second, third = (
            client.call('iterator_start', None, None) for _ in range(3))
        client.call('iterator_next', first)
        client.call('iterator_start', None, None)
        with self.assertRaisesRegex(ErrorReply, 'KeyError'):
            client.call('iterator_next', second)
        tid = client.call('iterator_next', third)[0]
        client.call('iterator_record_start', third, tid)
        self.assertEqual(len(self.only_session()._iterators), 3)

    def only_session(self):
        one, = self.in_loop(lambda: list(self.server.connections))
        return one.session

    def test_missed_invalidations(self):
        """Who has missed very many drops its cache."""
        service = self.service
        self.patch(type(service), young_enough=lambda self, tid: True)
        with mock.patch('fsyncstorage.server.service.MOST_INVALIDATIONS', 5):
            client = self.client()
            tid = client.commit({7: record()})
            client.commit({number: record() for number in range(10, 14)})
            self.assertEqual(len(client.call('getInvalidations', tid)[1]), 4)
            client.commit({number: record() for number in range(20, 24)})
            self.assertIsNone(client.call('getInvalidations', tid))
            self.assertIsNone(
                service.look_up_invalidations(tid, service.last_tid))


class InThreads(BoundsTestCase):
    """Loads that threads do for the loop."""

    def setUp(self):
        super().setUp()
        self.nothing_is_cached()
        self.asking = self.client()

    def refused(self, words):
        with self.assertRaisesRegex(ErrorReply, words):
            self.asking.load(1)

    def test_no_thread_can_be_started(self):
        """Whoever asks gets an error, until the system has one again."""
        with mock.patch.object(
                threading.Thread, 'start',
                side_effect=RuntimeError("can't start new thread")), \
                self.assertLogs(LOG, 'ERROR') as logs:
            for _ in range(20):
                self.refused('no thread could be started')
        self.assertIn('a thread could not be started', logs.output[0])
        self.assertEqual(self.asking.load(1)[0], b'one')

    def test_code_that_would_end_a_thread(self):
        self.patch(self.storage, loadBefore=mock.Mock(
            side_effect=SystemExit('the end')))
        for _ in range(20):
            self.refused('it was ended by SystemExit')

    def test_an_error_keeps_nothing(self):
        """Such as a file, which a pack has replaced meanwhile."""
        class Used:
            pass

        def load(oid, tid):
            used = Used()
            kept.append(weakref.ref(used))
            raise POSKeyError(oid)

        kept = []
        self.patch(self.storage, loadBefore=load)
        gc.disable()
        self.addCleanup(gc.enable)
        self.refused('POSKeyError')
        until(lambda: kept[0]() is None, 'it is let go')

    def test_the_end_does_not_wait_for_ever(self):
        """A load may wait for another server, which does not answer."""
        held, go_on, ended = (threading.Event() for _ in range(3))
        self.addCleanup(go_on.set)

        def load(oid, tid):
            held.set()
            go_on.wait(PATIENCE)
            ended.set()

        self.patch(self.storage, loadBefore=load)
        self.patch(workers, END_WITHIN=0.01)
        self.asking.ask('loadBefore', oid(1), maxtid)
        self.assertTrue(held.wait(PATIENCE))
        self.server.close()
        self.assertFalse(ended.is_set())


class Writers(BoundsTestCase):

    @staticmethod
    def tid_in(seconds):
        return TimeStamp(*time.gmtime(time.time() + seconds)[:6]).raw()

    def test_a_tid_of_the_far_future(self):
        client = self.client()
        for number, tid in enumerate(
                (b'\xff' * 8, self.tid_in(ballot.MOST_AHEAD + 60)), 2):
            client.post('tpc_begin', 7, b'', b'', {}, tid, ' ')
            client.store(number, record())
            with self.assertRaisesRegex(ErrorReply, 'StorageTransactionError'):
                client.call('vote', 7)
            client.commit({number: record()})

    def test_a_clock_that_is_a_bit_ahead(self):
        """A source's, from which transactions are copied."""
        client = self.client()
        tid = self.tid_in(ballot.MOST_AHEAD - 60)
        client.post('tpc_begin', 7, b'', b'', {}, tid, ' ')
        client.store(2, record())
        client.call('vote', 7)
        self.assertEqual(client.call('tpc_finish', 7), tid)
        self.assertGreater(client.commit({3: record()}), tid)

    def test_open_transactions(self):
        """All that they keep in memory together."""
        self.patch(ballot, IN_MEMORY_OF_ALL=100000)
        before = ballot.kept.bytes
        clients = [self.client() for _ in range(5)]
        for client in clients:
            client.begin()
            client.store(5, b'x' * 90000)
            client.ping()
            self.assertLess(ballot.kept.bytes, before + 100000)
        for client in clients[1:]:
            client.abort()
        clients[0].call('vote', 7)
        clients[0].finish()
        self.assertEqual(ballot.kept.bytes, before)

    def test_the_record_of_a_blob(self):
        client = self.client()
        client.begin()
        client.begin_blob(b'a blob')
        with self.assertLogs(LOG, 'ERROR'):
            client.post('storeBlobEnd', oid(2), z64,
                        b'x' * (ballot.MOST_OF_A_BLOB + 1), 7)
            client.ping()
        with self.assertRaisesRegex(ErrorReply, 'a record of a blob of'):
            client.call('vote', 7)
        until(lambda: os.listdir(self.storage.temporaryDirectory()) == [],
              'it is removed')


class Lists(BoundsTestCase):

    LENGTH = 60_000

    def setUp(self):
        super().setUp()
        self.tids = [self.commit(number) for number in range(20)]
        self.patch(listing, MOST_BYTES=10 * self.LENGTH)

    def commit(self, number):
        client = self.client()
        client.post('tpc_begin', client.id, b'%d' % (number % 2),
                    b'd' * self.LENGTH, {}, None, ' ')
        client.store(1, b'x', self.tid)
        client.call('vote', client.id)
        self.tid = client.finish()
        client.close()
        return self.tid

    def test_bytes_of_a_list(self):
        """One entry there always is."""
        client = self.client()
        made = []
        for name, *arguments in [
                ('undoLog', 0, 20), ('undoInfo', 0, -20, None),
                ('history', oid(1), 20)]:
            with self.subTest(name):
                made.append([
                    entry.get('tid') or decodebytes(entry['id'])
                    for entry in client.call(name, *arguments)])
                self.assertEqual(made[-1], self.tids[:-10:-1])
        self.patch(listing, MOST_BYTES=1)
        self.assertEqual(len(client.call('undoLog', 0, 20)), 1)
        self.assertEqual(client.call('undoLog', 3, 3), [])


class Vanished(BoundsTestCase):

    def check(self, one):
        options = self.in_loop(lambda: [
            one.transport.get_extra_info('socket').getsockopt(*option)
            for option in (
                (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
                (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL),
                (socket.IPPROTO_TCP, socket.TCP_KEEPCNT),
                (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))])
        alive, idle, interval, probes, timeout = options
        self.assertTrue(alive)
        self.assertLessEqual(idle + interval * probes, connection.MACHINE_GONE)
        self.assertEqual(timeout, connection.MACHINE_GONE * 1000)

    @linux
    def test_a_client(self):
        self.client()
        one, = self.in_loop(list, self.server.connections)
        self.check(one)
