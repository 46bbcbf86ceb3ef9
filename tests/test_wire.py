"""The frames of the read channel: there and back, in pieces, and damaged."""

import copy
import unittest
from unittest import mock

from hypothesis import assume
from hypothesis import strategies

from fsyncstorage import wire

from .generated import given
from .generated import settings
from .support import oid

INSTANCE = bytes(range(16))
ANNOUNCEMENT = b'\0\0\0\2Z5'
OPENED = ANNOUNCEMENT + wire.welcome()
AS_OF, SERIAL, END = oid(30), oid(10), oid(20)

ids = strategies.binary(min_size=8, max_size=8)
numbers = strategies.integers(0, (1 << 32) - 1)
offsets = strategies.integers(0, (1 << 64) - 1)
pieces = strategies.lists(strategies.integers(1, 40), max_size=50)

thorough = settings(max_examples=300, derandomize=True, deadline=None)


def cut(data, lengths):
    """The same in pieces of these lengths, and the rest."""
    for length in lengths:
        yield data[:length]
        data = data[length:]
    yield data


def everything(inbox, pieces):
    """All that an inbox makes of what comes in these pieces."""
    found = []
    for piece in pieces:
        inbox.add(piece)
        while (each := inbox.next()) is not None:
            found.append(each)
    return found


def without_copies(client, pieces):
    """The same; what comes of a blob does not go through its inbox."""
    found = []
    for piece in pieces:
        while coming := min(client.coming, len(piece)):
            found.append(client.came(piece[:coming]))
            found += everything(client, [b''])
            piece = piece[coming:]
        found += everything(client, [piece])
    return found


def whole(events):
    """As if each chunk were given in one piece."""
    found = []
    for each in events:
        if found and each.__class__ is found[-1].__class__ is wire.Chunk:
            number, data = found.pop()
            each = wire.Chunk(number, data + each.data)
        found.append(each)
    return found


def opened():
    client = wire.Client(INSTANCE, '1')
    client.add(OPENED)
    client.next()
    return client


class Hellos(unittest.TestCase):

    def message(self, *arguments):
        hello = wire.hello(*arguments)
        self.assertEqual(int.from_bytes(hello[:4], 'big'), len(hello) - 4)
        return hello[4:]

    def test_there_and_back(self):
        for name in '1', 'größer', '':
            message = self.message(INSTANCE, name)
            self.assertTrue(wire.is_hello(message))
            self.assertEqual(wire.read_hello(message),
                             (wire.VERSION, INSTANCE, wire.NO_MARK, name))

    def test_no_handshake_of_zeo_is_one(self):
        for message in b'', b'Z5', b'M5', b'ruok', wire.MAGIC[:-1]:
            self.assertFalse(wire.is_hello(message))

    def test_of_another_version_only_the_version_counts(self):
        self.assertEqual(wire.read_hello(wire.MAGIC + b'\7whatever'),
                         (7, None, None, None))

    def test_every_cut(self):
        message = self.message(INSTANCE, 'ä')  # of two bytes
        for length in (*range(len(wire.MAGIC), len(message) - 2),
                       len(message) - 1):
            with self.assertRaises(wire.PeerError):
                wire.read_hello(message[:length])


class TheServersSide(unittest.TestCase):

    @given(strategies.lists(strategies.one_of(
        strategies.tuples(ids, ids),
        strategies.tuples(ids, ids, offsets, offsets)),
        max_size=8), pieces)
    @thorough
    def test_requests_there_and_back(self, asked, lengths):
        client = opened()
        sent, expected = b'', []
        for each in asked:
            make, kind = ((client.load, wire.Load) if len(each) == 2
                          else (client.blob, wire.Blob))
            number, frame = make(*each)
            sent += frame
            expected.append(kind(number, *each))
        got = everything(wire.Requests(), cut(sent, lengths))
        self.assertEqual(got, expected)
        self.assertEqual([type(each) for each in got],
                         [type(each) for each in expected])

    def test_half_a_request(self):
        requests = wire.Requests()
        _, frame = opened().blob(oid(1), oid(2), 3, 5)
        for at in range(len(frame)):
            self.assertEqual(requests.waiting, at)
            self.assertIsNone(requests.next())
            requests.add(frame[at:at + 1])
        self.assertEqual(requests.next(), (1, oid(1), oid(2), 3, 5))
        self.assertEqual(requests.waiting, 0)

    def refuse(self, data):
        requests = wire.Requests()
        requests.add(data)
        for _ in range(2):  # and it stays so
            with self.assertRaises(wire.PeerError):
                requests.next()

    def test_a_length_that_no_request_has(self):
        # It is refused before more is received.
        for length in 0, 4, 20, 22, 30, 1 << 16, (1 << 32) - 1:
            self.refuse(length.to_bytes(4, 'big'))

    def test_a_kind_that_no_request_has(self):
        _, load = opened().load(oid(1), oid(2))
        _, blob = opened().blob(oid(1), oid(2))
        for frame, right in (load, wire.LOAD), (blob, wire.BLOB):
            for kind in set(range(256)) - {right}:
                self.refuse(frame[:4] + bytes([kind]) + frame[5:])

    @given(strategies.binary(max_size=200))
    @thorough
    def test_rubbish(self, rubbish):
        requests = wire.Requests()
        try:
            got = everything(requests, [rubbish])
        except wire.PeerError:
            return
        # What was taken for a request has the form of one.
        sizes = {wire.Load: 25, wire.Blob: 33}
        self.assertEqual(sum(sizes[type(each)] for each in got)
                         + requests.waiting, len(rubbish))


class TheClientsSide(unittest.TestCase):

    def setUp(self):
        patch = mock.patch.object(wire, 'BEGIN', 2)
        patch.start()
        self.addCleanup(patch.stop)

    def exchange(self):
        """Some requests and all kinds of replies: what goes to the client,
        and what it has to make of it."""
        client = wire.Client(INSTANCE, '1')
        for number in range(1, 7):
            self.assertEqual(client.load(oid(number), AS_OF)[0], number)
        for number, *wanted in (
                (7, 0), (8, 3), (9, 5), (10, 0), (11, 1, 3), (12, 1, 4)):
            got, _ = client.blob(oid(number), SERIAL, *wanted)
            self.assertEqual(got, number)
        replies = (
            (ANNOUNCEMENT, ()),
            (wire.welcome(), [wire.Welcome()]),
            (wire.found(2, AS_OF, b'data', SERIAL, END),
             [wire.Found(2, AS_OF, b'data', SERIAL, END)]),
            (wire.found(1, AS_OF, b'', SERIAL, None),
             [wire.Found(1, AS_OF, b'', SERIAL, None)]),
            (wire.size(7, 5), [wire.Size(7, 5)]),
            (wire.nothing(3, AS_OF), [wire.Nothing(3, AS_OF)]),
            (wire.chunk(7, 2) + b'ab', [wire.Chunk(7, b'ab')]),
            (wire.size(8, 5), [wire.Size(8, 5)]),
            (wire.missing(4, AS_OF), [wire.Missing(4, AS_OF)]),
            (wire.chunk(8, 2) + b'de', [wire.Chunk(8, b'de'), wire.End(8)]),
            (wire.failed(5, AS_OF, 'an.Error', 'größer'),
             [wire.Failed(5, AS_OF, 'an.Error', 'größer')]),
            (wire.chunk(7, 3) + b'cde', [wire.Chunk(7, b'cde'), wire.End(7)]),
            (wire.size(9, 5), [wire.Size(9, 5), wire.End(9)]),
            (wire.missing(10, AS_OF), [wire.Missing(10, AS_OF)]),
            (wire.size(11, 5), [wire.Size(11, 5)]),
            (wire.chunk(11, 2) + b'bc',
             [wire.Chunk(11, b'bc'), wire.End(11)]),
            (wire.size(12, 5), [wire.Size(12, 5)]),
            (wire.chunk(12, 4) + b'bcde',
             [wire.Chunk(12, b'bcde'), wire.End(12)]),
        )
        sent = b''.join(frame for frame, _ in replies)
        expected = [each for _, events in replies for each in events]
        return client, sent, expected

    @given(pieces, strategies.sampled_from([everything, without_copies]))
    @thorough
    def test_replies_there_and_back(self, lengths, taken):
        client, sent, expected = self.exchange()
        got = whole(taken(client, cut(sent, lengths)))
        self.assertEqual(got, expected)
        self.assertEqual([type(each) for each in got],
                         [type(each) for each in expected])

    def test_every_cut_gives_a_beginning(self):
        _, sent, expected = self.exchange()
        for length in range(len(sent)):
            client, _, _ = self.exchange()
            got = everything(client, [sent[:length]])
            if got and got[-1].__class__ is wire.Chunk:
                part, all_of_it = got.pop(), expected[len(got)]
                self.assertEqual(part.number, all_of_it.number)
                self.assertTrue(all_of_it.data.startswith(part.data))
            self.assertEqual(got, expected[:len(got)])
            self.assertLess(len(got), len(expected))

    @given(strategies.data())
    @thorough
    def test_no_damage_goes_beyond_the_protocol(self, data):
        """Whatever comes, a client gives no reply that nobody waits for, and
        no blob in full of which bytes are missing."""
        client, sent, _ = self.exchange()
        damaged = bytearray(sent)
        for _ in range(data.draw(strategies.integers(1, 4))):
            at = data.draw(strategies.integers(0, len(sent) - 1))
            damaged[at] = data.draw(strategies.integers(0, 255))
        assume(damaged != sent)
        client.add(damaged)
        open_, streams = set(range(1, 13)), {}
        offsets, most = {8: 3, 9: 5, 11: 1, 12: 1}, {11: 3, 12: 4}
        try:
            while (each := client.next()) is not None:
                if isinstance(each, (wire.Welcome, wire.Refused)):
                    continue
                self.assertIn(each.number, open_)
                if isinstance(each, wire.Size):
                    self.assertNotIn(each.number, streams)
                    left = each.size - offsets.get(each.number, 0)
                    streams[each.number] = (
                        left if left <= most.get(each.number, left) else 2)
                elif isinstance(each, wire.Chunk):
                    streams[each.number] -= len(each.data)
                else:
                    open_.discard(each.number)
                    if isinstance(each, wire.End):
                        self.assertEqual(streams[each.number], 0)
        except wire.PeerError:
            pass

    @given(strategies.binary(max_size=100), strategies.booleans())
    @thorough
    def test_rubbish(self, rubbish, welcomed):
        client = opened() if welcomed else wire.Client(INSTANCE, '1')
        try:
            self.assertEqual(everything(client, [rubbish]), [])
        except wire.PeerError:
            pass

    def refuse(self, client, data):
        client.add(data)
        for _ in range(2):  # and it stays so
            with self.assertRaises(wire.PeerError):
                client.next()

    def test_no_zeo_server(self):
        for said in b'Z4', b'Z55', b'', wire.welcome()[4:]:
            self.refuse(wire.Client(INSTANCE, '1'),
                        len(said).to_bytes(4, 'big') + said)

    def test_a_long_frame_before_it_is_open(self):
        """Nothing of it is kept."""
        for said in b'', ANNOUNCEMENT:
            client = wire.Client(INSTANCE, '1')
            everything(client, [said])
            self.refuse(client, (wire.LONGEST_GREETING + 1).to_bytes(4, 'big'))

    def test_a_refusal(self):
        client = wire.Client(INSTANCE, '1')
        refusal = wire.refused(wire.TOO_MANY, 'too many')
        got = everything(client, [ANNOUNCEMENT + refusal])
        self.assertEqual(got, [wire.Refused(wire.TOO_MANY, 'too many')])
        for more in wire.welcome(), refusal:
            self.refuse(client, more)

    def test_a_reply_before_the_welcome(self):
        client = wire.Client(INSTANCE, '1')
        client.load(oid(1), AS_OF)
        self.refuse(client, ANNOUNCEMENT + wire.missing(1, AS_OF))

    def test_a_reply_that_nobody_waits_for(self):
        for frame in (wire.missing(2, AS_OF), wire.size(1, 5),
                      wire.chunk(1, 1) + b'x', wire.missing(0, AS_OF)):
            client = opened()
            client.load(oid(1), AS_OF)
            self.refuse(client, frame)

    def test_a_reply_twice(self):
        client = opened()
        client.load(oid(1), AS_OF)
        client.add(wire.missing(1, AS_OF))
        self.assertEqual(client.next(), wire.Missing(1, AS_OF))
        self.refuse(client, wire.missing(1, AS_OF))

    def test_a_blob_that_does_not_keep_to_its_size(self):
        for replies in (
                wire.found(1, AS_OF, b'', SERIAL, None),
                wire.nothing(1, AS_OF),
                wire.chunk(1, 1) + b'x',                    # before the size
                wire.size(1, 4),                            # before the offset
                wire.size(1, 10) + wire.chunk(1, 6) + b'6 more',
                wire.size(1, 10) + wire.chunk(1, 0),
                wire.size(1, 10) + wire.size(1, 10),
                wire.size(1, 10) + wire.failed(1, AS_OF, 'e', 'late')):
            client = opened()
            client.blob(oid(1), SERIAL, 5)
            client.add(replies)
            with self.assertRaises(wire.PeerError):
                everything(client, [b''])

    def test_lengths(self):
        longer = bytearray(wire.missing(1, AS_OF) + b'x')
        longer[3] += 1
        shorter = bytearray(wire.missing(1, AS_OF)[:-1])
        shorter[3] -= 1
        for frame in (longer, shorter, b'\0\0\0\4nnnn', b'\0\0\0\0',
                      b'\xff\xff\xff\xff'):
            client = opened()
            client.load(oid(1), AS_OF)
            self.refuse(client, frame)

    def test_every_reply_that_is_too_short(self):
        for whole in (wire.found(1, AS_OF, b'', SERIAL, None),
                      wire.nothing(1, AS_OF), wire.missing(1, AS_OF),
                      wire.failed(1, AS_OF, '', ''), wire.size(2, 5)):
            for length in range(4, len(whole)):
                client = opened()
                client.load(oid(1), AS_OF)
                client.blob(oid(2), SERIAL)
                self.refuse(client, (length - 4).to_bytes(4, 'big')
                            + whole[4:length])
        short = (5).to_bytes(4, 'big') + wire.refused(1, '')[4:9]
        self.refuse(wire.Client(INSTANCE, '1'), ANNOUNCEMENT + short)

    def test_what_cannot_be_asked_for(self):
        client = opened()
        for wrong in b'', b'1234567', '12345678', None, 1:
            for call in (lambda: client.load(wrong, AS_OF),
                         lambda: client.load(oid(1), wrong),
                         lambda: client.blob(wrong, SERIAL),
                         lambda: client.blob(oid(1), wrong)):
                with self.assertRaises(wire.CallerError):
                    call()
        for wrong in -1, 1 << 64, None:
            for positions in (wrong,), (0, wrong):
                with self.assertRaises(wire.CallerError):
                    client.blob(oid(1), SERIAL, *positions)
        # Nothing of it is waited for.
        for number in range(50):
            self.refuse(copy.deepcopy(client), wire.missing(number, AS_OF))


class TheFormat(unittest.TestCase):
    """As docs/internals/wire.rst has it: both sides could change it, and
    every other test would pass."""

    def check(self, frame, *parts):
        self.assertEqual(frame, b''.join(parts))

    def test_of_the_client(self):
        client = wire.Client(INSTANCE, 'main', b'the mark')
        self.check(client.hello, b'\0\0\0\x25', b'\xf5CHANNEL', b'\2',
                   INSTANCE, b'the mark', b'main')
        self.check(client.load(b'oid56789', b'tid56789')[1],
                   b'\0\0\0\x15', b'L', b'\0\0\0\1', b'oid56789tid56789')
        self.check(client.blob(b'oid56789', b'tid56789', 258, 772)[1],
                   b'\0\0\0\x25', b'B', b'\0\0\0\2', b'oid56789tid56789',
                   b'\0\0\0\0\0\0\1\2', b'\0\0\0\0\0\0\3\4')

    def test_of_the_server(self):
        number = b'\0\0\1\2'
        self.check(wire.welcome(), b'\0\0\0\5', b'W', bytes(4))
        self.check(wire.refused(wire.OTHER_INSTANCE, 'why'),
                   b'\0\0\0\x09', b'R', bytes(4), b'\2', b'why')
        self.check(wire.found(258, AS_OF, b'data', SERIAL, END),
                   b'\0\0\0\x21', b'f', number, AS_OF, SERIAL, END, b'data')
        self.check(wire.found(258, AS_OF, b'', SERIAL, None),
                   b'\0\0\0\x1d', b'f', number, AS_OF, SERIAL, bytes(8))
        self.check(wire.nothing(258, AS_OF),
                   b'\0\0\0\x0d', b'n', number, AS_OF)
        self.check(wire.missing(258, AS_OF),
                   b'\0\0\0\x0d', b'm', number, AS_OF)
        self.check(wire.failed(258, AS_OF, 'Error', 'why'),
                   b'\0\0\0\x16', b'e', number, AS_OF, b'\5', b'Error', b'why')
        self.check(wire.size(258, 5),
                   b'\0\0\0\x0d', b's', number, bytes(7), b'\5')
        self.check(wire.chunk(258, 5), b'\0\0\0\x0a', b'c', number)
