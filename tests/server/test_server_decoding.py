"""What clients send is understood; whatever else comes is refused."""

import inspect
import pickle
import unittest

import msgpack
from ZEO.asyncio.marshal import encoder
from ZEO.asyncio.marshal import server_decoder
from ZEO.StorageServer import registered_methods
from ZODB.utils import maxtid
from ZODB.utils import z64
from ZopeUndo.Prefix import Prefix

from fsyncstorage.format import pickles
from fsyncstorage.server import calls
from fsyncstorage.server import decoding
from fsyncstorage.server.ballot import Ballot
from fsyncstorage.server.oursession import OurSession
from fsyncstorage.server.session import Session

from .serving import ErrorReply
from .serving import Peer
from .serving import Served
from .serving import record

TRANSACTION = 140234234234234

# What ZEO's client sends, and ours.
REGISTER = 1, False, 'register', ('1', False)
STOCK = [
    (-1, 0, '.reply', None),  # it keeps the connection alive
    (2, False, 'get_info', ()),
    (0, True, 'set_client_label', ('gr\xfc\xdfe',)),
    ((z64, maxtid), False, 'loadBefore', (z64, maxtid)),
    (3, False, 'getInvalidations', (z64,)),
    (4, False, 'pack', (1795000000.25, 1)),
    (4, False, 'pack', (1795000000, True)),
    (5, False, 'history', (z64, 20)),
    (6, False, 'record_iternext', (None,)),
    (7, False, 'undoLog', (0, -20)),
    (8, False, 'undoInfo', (0, 1 << 40, None)),
    (9, False, 'undoInfo', (0, -20, {'user_name': 'jim', 'size': 5})),
    (0, True, 'iterator_gc', ([0, 1, 2, 300, 70000],)),
    (10, False, 'iterator_start', (None, z64)),
    (0, True, 'tpc_begin', (TRANSACTION, b'jim', b'', {}, None, ' ')),
    (0, True, 'tpc_begin', (
        TRANSACTION, b'jim', b'edit', {
            'a': 1, 'more': {'b': [1.5, None, (True, b'x', ())]}, 'c': -1,
        }, z64, 'p')),
    (0, True, 'storea', (z64, z64, b'x' * 1000, TRANSACTION)),
    (0, True, 'storea', (z64, None, b'x', 1 << 63)),
    (0, True, 'restorea', (z64, z64, None, None, TRANSACTION)),
    (0, True, 'undoa', (b'A+HJkxEi3Ys=', TRANSACTION)),
    (0, True, 'storeBlobStart', ()),
    (0, True, 'storeBlobChunk', (b'x' * 59000,)),
    (0, True, 'storeBlobShared', (z64, z64, b'x', 'a.tmp-', TRANSACTION)),
    (11, False, 'vote', (TRANSACTION,)),
]


def fits(kind, value):
    """May an argument of this kind be that?"""
    try:
        calls.Call(kind).check('a call', (value,))
    except TypeError:
        return False
    return True


class Decoding(unittest.TestCase):

    def decode(self, data, encoding=b'Z'):
        return calls.parts(decoding.decoder(encoding)(data))

    def test_what_stock_clients_send(self):
        for protocol in b'Z5', b'M5':
            encode = encoder(protocol)
            for message in STOCK + [REGISTER]:
                data = encode(*message)
                found = self.decode(data, protocol[:1])
                self.assertEqual(found, server_decoder(protocol)(data))
                _, _, name, arguments = found
                if name in calls.REGISTERED:
                    calls.REGISTERED[name].check(name, arguments)

    def test_pickles_with_a_memo(self):
        """As a client makes them that uses the pickle module as it is."""
        for message in STOCK:
            self.assertEqual(self.decode(pickle.dumps(message, 3)), message)

    def test_what_is_made_by_a_call(self):
        class Extension(dict):

            def __reduce__(self):
                return dict, (tuple(self.items()),)

        data = encoder(b'Z5')(
            1, False, 'undoInfo', (0, 1, {
                'set': {'a', 5}, 'frozen': frozenset([None]), 'empty': set(),
                'dict': Extension(a=1), 'user_name': Prefix('/a/b')}))
        found = self.decode(data)[-1][-1]
        self.assertEqual(
            {name: found[name] for name in ('set', 'frozen', 'empty', 'dict')},
            {'set': {'a', 5}, 'frozen': {None}, 'empty': set(),
             'dict': {'a': 1}})
        self.assertEqual(found['user_name'], '/a/b/c')
        self.assertNotEqual(found['user_name'], '/a/c')

    def refused(self, data, encoding=b'Z'):
        with self.assertRaises((ValueError, TypeError)):
            self.decode(data, encoding)

    def test_what_would_take_many_times_its_bytes(self):
        """Opcodes of old protocols, texts, lines; and a path with one part
        many times.  The error is short."""
        long = b'1' * 100_000
        for pickled in (
                b'F' + long + b'\n.', b'I' + long + b'\n.',
                b'L' + long + b'L\n.', b"S'" + long + b"'\n.",
                b'V' + long + b'\n.', b'c' + long + b'\na\n.',
                b'X\0\0\x20\0' + bytes(1 << 21) + b'.'):
            with self.assertRaises(ValueError) as raised:
                self.decode(b'\x80\x03' + pickled)
            self.assertLess(len(str(raised.exception)), 300)
        part = b'X\0\x90\0\0' + b'a' * 0x9000 + b'q\0'
        self.refused(
            b'\x80\x03(K\x01\x89X\x04\0\0\0pingcZopeUndo.Prefix\nPrefix\n)\x81'
            b'}X\x04\0\0\0path](' + part + b'h\0' * 30 + b'esb\x85t.')

    def test_names_that_are_not_sent(self):
        for name in (
            'builtins\neval', 'os\nsystem', 'builtins\nset', 'ZODB\nDB',
            'ZopeUndo.Prefix\nPrefix', 'copyreg\n_reconstructor',
        ):
            name = b'c' + name.encode() + b'\n'
            for rest in (b'', b')R', b'X\0\0\0\0\x85R', b']\x85R', b')\x81',
                         b')\x81}b', b'}b', b')\x81)\x85R'):
                if (name, rest) != (b'cbuiltins\nset\n', b']\x85R'):
                    self.refused(
                        b'\x80\x03(K\x01\x89X\x04\0\0\0ping'
                        + name + rest + b'\x85t.')

    def test_keys_that_take_long_to_hash(self):
        for key in 1.5, 1 << 61, -1 << 61, (), ((),):
            self.refused(encoder(b'Z5')(1, False, 'undoInfo', ({key: 1},)))
            self.refused(encoder(b'Z5')(1, False, 'undoInfo', ({key},)))
        for key in b'\x01', b'\xcb' + bytes(8), b'\x90':
            self.refused(b'\x94\x01\xc2\xa1a\x91\x81' + key + b'\x01', b'M')

    def test_a_prefix_with_another_state(self):
        prefix = Prefix('/')
        for path in None, 'path', [b'x'], [1], ('a',):
            prefix.path = path
            self.refused(encoder(b'Z5')(1, False, 'undoInfo', (prefix,)))

    def test_every_cut_and_every_changed_byte(self):
        """An error of a known kind, or something that is well-typed."""
        for protocol in b'Z5', b'M5':
            for message in STOCK[:20]:
                data = encoder(protocol)(*message)[:300]
                for at in range(len(data)):
                    for broken in (
                        data[:at],
                        *(data[:at] + bytes([byte]) + data[at + 1:]
                          for byte in b'\0\x01(.)]}Rbctu\x80\x85\x90\xff'),
                    ):
                        try:
                            self.decode(broken, protocol[:1])
                        except (ValueError, TypeError):
                            pass

    def test_bounds(self):
        longest = pickles.LONGEST_TEXT
        for value in ([0] * decoding.MOST_STEPS, '\xfc' * longest,
                      [[]] * decoding.MOST_CONTAINERS, 1 << 200):
            self.refused(encoder(b'Z5')(1, False, 'ping', (value,)))
        for value in ([0] * (decoding.LONGEST_ARRAY + 1),
                      'x' * (longest + 1), [[]] * decoding.MOST_CONTAINERS,
                      msgpack.Timestamp(1), msgpack.ExtType(5, b'')):
            self.refused(msgpack.packb((1, False, 'ping', (value,))), b'M')

    def test_messages_that_are_no_calls(self):
        for message in (
            None, (), (1, False, 'ping'), (1, False, 'ping', (), ()),
            [1, False, 'ping', ()], (None, False, 'ping', ()),
            ('1', False, 'ping', ()), (1.0, False, 'ping', ()),
            (True, False, 'ping', ()), (1 << 64, False, 'ping', ()),
            ((z64,), False, 'ping', ()), ((z64, b''), False, 'ping', ()),
            (1, None, 'ping', ()), (1, 2, 'ping', ()), (1, '', 'ping', ()),
            (1, False, b'ping', ()), (1, False, None, ()),
            (1, False, 'x' * 1001, ()), (1, False, 'ping', None),
            (1, False, 'ping', []), (1, False, 'ping', {}),
        ):
            with self.subTest(message):
                with self.assertRaises(TypeError):
                    calls.parts(message)


class Table(unittest.TestCase):

    def test_all_methods_are_in_it(self):
        """ZEO has no other; one that it gets is to be added, or not."""
        self.assertEqual(set(calls.REGISTERED), registered_methods)

    def test_it_fits_the_session(self):
        for session, offered in (
                (Session, {**calls.REGISTERED, **calls.UNREGISTERED}),
                (OurSession, calls.OF_OURS)):
            for name, call in offered.items():
                if name != 'new_oid':  # stock offers it, and has it not
                    self.check(session, name, call)

    def check(self, session, name, call):
        counts = call.needed, len(call.kinds)
        method = getattr(session, name, None)
        if name in calls.OF_A_TRANSACTION:
            counts = calls.OF_A_TRANSACTION[name],
            method = getattr(Ballot, name)
        for count in counts:
            with self.subTest(name):
                inspect.signature(method).bind(None, *[None] * count)

    def test_wrong_arguments(self):
        wrong = (None, True, 0, -1, 1.5, '', 'x', b'', b'x' * 7, (), [], {},
                 ('a',), [b''], object())
        for name, call in calls.REGISTERED.items():
            with self.assertRaises(TypeError):
                call.check(name, (None,) * (len(call.kinds) + 1))
            if call.needed:
                with self.assertRaises(TypeError):
                    call.check(name, ())
            for value in wrong:
                if not all(fits(kind, value) for kind in call.kinds):
                    with self.assertRaises(TypeError):
                        call.check(name, (value,) * len(call.kinds))


class OverZEO(Served):

    def test_who_waits_is_told_of_a_wrong_argument(self):
        peer = self.connect(self.serve())
        for name, arguments in (
            ('loadBefore', (b'x', maxtid)), ('loadBefore', (None, None)),
            ('history', (z64, 'a')), ('history', ()), ('ping', (1,)),
            ('undoInfo', (0, 1, [])), ('tpc_begin', (7, 1, 2, 3)),
        ):
            with self.assertRaises(ErrorReply) as caught:
                peer.call(name, *arguments)
            self.assertEqual(caught.exception.name, 'TypeError')
        peer.commit({1: record()})

    def test_nobody_can_be_told_who_does_not_wait(self):
        """Of a wrong argument, nor the answer of a call that has one later."""
        server = self.serve()
        for name, *arguments in (
                ('storea', z64, z64, 'text', Peer.id),
                ('iterator_gc', [0, (1,)]), ('getTid', z64),
                ('vote', Peer.id), ('pack', 1.5, True)):
            with self.subTest(name):
                peer = self.connect(server)
                peer.begin()
                with self.assertLogs('fsyncstorage', 'ERROR') as logged:
                    peer.post(name, *arguments)
                    peer.wait_for_end()
                self.assertRegex(
                    logged.output[-1], 'disconnected: (TypeError|ValueError)')
        self.connect(server).commit({1: record()})
