"""The log on etcd, on members in this process: what it promises when they are
damaged, stopped or made anew, or send anything at all.  Goes with
`quorum/etcd/engine.py`.
"""

import threading

from fsyncstorage.quorum.etcd import engine
from fsyncstorage.quorum.etcd import member
from fsyncstorage.quorum.etcd import messages
from fsyncstorage.quorum.etcd.keys import Keys
from fsyncstorage.quorum.etcd.keys import sealed
from fsyncstorage.quorum.etcd.member import LONGEST
from fsyncstorage.quorum.history.fold import beginning
from fsyncstorage.quorum.leading.writer import Fenced
from fsyncstorage.quorum.log import members
from fsyncstorage.quorum.log.interface import NOTE
from fsyncstorage.quorum.log.interface import Missing
from fsyncstorage.quorum.log.interface import Unanswered
from fsyncstorage.quorum.log.notes import of_nodes

from ..support import PATIENCE
from ..support import Thread
from .gateway import GatewaysCase
from .gateway import Store
from .logcontract import A
from .logcontract import B
from .logcontract import place
from .nodes import led
from .samples import LOG

KEYS = Keys('test')
CLUSTER = 'fsyncstorage.quorum.etcd.cluster'

#: In the place of an answer to any question: none; no message; one whose
#: fields are of other kinds; more than was asked for, or less.
ANSWERS = [[], *([each] for each in (
    b'\xff' * 20, b'\x0a', b'\x0a\x05abc', b'\x10' + b'\xff' * 11, b'\0\0',
    *(messages.CLASSES['TxnResponse'](
        succeeded=True, responses=[{'response_range': {'kvs': [
            {'key': key, 'value': b'x'}] * kvs}}] * responses
        ).SerializeToString()
      for key in (b'', b'test/record/x', b'test/log')
      for kvs in (0, 1, 9000) for responses in (0, 1, 3, 4))))]


class EtcdCase(GatewaysCase):

    def setUp(self):
        super().setUp()
        self.log = self.another()
        self.log.create(LOG)
        self.first, self.second, self.third = self.gateways.members

    def append(self, *records):
        for raw in records:
            before = self.log.ends().head
            self.log.append(before, place(before.sequence + 1), raw)

    def unanswered(self, name, *args):
        with self.assertRaises(Unanswered) as raised:
            getattr(self.log, name)(*args)
        return str(raised.exception)

    def all_send(self, instead):
        """All members answer so, where that is an answer."""
        for gateway in self.gateways.members:
            gateway.instead = instead


def flipped(value):
    return value[:5] + bytes([value[5] ^ 4]) + value[6:]


class OneIsDamaged(EtcdCase):
    """It makes nobody stop, and nobody believe it."""

    def setUp(self):
        super().setUp()
        self.append(b'first', b'second', b'third')
        self.ends = self.log.ends()

    def test_the_head(self):
        """A bit of it has flipped; it is an older one; or all is lost."""
        def flips(own):
            own[KEYS.head] = flipped(own[KEYS.head])

        def is_older(own):
            own[KEYS.head] = sealed(KEYS.head, place(1).packed())

        for change in flips, is_older, dict.clear:
            for gateway in self.gateways.members:
                with self.with_data(gateway, change):
                    self.assertEqual(members.ends(self.log), self.ends)

    def test_a_record_or_a_note_that_one_has_lost(self):
        """Trimming goes by the notes."""
        self.log.note(A, b'here')
        self.log.note(B, b'there')

        def loses(own):
            del own[KEYS.record(2)], own[KEYS.note(A)]

        for gateway in self.gateways.members:
            with self.with_data(gateway, loses):
                self.assertEqual(
                    of_nodes(self.log), {A: b'here', B: b'there'})
                self.assertEqual(self.log.read(2, gateway.number), [])
                self.assertEqual(
                    self.log.notes(gateway.number), {B: b'there'})

    def test_an_append_that_meets_a_wrong_head(self):
        """The others have it: no answer, and not that the head has moved.  And
        a member that has lost its head takes no record twice."""
        def flips(own):
            own[KEYS.head] = flipped(own[KEYS.head])

        def is_older(own):
            own[KEYS.head] = sealed(KEYS.head, place(2).packed())

        with self.assertLogs(CLUSTER, 'WARNING'):
            for change, number in (flips, 3), (is_older, 2):
                with self.with_data(self.first, change):
                    self.log.cluster.prefer(self.log.cluster.members[0])
                    self.unanswered(
                        'append', place(number), place(number + 1), b'another')
        # Another member is asked the next time.
        self.append(b'fourth')

    def test_a_chunk(self):
        self.log.stage(A, 0, b'the chunk')
        key = KEYS.chunk(A, 0)

        def change(own):
            own[key] = flipped(own[key])

        def exchange(own):
            own[key] = sealed(KEYS.chunk(A, 1), b'the chunk')

        for gateway in self.gateways.members:
            with self.with_data(gateway, lambda own: own.pop(key)):
                self.assertIsNone(self.log.staged(A, 0, gateway.number))
            for wrong in change, exchange:
                with self.with_data(gateway, wrong):
                    for _ in range(3):
                        self.assertEqual(self.log.staged(A, 0), b'the chunk')
                    self.unanswered('staged', A, 0, gateway.number)

    def test_one_that_was_begun_anew(self):
        """As a cluster of its own, by mistake: it has no log, and so gets
        nothing, and nobody else lacks that."""
        for number in range(self.log.members):
            self.log.ends(number)  # so it is known which cluster is ours
        for gateway in self.gateways.members:
            gateway.store, gateway.cluster = Store(), gateway.cluster + 1
            member = self.log.cluster.members[gateway.number]
            with self.assertLogs(CLUSTER, 'WARNING') as said:
                for call, *args in (
                        (self.log.note, A, b'note'),
                        (self.log.stage, A, 0, b'the chunk'),
                        (self.log.hold, A, 60)):
                    self.log.cluster.prefer(member)
                    call(*args)
            self.assertIn(gateway.address, said.output[0])
            self.assertIn('another cluster', said.output[0])
            self.assertEqual(gateway.store.values, {})
            self.unanswered('notes', gateway.number)
            self.append(b'more')
            gateway.store, gateway.cluster = self.store, gateway.cluster - 1
            # It was brought back.
            for number in range(self.log.members):
                self.assertEqual(self.log.notes(number), {A: b'note'})
                self.assertEqual(
                    self.log.staged(A, 0, number), b'the chunk')
            self.log.forget(A)
            self.log.unstage([A])

    def test_a_lease(self):
        self.log.hold(A, 60)

        def change(own):
            own[KEYS.lease] = flipped(own[KEYS.lease])

        for gateway in self.gateways.members:
            with self.with_data(gateway, change):
                self.assertEqual(self.log.holder(), A)
                self.assertEqual(self.another().hold(B, 60), 0)


class Staged(EtcdCase):

    def test_what_is_put_again_takes_no_room(self):
        """As a vote does that had no answer, and each put is a revision."""
        self.log.stage(A, 0, b'chunk')
        before = self.store.revision
        for _ in range(3):
            self.log.stage(A, 0, b'chunk')
        self.assertEqual(self.store.revision, before)
        self.log.stage(A, 1, b'chunk')
        self.assertEqual(self.store.revision, before + 1)
        self.log.unstage([A])
        self.log.stage(A, 0, b'another')
        self.assertEqual(self.log.staged(A, 0), b'another')


class Stopping(EtcdCase):

    #: A call that is not woken hangs.
    patience = 3 * 3600

    def test_a_member_that_says_nothing(self):
        """A call that waits for it ends at once."""
        came = []

        def instead(call):
            came.append(call)
            call.wait_for_the_end()
            return []

        self.all_send(instead)
        waiting = Thread(self.log.ends)
        while not came:
            pass
        self.log.stop()
        with self.assertRaises(Unanswered):
            waiting.result()


class Certificates(EtcdCase):

    def test_a_file_system_that_hangs(self):
        """No question waits for their files, and no close."""
        goes_on, looks = threading.Event(), threading.Semaphore(0)
        self.addCleanup(goes_on.set)

        def hangs(settings):
            looks.release()
            goes_on.wait()

        self.patch(member, LOOK_EVERY=0.0)
        log = self.another()
        self.patch(member, _written=hangs)
        for _ in range(3):
            Thread(log.ends).result()
        self.assertTrue(looks.acquire(timeout=PATIENCE))
        Thread(log.stop).result()
        self.assertFalse(looks.acquire(blocking=False))


class NoLogAnyMore(EtcdCase):
    """It is lost, and etcd was made anew, while nodes run: they write nothing
    into it, so that another log can begin there; and they say what happened.
    """

    def test_nothing_is_put_where_no_log_is(self):
        self.log.hold(A, 10.0)
        self.store.values.clear()
        self.assertEqual(self.log.hold(A, 10.0), 0)
        self.log.note(A, b'a note')
        self.log.stage(B, 0, b'a chunk')
        self.assertEqual(self.store.values, {})
        self.log.create(LOG)
        self.assertTrue(self.log.hold(A, 10.0))

    def test_who_writes_is_told(self):
        """And does not wait for a log that will not come back."""
        writer = led(self.log, beginning(LOG, 0, 4), 'a')
        self.store.values.clear()
        writer.lead(A)
        with self.assertRaisesRegex(Fenced, 'there is no log'):
            writer.advance()
        self.assertEqual(self.store.values, {})


class Bounds(EtcdCase):

    def test_more_notes_than_can_be_read(self):
        """None of them is left out in silence: trimming goes by them."""
        for number in range(engine.MOST_NOTES):
            self.log.note(b'%d' % number, bytes(NOTE))
        self.assertEqual(len(self.log.notes()), engine.MOST_NOTES)
        self.log.note(A, b'')
        self.assertIn('forget', self.unanswered('notes'))


class AnyAnswer(EtcdCase):

    level = 2
    patience = 1.5
    #: Those that take an answer apart, each in another way.
    CALLS = (
        ('ends',), ('ends', 1), ('read', 1),
        ('append', place(1), place(2), b'2'), ('hold', A, 60), ('notes',),
        ('all_staged',), ('staged', A, 0), ('trim', 1))

    def setUp(self):
        super().setUp()
        self.append(b'1')

    def is_well(self):
        self.all_send(lambda call: None)
        self.assertEqual(self.log.read(1), [b'1'])

    def test_what_is_no_answer_of_etcd(self):
        """Nothing but Unanswered comes of it, or what a member may say."""
        for answers in ANSWERS:
            with self.subTest([each[:30] for each in answers]):
                self.all_send(lambda call: answers)
                for name, *args in self.CALLS:
                    try:
                        getattr(self.log, name)(*args)
                    except (Missing, Unanswered):
                        pass
                self.is_well()

    def test_one_that_is_too_long(self):
        self.all_send(lambda call: [bytes(LONGEST + 1)])
        self.assertIn('larger than max', self.unanswered('ends'))
        self.is_well()

    def test_silence(self):
        def instead(call):
            call.wait_for_the_end()
            return []

        self.all_send(instead)
        self.assertIn('in time', self.unanswered('ends'))
        self.is_well()
