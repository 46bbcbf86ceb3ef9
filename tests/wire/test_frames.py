"""The bytes of the protocol: made, taken apart, and refused."""

import random
import unittest

from fsyncstorage.wire import frames
from fsyncstorage.wire import values
from fsyncstorage.wire.frames import CallerError
from fsyncstorage.wire.frames import PeerError
from fsyncstorage.wire.order import Order

from ..often import often

OID, TID, ID = b'an oid..', b'a tid...', b'sixteen bytes id'

#: One of each kind.
MESSAGES = [
    frames.Hello(0, frames.MAGIC, 1, 2, ID, 3, TID, 5, b'1', b'label', b'0.1'),
    frames.HelloOfAReader(0, frames.MAGIC, 1, 1, ID, OID, b'storage'),
    frames.Welcome(0, 1, ID, TID, b'about'),
    frames.Refused(0, frames.READ_ONLY, b'why'),
    frames.Begin(1, ID, TID, b'p', b'user', b'description', b'extension'),
    frames.Store(1, OID, TID, b'data'),
    frames.Stores(1, b'some stores'),
    frames.Restore(1, OID, TID, TID, 1, b'data'),
    frames.Delete(1, OID, TID),
    frames.Check(1, OID, TID),
    frames.Undo(1, b'transaction'),
    frames.BlobBegin(1),
    frames.BlobPiece(1, b'data'),
    frames.BlobEnd(1, OID, TID, b'record'),
    frames.BlobByName(1, OID, TID, b'name', b'record'),
    frames.Vote(1),
    frames.Finish(1),
    frames.Trip(1),
    frames.Abort(1),
    frames.Load(1, OID, TID),
    frames.GetBlob(1, OID, TID, 7, 1 << 40),
    frames.Call(1, b'name', b'arguments'),
    frames.Ask(1, ID, TID),
    frames.Ping(1),
    frames.Voted(1, OID),
    frames.Conflicts(1, b'conflicts'),
    frames.Done(1, TID, 5, 1 << 40, OID),
    frames.Aborted(1),
    frames.Found(1, TID, TID, TID, b'data'),
    frames.Nothing(1, TID),
    frames.Missing(1, TID),
    frames.Preface(0, frames.MAGIC),
    frames.Elsewhere(1),
    frames.BlobSize(1, 1 << 40),
    frames.BlobChunk(1, b'data'),
    frames.Result(1, b'result'),
    frames.Error(1, b'name', b'arguments'),
    frames.Outcome(1, frames.UNKNOWN, TID, b'why'),
    frames.Pong(1, TID),
    frames.Invalid(0, TID, OID + OID),
    frames.Sizes(0, 1, 2),
    frames.Goodbye(0),
]


class Frames(unittest.TestCase):

    def test_each_kind(self):
        """In any pieces."""
        data = b''.join(map(frames.frame, MESSAGES))
        for size in 1, 7, 100, len(data):
            inbox, found = frames.Inbox(), []
            for at in range(0, len(data), size):
                inbox.add(data[at:at + size])
                while (message := inbox.next()) is not None:
                    found.append(message)
            self.assertEqual(found, MESSAGES)

    def test_all_kinds_are_here(self):
        self.assertEqual({row.message for row in frames._ROWS},
                         set(map(type, MESSAGES)))

    def test_cut_off_or_with_more(self):
        for message in MESSAGES:
            body = frames.frame(message)[frames.LENGTH.size:]
            for end in range(len(body)):
                try:
                    self.assertNotEqual(frames.taken(body[:end]), message)
                except PeerError:
                    pass
            try:
                self.assertNotEqual(frames.taken(body + b'x'), message)
            except PeerError:
                pass

    def test_random_bytes(self):
        chance = random.Random(1)
        letters = [frames.frame(message)[4] for message in MESSAGES]
        for _ in range(often(3000, 100_000)):
            body = bytes([chance.choice(letters)]) + chance.randbytes(
                chance.randrange(60))
            try:
                message = frames.taken(body)
            except PeerError:
                continue
            self.assertEqual(frames.frame(message)[4:], body)

    def test_what_cannot_be_sent(self):
        for message in (
                frames.Store(1, b'short', TID, b''),
                frames.Store(1, OID, OID + b'x', b''),
                frames.Store(1 << 32, OID, TID, b''),
                frames.Undo(1, b'x' * 2000),
                frames.Begin(1, ID, TID, b' ', b'x' * 70000, b'', b''),
                frames.Begin(1, ID, TID, b' ', b'', b'', b'x' * (1 << 18)),
                frames.GetBlob(1, OID, TID, -1, 1)):
            self.assertRaises(CallerError, frames.frame, message)

    def test_a_long_frame(self):
        inbox = frames.Inbox()
        inbox.add(frames.LENGTH.pack(frames.LONGEST_BEFORE + 1))
        self.assertRaises(PeerError, inbox.next)

    def test_many_stores(self):
        stores = [(OID, TID, b'x' * size) for size in range(50)]
        joined = frames.many(stores)
        self.assertEqual(frames.number_of_stores(joined), 50)
        self.assertEqual(list(frames.each_store(joined)), stores)
        for end in range(len(joined)):
            self.assertRaises(
                PeerError, frames.number_of_stores, joined[:end])
        self.assertRaises(PeerError, frames.number_of_stores, joined + b'x')

    def test_the_versions_of_a_hello(self):
        def version(lowest, highest):
            return frames.common_version(
                *frames.hello_versions(frames.frame(MESSAGES[0]._replace(
                    lowest=lowest, highest=highest))[4:]))

        self.assertEqual(version(1, 9), frames.HIGHEST)
        self.assertIsNone(version(frames.HIGHEST + 1, 9))


class Values(unittest.TestCase):

    def test_plain_values(self):
        value = {'a': [1, 2.5, None, True], b'b': (b'c', 'd'), 3: {}}
        self.assertEqual(values.decoded(values.encoded(value)), value)

    def test_what_is_not_plain(self):
        """It is not called at the other end."""
        self.assertRaises(
            PeerError, values.decoded, values.encoded(ValueError('x')))
        self.assertEqual(
            values.plain([ValueError('x')]), ["ValueError('x')"])
        self.assertRaises(CallerError, values.encoded, lambda: 0)

    def test_another_type(self):
        self.assertRaises(
            PeerError, values.decoded, values.encoded([]), dict)


class Replies(unittest.TestCase):
    """Which may come when."""

    def setUp(self):
        self.order = Order(b'\0' * 8)

    def test_each_state(self):
        number = self.order.begins()
        self.order.says(frames.Vote(number))
        self.assertRaises(
            CallerError, self.order.says, frames.Store(number, OID, TID, b''))
        self.assertRaises(
            PeerError, self.order.take, frames.Done(number, TID, 1, 1, b''))
        self.order.take(frames.Voted(number, b''))
        self.order.says(frames.Finish(number))
        self.assertRaises(CallerError, self.order.says, frames.Abort(number))
        self.order.take(frames.Done(number, TID, 1, 1, b''))
        self.assertIsNone(self.order.state(number))
        self.assertRaises(
            PeerError, self.order.take, frames.Done(number, TID, 1, 1, b''))

    def test_replies_behind_an_abort(self):
        number = self.order.begins()
        self.order.says(frames.Vote(number))
        self.order.says(frames.Abort(number))
        self.assertIsNone(self.order.take(frames.Voted(number, b'')))
        self.assertEqual(self.order.take(frames.Aborted(number)),
                         frames.Aborted(number))

    def test_tids_rise(self):
        self.order.take(frames.Invalid(0, TID, OID))
        self.assertRaises(
            PeerError, self.order.take, frames.Invalid(0, TID, OID))
        number = self.order.begins()
        self.order.says(frames.Trip(number))
        self.assertRaises(
            PeerError, self.order.take, frames.Done(number, TID, 1, 1, b''))

    def test_a_blob_in_chunks(self):
        asked = self.order.asks(frames.GetBlob(0, OID, TID, 2, 100))
        self.assertRaises(PeerError, self.order.take,
                          frames.BlobChunk(asked.number, b'x'))
        asked = self.order.asks(frames.GetBlob(0, OID, TID, 2, 100))
        self.order.take(frames.BlobSize(asked.number, 10))
        self.order.take(frames.BlobChunk(asked.number, b'12345'))
        self.assertIsNotNone(self.order.state(asked.number))
        self.order.take(frames.BlobChunk(asked.number, b'123'))
        self.assertIsNone(self.order.state(asked.number))

    def test_nobody_has_asked(self):
        for message in frames.Pong(7, TID), frames.Found(
                7, TID, TID, TID, b''), frames.Aborted(7):
            self.assertRaises(PeerError, self.order.take, message)
