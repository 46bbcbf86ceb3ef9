"""Extensions of transactions are shown, and nothing of them is called."""

import collections
import datetime
import os
import pickle

from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage

from fsyncstorage.format import extension

from ..server.serving import ErrorReply
from ..server.serving import Served
from ..server.serving import record
from ..server.test_server_hostile import A_BIG_MEMO
from ..server.test_server_hostile import Calling
from ..server.test_server_hostile import nested
from ..support import TestCase
from ..support import oid


class Shown(TestCase):

    def check(self, value, shown=None):
        for protocol in 1, 2, 3:
            pickled = pickle.dumps(value, protocol)
            self.assertEqual(
                extension.shown(pickled), value if shown is None else shown)

    def test_plain_data(self):
        self.check({
            'none': None, 'true': True, 'false': False, 'number': 5,
            'numbers': [-1, 1 << 16, 1 << 40, 1.5], 'tuple': (1, (), (2, 3)),
            'text': 'gr\xfc\xdfe', 'more': {'a': {'b': ['c']}, 5: 6},
        })

    def test_bytes(self):
        pickled = pickle.dumps({'bytes': b'\xff' * 300, 'few': b'x'}, 3)
        self.assertEqual(extension.shown(pickled), pickle.loads(pickled))

    def test_texts_of_python_2(self):
        self.assertEqual(
            extension.shown(b'}(U\x01aU\x01bU\x01cU\x01\xfcu.'),
            {'a': 'b', 'c': b'\xfc'})

    def test_objects_are_shown_by_their_names(self):
        self.check(
            {'when': datetime.datetime(2026, 11, 22), 'user': 'jim'},
            {'when': 'datetime.datetime', 'user': 'jim'})
        self.check(
            {'dict': collections.OrderedDict(a=1)},
            {'dict': 'collections.OrderedDict'})
        self.assertEqual(  # with its class on the stack, as in protocol 0
            extension.shown(b'}(U\x01a(cmodule\nname\nI5\nou.'),
            {'a': 'module.name'})

    def test_what_is_there_twice_is_shown_once(self):
        twice = ['a']
        self.check({'one': twice, 'other': twice},
                   {'one': ['a'], 'other': '...'})

    def test_a_text_that_is_there_often_is_not_shown(self):
        text = 'x' * 10_000
        self.assertEqual(extension.shown(pickle.dumps({'n': [text] * 9}, 3)),
                         {'n': [text] * 9})
        self.assertEqual(
            extension.shown(pickle.dumps({'n': [text] * 900}, 3)), {})

    def test_rubbish_is_shown_as_empty(self):
        for pickled in (b'', b'.', b'rubbish', b'N.', A_BIG_MEMO,
                        b'}' + nested(60000) + b'N\x86.',
                        pickle.dumps({1.5: 'a float'}, 3)):
            self.assertEqual(extension.shown(pickled), {})


class OverZEO(Served):

    def setUp(self):
        super().setUp()
        self.canary = self.path('canary')
        self.storage = self.open()
        bomb = pickle.dumps(
            {'bomb': Calling(os.system, f'touch {self.canary}'), 'a': 'b'}, 3)
        transaction = TransactionMetaData(extension=bomb)
        self.storage.tpc_begin(transaction)
        self.storage.store(oid(1), b'\0' * 8, record(), '', transaction)
        self.storage.tpc_vote(transaction)
        self.tid = self.storage.tpc_finish(transaction)
        self.peer = self.connect(self.serve(self.storage))

    def check(self, shown):
        self.assertEqual(
            {name: shown.get(name) for name in ('a', 'bomb')},
            {'a': 'b', 'bomb': 'posix.system'})
        self.assertFalse(os.path.exists(self.canary), 'code was run')

    def test_what_can_be_undone(self):
        entry, = self.peer.call('undoLog', 0, 5)
        self.check(entry)
        entry, = self.peer.call('undoInfo', 0, 5, {'a': 'b'})
        self.check(entry)
        self.assertEqual(self.peer.call('undoInfo', 0, 5, {'a': 'c'}), [])

    def test_history(self):
        entry, = self.peer.call('history', oid(1), 1)
        self.check(entry)

    def test_iteration(self):
        iterator = self.peer.call('iterator_start', None, None)
        self.check(self.peer.call('iterator_next', iterator)[-1])
        records = self.peer.call('iterator_record_start', iterator, self.tid)
        self.assertEqual(
            self.peer.call('iterator_record_next', records)[0], oid(1))
        self.assertIsNone(self.peer.call('iterator_next', iterator))

    def test_a_client_writes_no_pickle_of_its_own(self):
        with self.assertRaises(ErrorReply):
            self.peer.call('tpc_begin', 7, b'', b'', b'N.')
        self.peer.call('tpc_begin', 7, b'', b'', {'a': [1, ('b', None)]})
        self.peer.store(2, record())
        self.peer.call('vote', 7)
        self.peer.finish()
        entry, _ = self.peer.call('undoLog', 0, 5)
        self.assertEqual(entry['a'], [1, ('b', None)])


class LikeStock(TestCase):

    def test_what_can_be_undone(self):
        """The same, in the same order, as a FileStorage says."""
        storage = self.open()
        for number in range(5):
            transaction = TransactionMetaData(
                'me', f'the {number}th', {'number': number} if number else {})
            storage.tpc_begin(transaction)
            storage.store(oid(number), b'\0' * 8, record(), '', transaction)
            storage.tpc_vote(transaction)
            storage.tpc_finish(transaction)
        asked = [(0, -20), (0, 3), (1, 3), (2, -2), (4, 9), (5, 9), (3, 1)]
        ours = [storage.undoLog(*each) for each in asked]
        found = storage.undoInfo(0, -20, {'number': 2})
        storage.close()
        stock = FileStorage(self.path(), read_only=True)
        self.addCleanup(stock.close)
        self.assertEqual(ours, [stock.undoLog(*each) for each in asked])
        self.assertEqual(found, stock.undoInfo(0, -20, {'number': 2}))
        self.assertEqual(len(found), 1)
