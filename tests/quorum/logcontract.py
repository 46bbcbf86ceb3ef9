"""What any engine promises: the same tests for each."""

import threading

from fsyncstorage.quorum.history.record import LARGEST
from fsyncstorage.quorum.history.record import MOST
from fsyncstorage.quorum.history.record import Ends
from fsyncstorage.quorum.history.record import Place
from fsyncstorage.quorum.log.interface import HOLDER
from fsyncstorage.quorum.log.interface import NOTE
from fsyncstorage.quorum.log.interface import Exists
from fsyncstorage.quorum.log.interface import Missing
from fsyncstorage.quorum.log.interface import Moved
from fsyncstorage.quorum.log.interface import Trimmed
from fsyncstorage.quorum.log.interface import Unanswered

from ..support import PATIENCE
from .samples import LOG
from .samples import OTHER

A, B = b'a node'.ljust(16), b'another node'.ljust(16)
START = Place(0, LOG)


def place(sequence, letter=b'x'):
    return Place(sequence, letter * 16)


class Contract:
    """Mixed with a TestCase whose `another` opens one log once more: where no
    log was created yet."""

    def setUp(self):
        super().setUp()
        self.log = self.another()
        self.log.create(LOG)

    def append(self, *records):
        for raw in records:
            before = self.log.ends().head
            self.log.append(before, place(before.sequence + 1), raw)

    # The log

    def test_an_empty_log(self):
        self.assertEqual(self.log.ends(), Ends(LOG, 1, START))
        self.assertEqual(list(self.log.read(1)), [])

    def test_it_is_created_once(self):
        for identity in LOG, OTHER:
            with self.assertRaises(Exists):
                self.log.create(identity)
        self.append(b'1')
        with self.assertRaises(Exists):
            self.log.create(OTHER)
        self.assertEqual(self.log.ends(), Ends(LOG, 1, place(1)))

    def test_each_member_says_the_same(self):
        self.append(b'1', b'2')
        self.assertGreaterEqual(self.log.members, 3)
        for member in range(2 * self.log.members):
            self.assertEqual(self.log.ends(member), Ends(LOG, 1, place(2)))

    # Records

    def test_records_are_read_in_their_order(self):
        self.append(b'1', b'2', b'3')
        self.assertEqual(self.log.ends(), Ends(LOG, 1, place(3)))
        for member in None, *range(self.log.members):
            for first in range(1, 5):
                self.assertEqual(self.read_on(first, member), [
                    b'1', b'2', b'3'][first - 1:])

    def read_on(self, sequence, member=None):
        found = []
        while some := self.log.read(sequence + len(found), member):
            found.extend(some)
        return found

    def test_many_records_are_read(self):
        records = [b'%d' % number for number in range(100)]
        self.append(*records)
        self.assertEqual(self.read_on(1), records)

    def test_the_largest_records(self):
        records = [bytes([number]) * LARGEST for number in range(1, 4)]
        self.append(b'small', *records, b'small')
        self.assertEqual(
            self.read_on(1), [b'small', *records, b'small'])

    def test_an_append_needs_the_head(self):
        self.append(b'1')
        for before in START, place(1, b'y'), place(2):
            with self.assertRaises(Moved):
                self.log.append(before, place(before.sequence + 1), b'other')
        self.assertEqual(list(self.log.read(1)), [b'1'])

    def test_an_append_in_two_halves(self):
        self.log.ask(START, place(1), b'1')
        self.log.answered()
        self.assertEqual(list(self.log.read(1)), [b'1'])
        self.log.ask(START, place(1), b'other')
        with self.assertRaises(Moved):
            self.log.answered()

    def test_one_whose_answer_nobody_waits_for(self):
        self.log.ask(START, place(1), b'1')
        while not self.log.read(1):
            pass
        self.log.ask(place(1), place(2), b'2')
        self.log.answered()
        self.assertEqual(self.read_on(1), [b'1', b'2'])

    def test_one_of_two_writers(self):
        """Both offer a record at each place, and one of them gets it in."""
        logs = [self.another(), self.another()]
        got = [[], []]

        def write(which):
            before = START
            while before.sequence < 30:
                after = place(before.sequence + 1, b'%d' % which)
                try:
                    logs[which].append(before, after, b'%d' % which)
                    got[which].append(after.sequence)
                except Moved:
                    pass
                before = logs[which].ends().head

        writers = [threading.Thread(target=write, args=(which,))
                   for which in range(2)]
        for each in writers:
            each.start()
        for each in writers:
            each.join(PATIENCE)
        found = self.read_on(1)
        for which in range(2):
            self.assertEqual(got[which], [
                number for number, raw in enumerate(found, 1)
                if raw == b'%d' % which])

    # Trimming

    def test_a_trim(self):
        self.append(b'1', b'2', b'3')
        self.log.trim(3)
        self.log.trim(2)
        self.assertEqual(self.log.ends(), Ends(LOG, 3, place(3)))
        for member in None, *range(self.log.members):
            with self.assertRaises(Trimmed):
                self.log.read(2, member)
            self.assertEqual(list(self.log.read(3, member)), [b'3'])

    def test_a_trim_of_all(self):
        self.append(b'1', b'2')
        self.log.trim(3)
        self.assertEqual(self.log.ends(), Ends(LOG, 3, place(2)))
        self.assertEqual(list(self.log.read(3)), [])
        self.append(b'3')
        self.assertEqual(list(self.log.read(3)), [b'3'])

    def test_a_trim_with_nothing_to_remove(self):
        self.append(b'1')
        for _ in range(3):
            self.log.trim(1)
        self.assertEqual(list(self.log.read(1)), [b'1'])

    # The lease

    def test_one_has_the_lease(self):
        other = self.another()
        self.assertIsNone(self.log.holder())
        self.assertTrue(self.log.hold(A, 60))
        self.assertEqual(other.hold(B, 60), 0)
        self.assertEqual(self.log.holder(), A)
        self.assertEqual(other.holder(), A)

    def test_a_free_lease_is_taken_only_by_one_that_may(self):
        self.assertEqual(self.log.hold(A, 60, lambda: False), 0)
        self.assertIsNone(self.log.holder())
        self.assertTrue(self.log.hold(A, 60, lambda: True))
        self.assertTrue(self.log.hold(A, 60, lambda: False))  # to keep it

    def test_a_lease_that_is_kept(self):
        term = self.log.hold(A, 60)
        self.assertGreater(term, 0)
        for _ in range(3):
            self.assertEqual(self.log.hold(A, 60), term)

    def test_a_lease_is_given_back(self):
        other = self.another()
        term = self.log.hold(A, 60)
        other.let_go(B)
        self.assertEqual(self.log.holder(), A)
        self.log.let_go(A)
        self.assertIsNone(self.log.holder())
        second = other.hold(B, 60)
        self.assertGreater(second, term)
        self.assertEqual(self.log.hold(A, 60), 0)
        other.let_go(B)
        self.assertGreater(self.log.hold(A, 60), second)

    def test_the_later_self_of_a_holder_has_it_at_once(self):
        """In another term: the earlier one may be there yet."""
        term = self.log.hold(A, 60)
        later = self.another().hold(A, 60)
        self.assertGreater(later, term)
        self.assertGreater(self.log.hold(A, 60), later)

    def test_the_longest_name(self):
        name = bytes(range(HOLDER))
        self.assertTrue(self.log.hold(name, 60))
        self.assertEqual(self.log.holder(), name)

    # Notes

    def test_notes(self):
        self.assertEqual(self.log.notes(), {})
        self.log.note(A, b'first')
        self.log.note(B, bytes(range(256)) * (NOTE // 256))
        self.log.note(A, b'')
        self.assertEqual(self.another().notes(), {
            A: b'', B: bytes(range(256)) * (NOTE // 256)})
        self.log.forget(A)
        self.log.forget(A)
        for member in None, *range(self.log.members):
            self.assertEqual(list(self.log.notes(member)), [B])

    # Staged blobs

    def test_staged_blobs(self):
        large = bytes(range(256)) * (MOST // 256)
        self.assertEqual(self.log.all_staged(), set())
        self.log.stage(A, 0, large)
        for _ in range(2):
            self.log.stage(A, 1, b'the rest')
        self.log.stage(B, 0, b'')
        for member in None, *range(self.log.members):
            self.assertEqual(self.log.staged(A, 0, member), large)
            self.assertEqual(self.log.staged(A, 1, member), b'the rest')
            self.assertEqual(self.log.staged(B, 0, member), b'')
            self.assertIsNone(self.log.staged(A, 2, member))
        self.assertEqual(self.log.all_staged(), {A, B})

    def test_blobs_that_are_removed(self):
        ids = [b'%016d' % number for number in range(250)]
        for id in ids:
            for number in range(2):
                self.log.stage(id, number, b'chunk')
        self.assertEqual(self.log.all_staged(), set(ids))
        self.log.unstage(iter(ids[1:]))
        self.assertEqual(self.log.all_staged(), {ids[0]})
        self.assertEqual(self.log.staged(ids[0], 1), b'chunk')
        self.assertIsNone(self.log.staged(ids[1], 1))
        self.log.unstage([])

    # The end

    def test_after_a_stop_nothing_is_answered(self):
        self.log.stop()
        self.log.ask(START, place(1), b'1')
        for name, *args in (
                ('answered',), ('create', LOG), ('ends',),
                ('append', START, place(1), b'1'), ('read', 1),
                ('trim', 1), ('hold', A, 1), ('holder',), ('let_go', A),
                ('note', A, b''), ('notes',), ('forget', A),
                ('stage', A, 0, b''), ('staged', A, 0), ('unstage', [A]),
                ('all_staged',)):
            with self.subTest(name), self.assertRaises(Unanswered):
                getattr(self.log, name)(*args)


class WithoutALog:
    """The same, where none was created."""

    def test_it_is_missing(self):
        log = self.another()
        for member in None, *range(log.members):
            with self.assertRaises(Missing):
                log.ends(member)

    def test_one_of_two_that_create_it(self):
        logs = [self.another(), self.another()]
        logs[0].create(LOG)
        with self.assertRaises(Exists):
            logs[1].create(OTHER)
        self.assertEqual(logs[1].ends(), Ends(LOG, 1, START))
