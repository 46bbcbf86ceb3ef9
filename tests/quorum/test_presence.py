"""What a node says of itself in the log, and what it hears of the others."""

import math

from fsyncstorage.quorum.history.record import Damaged
from fsyncstorage.quorum.history.record import Place
from fsyncstorage.quorum.history.record import node_name
from fsyncstorage.quorum.log.notes import Author
from fsyncstorage.quorum.log.notes import Health
from fsyncstorage.quorum.log.notes import Note
from fsyncstorage.quorum.log.notes import parse_note
from fsyncstorage.quorum.roles import presence as module
from fsyncstorage.quorum.roles.presence import Presence
from fsyncstorage.quorum.roles.probing import Probing

from ..support import TestCase
from .fakelog import Engine
from .fakelog import FakeLog
from .samples import LOG
from .samples import OTHER
from .samples import SELF

A, B = node_name('a'), node_name('b')
LEASE = 10.0
WELL = Health(1e9, 0.5, True, '')


def place(sequence):
    return Place(sequence, bytes(16))


class PresenceTest(TestCase):
    """By a clock of the test; the thread is not started, but where a test says
    so."""

    def setUp(self):
        super().setUp()
        self.engine = Engine(LOG)
        self.now = 0.0
        self.noted = 0
        self.said = place(5), True, ''
        self.presence = Presence(
            FakeLog(self.engine), LEASE, LEASE, Probing([], [], 1.0),
            lambda: self.said)
        self.presence._author = Author(A, SELF)
        self.patch(module, time=self)

    def monotonic(self):
        return self.now

    def time(self):
        return 1e9 + self.now

    def turn(self, seconds=0.0):
        self.now += seconds
        self.presence._turn()

    def note(self, sequence=5, health=WELL):
        """A later one each time."""
        self.noted += 1
        health = health._replace(time=health.time + self.noted)
        self.engine.note(B, Note(OTHER, place(sequence), health).packed())

    def others(self):
        return self.presence.stats()['b']


class Says(PresenceTest):

    def test_how_it_is(self):
        self.said = place(7), False, 'no room'
        self.turn(3.0)
        self.assertEqual(parse_note(self.engine.kept[A]), Note(
            SELF, place(7), Health(1e9 + 3, math.inf, False, 'no room')))

    def test_what_is_wrong_with_its_disk(self):
        self.presence.probing.trouble = 'an error'
        self.turn()
        self.assertEqual(
            parse_note(self.engine.kept[A]).health.trouble, 'an error')
        self.presence.probing.trouble = None
        self.presence.probing.room = 3 << 20
        self.turn()
        health = parse_note(self.engine.kept[A]).health
        self.assertEqual((health.could_lead, health.trouble), (
            False, 'its disk is full: 3 MB are left'))

    def test_a_note_of_any_bytes(self):
        """Those that are none are refused; a long trouble is cut."""
        good = Note(SELF, place(7), WELL).packed()
        for raw in b'', good[:-1], good + bytes(2000):
            self.assertRaises(Damaged, parse_note, raw)
        for figures in (math.nan, 1), (math.inf, 1), (-1, 1), (1, math.nan):
            time, age = figures
            raw = Note(SELF, place(7), WELL._replace(time=time, age=age))
            self.assertRaises(Damaged, parse_note, raw.packed())
        self.assertEqual(parse_note(good + b'\xff').health.trouble, '\ufffd')
        self.assertEqual(parse_note(good + b'a\nb\x1b').health.trouble, 'a b ')
        long = Note(SELF, place(7), WELL._replace(trouble='é' * 3000))
        self.assertTrue(parse_note(long.packed()).health.trouble)

    def test_a_name_that_another_node_has_now(self):
        """It was forgotten, and another one was made in its place: what that
        has noted must stay."""
        self.turn()
        another = Note(OTHER, place(3)).packed()
        self.engine.kept[A] = another
        self.turn()
        self.assertIn('another node of the name', self.presence.taken)
        self.assertIn('fsync-quorum forget', self.presence.taken)
        self.assertEqual(self.engine.kept[A], another)



class Hears(PresenceTest):

    def test_another_one_could_lead(self):
        """Its note has come while we look, and its probe is young."""
        self.note()
        self.turn()
        self.assertFalse(self.presence.another_could_lead)
        self.note()
        self.turn()
        self.assertTrue(self.presence.another_could_lead)
        self.now += 0.4 * LEASE - 0.6
        self.assertTrue(self.presence.another_could_lead)
        self.now += 0.2
        self.assertFalse(self.presence.another_could_lead)

    def test_old_notes_of_a_wrong_member(self):
        """They come in turns with the last one, and are not new."""
        self.note(4)
        old = self.engine.kept[B]
        self.turn()
        self.note(5)
        last = self.engine.kept[B]
        self.turn()
        for _ in range(20):
            for self.engine.kept[B] in old, last:
                self.turn(0.1 * LEASE)
        self.assertFalse(self.presence.another_could_lead)
        self.assertIn('does it run?', self.others()['trouble'])
        self.assertEqual(self.presence.latest_kept, -1)

    def test_one_that_could_not(self):
        self.note()
        self.turn()
        for changed in {'could_lead': False}, {'age': math.inf}, {
                'age': math.nan}:
            self.note(health=WELL._replace(**changed))
            self.turn()
            self.assertFalse(self.presence.another_could_lead)

    def test_how_far_those_are_that_could_lead(self):
        """(What another one has kept may be in its spool alone.)"""
        self.note()
        self.turn()
        self.note(7)
        self.turn()
        self.assertEqual(self.presence.latest_kept, 7)
        self.note(8, WELL._replace(could_lead=False))
        self.turn()
        self.assertEqual(self.presence.latest_kept, -1)

    def test_how_far_it_is_behind(self):
        self.note(sequence=5)
        self.turn()
        self.assertEqual(self.others()['lag'], 0)
        for sequence in 6, 7, 8:
            self.said = place(sequence), True, ''
            self.turn(1.0)
        self.assertEqual(self.others()['lag'], 2.0)
        self.note(sequence=7)
        self.turn()
        self.assertEqual(self.others()['lag'], 0.0)
        self.now += 4.0
        self.assertEqual(self.others()['lag'], 4.0)

    def test_what_is_logged(self):
        """Each trouble once, when it begins, changes, or ends."""
        self.note()
        self.turn()
        with self.assertLogs('fsyncstorage', 'WARNING') as logs:
            for trouble in '', 'no room', 'no room', 'no disk', '':
                self.note(health=WELL._replace(trouble=trouble))
                self.turn()
                self.presence.log_trouble()
            for _ in range(2):
                self.turn(3 * LEASE + 0.1)
                self.presence.log_trouble()
            self.engine.forget(B)
            self.turn()
            self.presence.log_trouble()
        said = [each.rpartition('the node b ')[2] for each in logs.output]
        self.assertEqual(said[:3], [
            'is in trouble: no room', 'is in trouble: no disk',
            'has no trouble any more'])
        self.assertIn('does it run?', said[3])
        self.assertEqual(said[4:], ['has no trouble any more'])
