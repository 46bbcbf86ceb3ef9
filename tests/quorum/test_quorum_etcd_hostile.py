"""The log on etcd, whose members send anything at all.  Goes with
`quorum/etcd/member.py` and `quorum/etcd/messages.py`.
"""

from fsyncstorage.quorum.etcd import messages
from fsyncstorage.quorum.etcd.member import LONGEST
from fsyncstorage.quorum.log.interface import Missing
from fsyncstorage.quorum.log.interface import Unanswered

from .gateway import WATCH
from .gateway import GatewaysCase
from .gateway import notice
from .logcontract import START
from .logcontract import A
from .logcontract import place
from .samples import LOG

#: In the place of an answer to any question: no message; one whose fields are
#: of other kinds; more than was asked for, or less.
ANSWERS = [
    b'\xff' * 20, b'\x0a', b'\x0a\x05abc', b'\x10' + b'\xff' * 11, b'\0\0',
    *(messages.CLASSES['TxnResponse'](
        succeeded=True, responses=[{'response_range': {'kvs': [
            {'key': key, 'value': b'x'}] * kvs}}] * responses
        ).SerializeToString()
      for key in (b'', b'test/record/x', b'test/log')
      for kvs in (0, 1, 9000) for responses in (0, 1, 3, 4)),
]


class HostileCase(GatewaysCase):
    """Those that take an answer apart, each in another way."""

    patience = 1.5
    CALLS = (
        ('ends',), ('ends', 1), ('read', 1),
        ('append', place(1), place(2), b'2'), ('hold', A, 60), ('notes',),
        ('all_staged',), ('staged', A, 0), ('trim', 1))

    def unanswered(self, name, *args):
        with self.assertRaises(Unanswered) as raised:
            getattr(self.log, name)(*args)
        return str(raised.exception)

    def setUp(self):
        super().setUp()
        self.log = self.another()
        self.log.create(LOG)
        self.log.append(START, place(1), b'1')

    def all_send(self, instead):
        for gateway in self.gateways.members:
            gateway.instead = instead

    def is_well(self):
        self.all_send(lambda call: None)
        self.assertEqual(self.log.read(1), [b'1'])


class Answers(HostileCase):

    level = 2

    def test_what_is_no_answer_of_etcd(self):
        """Nothing but Unanswered comes of it, or what a member may say."""
        for answer in ANSWERS:
            with self.subTest(answer[:30]):
                self.all_send(lambda call: [answer])
                for name, *args in self.CALLS:
                    try:
                        getattr(self.log, name)(*args)
                    except (Missing, Unanswered):
                        pass
                self.is_well()

    def test_another_number_of_answers(self):
        self.all_send(lambda call: [])
        for call in *self.CALLS, ('wait', 2, 0.1):
            self.unanswered(*call)
        self.is_well()

    def test_one_that_is_too_long(self):
        self.all_send(lambda call: [bytes(LONGEST + 1)])
        self.assertIn('larger than max', self.unanswered('ends'))
        self.is_well()


class InTime(HostileCase):

    def test_silence(self):
        def instead(call):
            call.wait_for_the_end()
            return []

        self.all_send(instead)
        self.assertIn('in time', self.unanswered('ends'))
        self.is_well()

    def test_a_stream_of_notices_without_end(self):
        """None of them is what is waited for: its time comes to an end."""
        def instead(call):
            return notices(call) if call.path == WATCH else None

        def notices(call):
            yield notice(created=True)
            while not call.has_ended:
                yield notice()

        self.all_send(instead)
        self.log.wait(2, 0.2)
        self.is_well()
