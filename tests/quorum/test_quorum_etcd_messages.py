"""The bytes of messages: what etcd understands, and what etcd 3.6 has sent.
Goes with `quorum/etcd/messages.py`.
"""

import unittest

from fsyncstorage.quorum.etcd import messages
from fsyncstorage.quorum.etcd.keys import Span

SPAN = Span(b'a/', b'a0')

QUESTIONS = [
    (messages.transaction(
        [messages.put(b'r', b'raw'), messages.put(b'h', b'2')],
        where=[messages.has(b'h', b'1'), messages.is_empty(b'r')],
        otherwise=[messages.shown(b'h')]),
     '0a0810031a01683a01310a0510011a01'
     '72120a12080a01721203726177120812060a01681201321a050a030a0168'),
    (messages.transaction(
        [messages.removed(SPAN), messages.shown(SPAN, 1, only=True)],
        where=[messages.is_empty(SPAN)]),
     '0a0b10011a02612f8204026130120a1a080a02612f12026130120e0a0c0a02612f'
     '1202613018014001'),
    (messages.pairs_of(SPAN, 8), '0a02612f120261301808'),
    (messages.removal(SPAN), '0a02612f12026130'),
    (messages.compaction(300), '08ac021001'),
    (messages.room_for(7), '080210071801'),
    (messages.watching(b'h'), '0a030a0168'),
    (messages.authentication('node', 'secret'),
     '0a046e6f64651206736563726574'),
    (messages.ALARMS, ''),
    (messages.MEMBERS, '0801'),
]

CLUSTER, MEMBER = 5769598485513890901, 17625374535878076931
#: An answer begins with its header, of this revision.
HEADER = '0a1908d5d8bf8d90e8ee88501083d4e9a19d98faccf40118%02x2002'
TRANSACTION = messages.transaction([])


class Bytes(unittest.TestCase):

    def received(self, question, revision, raw):
        answer = question.parse(bytes.fromhex(HEADER % revision + raw))
        self.assertEqual(messages.revision(answer), revision)
        return answer

    def test_what_is_sent(self):
        for question, raw in QUESTIONS:
            self.assertEqual(question.body.hex(), raw)

    def test_an_append(self):
        answer = self.received(
            TRANSACTION, 2, '10011a0612040a0218021a0612040a021802')
        self.assertTrue(messages.has_succeeded(answer))
        answer = self.received(
            TRANSACTION, 2,
            '1a160a140a021802120c0a01681002180220012a01322001')
        self.assertFalse(messages.has_succeeded(answer))
        shown, = messages.ranges(answer, 1)
        self.assertEqual(messages.one(shown), b'2')

    def test_pairs(self):
        answer = self.received(
            messages.pairs_of(SPAN, 8), 2,
            '120c0a01681002180220012a0132'
            '120e0a01721002180220012a037261772002')
        self.assertEqual([(each.key, each.value) for each in answer.kvs],
                         [(b'h', b'2'), (b'r', b'raw')])

    def test_notices(self):
        watching = messages.watching(b'h')
        first = self.received(watching, 1, '1801')
        self.assertEqual((first.created, first.canceled), (True, False))
        self.assertEqual(messages.noticed(self.received(
            watching, 2, '5a0e120c0a01681002180220012a0132')), [b'2'])

    def test_the_status(self):
        self.assertEqual(
            messages.status(self.received(
                messages.STATUS, 2,
                '1206332e362e31361880a0012083d4e9a19d98faccf401280a3002380a48'
                '8080015a05332e362e3060808080086a00')),
            (MEMBER, CLUSTER, '3.6.16', MEMBER, False, 20480, 16384, 16 << 20,
             10))

    def test_an_alarm(self):
        answer = self.received(
            messages.ALARMS, 16, '120d0883d4e9a19d98faccf4011001')
        self.assertEqual(messages.alarms(answer), ['NOSPACE'])
        self.assertEqual(messages.full_members(answer), [MEMBER])
