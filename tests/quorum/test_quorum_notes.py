"""What a node finds in the place of its own note."""

import contextlib

from fsyncstorage.quorum.history.record import Place
from fsyncstorage.quorum.log.interface import Unanswered
from fsyncstorage.quorum.log.notes import REMEMBERED
from fsyncstorage.quorum.log.notes import Author
from fsyncstorage.quorum.log.notes import Note

from ..support import TestCase
from .fakelog import Engine
from .fakelog import FakeLog
from .samples import LOG
from .samples import SELF

NODE = b'node'.ljust(16)
NOTES = 'fsyncstorage.quorum.log.notes'


def place(sequence, link=b'l'):
    return Place(sequence, link * 16)


class ACopyOfItRuns(TestCase):
    """A process with the same name and identity notes, too."""

    def setUp(self):
        super().setUp()
        self.engine = Engine(LOG)
        self.log = FakeLog(self.engine)
        self.author = Author(NODE, SELF)

    def claim(self, *sequences):
        for each in sequences:
            self.author.claim(self.log, place(each))

    def is_noted(self, sequence, **options):
        """By whichever process."""
        self.engine.note(NODE, Note(SELF, place(sequence, **options)).packed())

    @contextlib.contextmanager
    def is_said(self):
        with self.assertLogs(NOTES, 'WARNING') as said:
            yield
        self.assertEqual(len(said.output), 1)
        self.assertIn('runs under its name', said.output[0])

    @contextlib.contextmanager
    def nothing_is_said(self):
        with self.assertNoLogs(NOTES):
            yield

    def test_it_is_said_once(self):
        self.claim(10)
        with self.is_said():
            for each in 12, 14, 16:
                self.is_noted(each)
                self.claim(each + 1)
        self.assertEqual(self.engine.kept[NODE],
                         Note(SELF, place(17)).packed())

    def test_it_is_ahead(self):
        self.claim(10)
        self.is_noted(20)
        with self.is_said():
            self.claim(10)

    def test_it_is_at_the_same_place(self):
        """This looks as it does without a copy."""
        self.claim(10, 12)
        with self.nothing_is_said():
            self.is_noted(14)
            self.claim(14)

    def test_a_note_from_before_it_began(self):
        """It may be later than what this node has kept: it came back from its
        own backup, and reads the log to the end before it notes."""
        for each in 1, 9, 10:
            with self.nothing_is_said():
                self.is_noted(each)
                self.claim(10)

    def test_an_own_note_that_arrives_late(self):
        self.claim(*range(10, 30))
        for each in 29, 20, 10, 3:
            with self.nothing_is_said():
                self.is_noted(each)
                self.claim(30)

    def test_an_own_note_that_it_does_not_remember(self):
        self.claim(*range(10, 20 + REMEMBERED))
        with self.nothing_is_said():
            self.is_noted(11)
            self.claim(30 + REMEMBERED)

    def test_a_note_that_was_not_answered_and_arrives_late(self):
        self.claim(10)
        note = self.log.note

        def arrives_late(node, raw):
            self.log.note = note
            raise Unanswered('no answer')

        self.log.note = arrives_late
        with self.nothing_is_said():
            with self.assertRaises(Unanswered):
                self.claim(12)
            self.claim(14)
            self.is_noted(12)
            self.claim(16)

    def test_one_member_shows_an_old_note(self):
        self.claim(10, 12, 14)
        self.engine.kept_by[1] = {NODE: Note(SELF, place(12)).packed()}
        with self.nothing_is_said():
            self.claim(14, 16)

    def test_its_note_was_forgotten(self):
        self.claim(10, 12)
        self.engine.forget(NODE)
        with self.nothing_is_said():
            self.claim(14)

    def test_a_note_of_other_bytes(self):
        self.claim(10)
        self.engine.note(NODE, SELF + b'nonsense')
        with self.nothing_is_said():
            self.claim(12)
