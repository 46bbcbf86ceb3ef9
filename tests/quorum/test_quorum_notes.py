"""What a node finds in the place of its own note."""

import contextlib

from fsyncstorage.quorum.history.record import Place
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

    def test_an_own_note_that_arrives_late(self):
        self.claim(*range(10, 30))
        for each in 29, 20, 10, 3:
            with self.nothing_is_said():
                self.is_noted(each)
                self.claim(30)
