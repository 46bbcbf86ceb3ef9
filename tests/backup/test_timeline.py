"""A timeline is read in its order, and a chain that is broken is found."""

import hashlib
import unittest

from ZODB.utils import z64

from fsyncstorage.backup import bodies
from fsyncstorage.backup import head as heads
from fsyncstorage.backup import timeline
from fsyncstorage.backup.head import Damaged
from fsyncstorage.backup.head import Head
from fsyncstorage.backup.layout import Database
from fsyncstorage.backup.store import LARGEST
from fsyncstorage.backup.store import Exists
from fsyncstorage.backup.timeline import Gap
from fsyncstorage.backup.timeline import History

from ..support import oid
from .stores import Simple
from .stores import end_of_chain

DATABASE = Database('main')


class Timelines(unittest.TestCase):

    def setUp(self):
        self.store = Simple()
        timeline.begin(self.store, DATABASE, 1, 'the first')
        self.tip = timeline.START

    def history(self, number=1):
        return History(self.store, DATABASE, number)

    def add(self, number=1, **changes):
        """A segment of ten bytes; return its key."""
        body = bytes(10)
        head = Head(
            heads.SEGMENT, heads.WHOLE, self.tip.position,
            self.tip.position + 10, hashlib.sha256(body).digest(),
            tid=oid(self.tip.sequence + 1), oid=oid(self.tip.sequence + 7),
            before=self.tip.sum)._replace(**changes)
        key = DATABASE.timeline(number).segment(self.tip.sequence)
        self.store.objects[key] = head.pack() + body
        self.tip = timeline.tip_behind(head, self.tip.sequence)
        return key

    def end(self):
        key = DATABASE.timeline(1).segment(self.tip.sequence)
        body = bodies.document({})
        head = timeline.head_of(heads.END, body, self.tip.sum)
        self.store.objects[key] = head.pack() + body

    def fork(self, number=2):
        timeline.begin(self.store, DATABASE, number, 'a test',
                       self.tip.sequence, number - 1)

    def read(self, number=1):
        return end_of_chain(self.store, self.history(number))

    def test_it_is_read_to_its_end(self):
        self.assertEqual(self.read(), timeline.START)
        for _ in range(3):
            self.add()
        self.assertEqual(self.read(), self.tip)
        self.assertEqual((self.tip.sequence, self.tip.position), (3, 30))
        sequence, entry = self.history().last()
        self.assertEqual((sequence, entry.key),
                         (2, DATABASE.timeline(1).segment(2)))

    def test_there_is_one_begin(self):
        with self.assertRaises(Exists):
            timeline.begin(self.store, DATABASE, 1, 'the second')

    def test_the_newest(self):
        self.assertEqual(timeline.newest(Simple(), DATABASE), 0)
        self.assertEqual(timeline.newest(self.store, DATABASE), 1)
        self.fork()
        self.assertEqual(timeline.newest(self.store, DATABASE), 2)

    def test_each_gap_is_found(self):
        keys = [self.add() for _ in range(4)]
        for key in keys[:-1]:
            kept = self.store.objects.pop(key)
            with self.assertRaisesRegex(Gap, f'{key} is missing'):
                self.history().last()
            self.store.objects[key] = kept

    def test_what_does_not_continue_the_chain(self):
        """Another sum before, start, tid or oid."""
        for changes in (
                {'before': bytes(32)}, {'start': 9}, {'start': 11, 'end': 12},
                {'tid': z64}, {'tid': oid(1)}, {'oid': oid(6)}):
            with self.subTest(changes):
                self.setUp()
                self.add()
                self.add(**changes)
                with self.assertRaises(Damaged):
                    self.read()

    def pack(self, **changes):
        """A pack that leaves five bytes; return its key."""
        return self.add(**{
            'kind': heads.PACK, 'form': heads.ELSEWHERE, 'start': 0, 'end': 5,
            'generation': self.tip.generation + 1, 'tid': self.tip.tid,
            'oid': self.tip.oid, **changes})

    def test_a_pack_begins_a_generation(self):
        self.add()
        self.pack()
        self.assertEqual(self.tip[:2], (2, 5))
        self.add(generation=1)
        self.pack()
        self.assertEqual(self.read(), self.tip)
        self.assertEqual([self.history().pack(number, range(4))[0]
                          for number in (1, 2)], [1, 3])

    def test_what_is_of_another_generation(self):
        for changes in {'generation': 2}, {'tid': oid(7)}, {'oid': z64}:
            with self.subTest(changes):
                self.setUp()
                self.add()
                self.pack(**changes)
                with self.assertRaises(Damaged):
                    self.read()
        for generation in 0, 2:
            self.setUp()
            self.add()
            self.pack()
            self.add(generation=generation)
            with self.assertRaises(Damaged):
                self.read()

    def test_the_end_of_a_timeline(self):
        self.add()
        before = self.tip
        self.end()
        self.assertEqual(self.read()[1:2], before[1:2])

    def test_a_child_goes_on_where_it_leaves_its_parent(self):
        self.add()
        self.add()
        self.fork()
        at_the_fork = self.tip
        self.add(2)
        child = self.tip
        self.assertEqual(self.read(2), child)
        self.assertEqual((child.sequence, child.position), (3, 30))
        # What the parent gets later is not the child's.
        self.tip = at_the_fork
        self.add(1)
        self.add(1)
        self.assertEqual(self.read(2), child)
        names = self.history(2).names_of
        self.assertEqual([names(number).number for number in range(4)],
                         [1, 1, 2, 2])

    def test_a_child_of_a_child_that_has_nothing(self):
        self.add()
        self.fork()
        self.fork(3)
        self.add(3)
        self.assertEqual(self.read(3), self.tip)

    def test_a_parent_that_ends_before_the_fork(self):
        self.add()
        key = self.add()
        self.fork()
        self.add(2)
        del self.store.objects[key]
        with self.assertRaisesRegex(Gap, f'{key} is missing'):
            self.read(2)

    def test_a_fork_that_is_not_the_parents(self):
        self.add()
        self.tip = self.tip._replace(sum=bytes(32))
        self.fork()
        self.add(2)
        with self.assertRaisesRegex(Damaged, 'does not continue'):
            self.read(2)

    def test_a_begin_of_a_hostile_store(self):
        key = DATABASE.timeline(1).begin
        good = {'created': 0, 'why': '', 'parent': 0, 'sequence': 0}
        for changes in (
                {'parent': 1}, {'parent': -1}, {'sequence': -1},
                {'sequence': 1}, {'created': None}, {'sequence': heads.LIMIT},
                {'sequence': 10 ** 4000}):
            body = bodies.document({**good, **changes})
            self.store.objects[key] = timeline.head_of(
                heads.BEGIN, body).pack() + body
            with self.assertRaisesRegex(Damaged, key):
                self.history()

    def test_something_else_in_the_log(self):
        self.store.create(DATABASE.timeline(1).log + '/readme', b'')
        with self.assertRaisesRegex(Damaged, 'readme'):
            self.history().last()

    def test_a_heartbeat_that_is_damaged_is_none(self):
        names = DATABASE.timeline(1)
        self.assertIsNone(timeline.read_heartbeat(self.store, names))
        for data in b'', b'x', bytes(LARGEST + 1):
            self.store.overwrite(names.heartbeat, data)
            self.assertIsNone(timeline.read_heartbeat(self.store, names))
