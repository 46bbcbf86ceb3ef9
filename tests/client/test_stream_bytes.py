"""What a server answers on a stream, message by message."""

from ZODB.utils import maxtid
from ZODB.utils import z64

from fsyncstorage.wire import frames
from fsyncstorage.wire import values

from ..support import begin
from ..support import oid
from .talking import Talking
from .talking import hello


class Answers(Talking):

    def setUp(self):
        super().setUp()
        self.storage = self.open()
        self.server = self.serve(self.storage)

    def test_the_welcome(self):
        talker = self.talk(self.server)
        version, instance, tid, about = talker.welcome[1:]
        self.assertEqual(version, frames.HIGHEST)
        self.assertEqual(instance, self.server.instance)
        self.assertEqual(tid, self.storage.lastTransaction())
        self.assertFalse(values.decoded(about, dict)['read_only'])

    def test_one_trip(self):
        committer, other = self.talk(self.server), self.talk(self.server)
        number = committer.stored({1: b'data', 2: b'more'})
        done = committer.trip(number)
        self.assertEqual(done[2:], (2, self.storage.getSize(), b''))
        self.assertEqual(self.storage.lastTransaction(), done.tid)
        self.assertEqual(
            other.next(), frames.Invalid(0, done.tid, oid(1) + oid(2)))

    def test_bytes_written_by_hand(self):
        """Those of docs/internals/wire.rst."""
        talker = self.talk(self.server)
        talker.socket.sendall(
            bytes.fromhex('00000022 42 00000007') + b'A' * 16 + bytes(8)
            + b' ' + bytes(4)
            + bytes.fromhex('00000018 53 00000007 0000000000000001')
            + bytes(8) + b'abc'
            + bytes.fromhex('00000005 54 00000007'))
        answer = b''
        while len(answer) < 33:
            answer += talker.socket.recv(33 - len(answer))
        self.assertEqual(
            answer, bytes.fromhex('0000001d 64 00000007')
            + self.storage.lastTransaction() + (1).to_bytes(8, 'big')
            + self.storage.getSize().to_bytes(8, 'big'))
        self.assertEqual(self.storage.load(oid(1))[0], b'abc')

    def test_two_trips_and_a_load(self):
        talker = self.talk(self.server)
        number = talker.stored({1: b'data'})
        self.assertEqual(talker.vote(number), frames.Voted(number, b''))
        tid = talker.finish(number).tid
        found = talker.ask(frames.Load(0, oid(1), maxtid))
        self.assertEqual(found[1:], (tid, tid, z64, b'data'))
        found = talker.ask(frames.Load(0, oid(1), tid))
        self.assertEqual(found[1:], (tid,))
        self.assertIsInstance(found, frames.Nothing)
        self.assertIsInstance(
            talker.ask(frames.Load(0, oid(9), maxtid)), frames.Missing)

    def test_a_conflict(self):
        talker = self.talk(self.server)
        talker.commit({1: b'data'})
        answer = talker.trip(talker.stored({1: b'other'}))
        self.assertIsInstance(answer, frames.Error)
        self.assertEqual(answer.name, b'ZODB.POSException.ConflictError')
        self.assertEqual(values.decoded(answer.arguments)['oid'], oid(1))

    def test_a_call(self):
        talker = self.talk(self.server)
        talker.commit({1: b'data'})
        answer = talker.ask(frames.Call(
            0, b'history', values.encoded((oid(1), 5))))
        entry, = values.decoded(answer.result)
        self.assertEqual(entry['size'], 4)

    def test_a_call_with_something_else(self):
        """The client gets an error, and goes on."""
        talker = self.talk(self.server)
        answer = talker.ask(frames.Call(
            0, b'history', values.encoded(('text', 5))))
        self.assertEqual(answer.name, b'builtins.TypeError')
        self.assertIsInstance(talker.ask(frames.Ping(0)), frames.Pong)

    def test_what_has_changed(self):
        talker = self.talk(self.server)
        first = talker.commit({1: b'data'})
        talker.commit({2: b'data'})
        talker.commit({3: b'data'})
        later = self.talk(self.server, hello(tid=first))
        changed = values.decoded(later.welcome.about)['changed']
        self.assertEqual(
            sorted(frames.split(changed)), [oid(2), oid(3)])
        later = self.talk(self.server, hello(tid=b'x' * 8))
        self.assertIsNone(values.decoded(later.welcome.about)['changed'])

    def test_a_blob_from_behind_its_end(self):
        """An error; more of them than blobs that may be sent at once."""
        storage = self.open('b.fs', blob_dir=self.path('blobs'))
        transaction = begin(storage)
        self.store_blob(storage, transaction, 1)
        storage.tpc_vote(transaction)
        tid = storage.tpc_finish(transaction)
        talker = self.talk(self.serve(storage))
        for offset in [8, (1 << 64) - 1] * 20:
            answer = talker.ask(frames.GetBlob(0, oid(1), tid, offset, 9))
            self.assertEqual(answer.name, b'builtins.ValueError')
