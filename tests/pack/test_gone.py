"""The list of the objects that go: an undo beside a pack looks through it."""

import array
import os
import random
import tempfile
from types import SimpleNamespace
from unittest import mock

from fsyncstorage.datafile import Descriptor
from fsyncstorage.pack import marking
from fsyncstorage.pack.marking import Kept
from fsyncstorage.pack.restorable import Restorable
from fsyncstorage.pack.restorable import write_gone

from ..support import TestCase
from ..support import oid


class Gone(TestCase):

    def gone(self, kept, tell=lambda *progress: None):
        with tempfile.TemporaryFile() as file:
            write_gone(kept, file.fileno(), tell)
            found = Restorable(collects_garbage=True)
            found.learn(Descriptor(os.dup(file.fileno())))
        return found._gone

    @staticmethod
    def kept(numbers, marks=None, positions=None, targets=()):
        """Nothing is, unless the marks say so."""
        return Kept(
            SimpleNamespace(
                oids=array.array('Q', numbers),
                positions=array.array(
                    'Q', range(1, len(numbers) + 1)
                    if positions is None else positions)),
            bytearray(len(numbers) if marks is None else marks),
            frozenset(targets))

    def test_what_goes(self):
        """Its current record is not kept, and there is one."""
        rng = random.Random(1)
        for count in 0, 1, 6, 7, 8, 100:
            numbers = sorted(rng.sample(range(1 << 60), count))
            marks = [rng.randrange(3) for _ in numbers]
            positions = [rng.choice([0, *[100 + n] * 3])
                         for n in range(count)]
            targets = rng.sample(range(100, 100 + count), count // 4)
            with mock.patch.object(marking, '_OBJECTS', 7):
                gone = self.gone(self.kept(
                    numbers, marks, positions, targets))
            self.assertEqual([gone[n] for n in range(len(gone))], [
                oid(number) for number, mark, position
                in zip(numbers, marks, positions)
                if mark != 1 and position and position not in targets])

    def test_what_is_in_it(self):
        rng = random.Random(2)
        for count in 0, 1, 2, 3, 100:
            numbers = sorted(rng.getrandbits(64) for _ in range(count))
            gone = self.gone(self.kept(numbers))
            for number in numbers:
                self.assertIn(oid(number), gone)
                for other in number - 1, number + 1:
                    if 0 <= other < 2 ** 64:
                        self.assertNotIn(oid(other), gone)
            self.assertNotIn(b'\xff' * 8, gone)
