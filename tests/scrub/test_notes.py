"""What a scrub notes is there after a restart, and is believed if it can
be."""

import json
import os
from unittest import mock

from fsyncstorage import datafile
from fsyncstorage.scrub import notes
from fsyncstorage.scrub.notes import Notes
from fsyncstorage.scrub.notes import Pass
from fsyncstorage.scrub.notes import Past

from ..support import TestCase

PASS = Pass(1700000000, 5000, (1 << 64) - 1, 7, 2, 1, 3, 100, 4000)
PAST = Past(9, 1690000000, 1, 70, 70)


class NotesTests(TestCase):

    def setUp(self):
        super().setUp()
        self.name = self.path('Data.fs.scrub')

    def write(self, content):
        with open(self.name, 'wb') as file:
            file.write(content)

    def test_what_is_saved_is_loaded(self):
        for saved in Notes(PASS, PAST), Notes(Pass(0), Past()):
            notes.save(self.name, saved)
            self.assertEqual(notes.load(self.name), saved)
        self.assertEqual(os.listdir(self.directory), ['Data.fs.scrub'])

    def test_the_old_ones_stay_until_the_new_ones_are_durable(self):
        notes.save(self.name, Notes(PASS, PAST))
        disk = self.controlled_disk()
        disk.fail_sync(OSError(28, 'full'))
        with self.assertRaises(OSError):
            notes.save(self.name, Notes(Pass(0), Past()))
        self.assertEqual(notes.load(self.name), Notes(PASS, PAST))

        def replace(new, name):
            self.assertEqual(disk.log[-1], 'sync')
            self.assertEqual(notes.load(self.name), Notes(PASS, PAST))
            os.rename(new, name)

        with mock.patch.object(disk, 'replace', replace):
            notes.save(self.name, Notes(Pass(0), Past()))
        self.assertEqual(notes.load(self.name), Notes(Pass(0), Past()))

    def test_what_cannot_be(self):
        notes.save(self.name, Notes(PASS, PAST))
        with open(self.name, 'rb') as file:
            good = file.read()
        current, past = json.loads(good)
        wrong = [b'', b'\0' * 200, b'\xff', good[:-1], good + b'x',
                 b'[' * 4000, b'9' * 4000, b'7', b'[]', b'[1, 2]', b'{}',
                 b'[{}, {}, {}]', b'[{}, {}]', b' ' * 5000 + good]
        for change in (
                {'position': -1}, {'position': '4'}, {'position': None},
                {'position': 1 << 64}, {'tid': 1.5}, {'tid': True},
                {'damaged': []}, {'damaged': 0},
                {'first_damaged': None}, {'last_damaged': None},
                {'first_damaged': 4001}, {'more': 1}):
            wrong.append(json.dumps([{**current, **change}, past]).encode())
            wrong.append(json.dumps([current, {**past, **change}]).encode())
        self.assertIsNotNone(notes.load(self.name))
        for content in wrong:
            # (A Past has no position.)
            with self.subTest(content[:200]):
                self.write(content)
                self.assertIsNone(notes.load(self.name))

    def test_no_file_and_no_regular_file(self):
        self.assertIsNone(notes.load(self.name))
        os.mkfifo(self.name)  # an open would wait for a writer
        self.assertIsNone(notes.load(self.name))

    def test_a_link_in_the_place_of_the_new_file(self):
        """What it leads to is not written to."""
        self.write(b'data')
        datafile.disk.link(self.name, self.path('Data.fs.scrub.new'))
        os.rename(self.name, self.path('precious'))
        notes.save(self.name, Notes(PASS, PAST))
        with open(self.path('precious'), 'rb') as file:
            self.assertEqual(file.read(), b'data')

    def test_known_damage(self):
        """A pass that is under way has not seen all of it again."""
        for current, past, known in (
                (Pass(0), Past(), (0, None)),
                (Pass(0), PAST, (1, 70)),
                (PASS, Past(), (3, 100)),
                (PASS, PAST, (3, 100)),
                (Pass(0, damaged=1, first_damaged=9, last_damaged=9),
                 Past(1, 5, 4, 8, 50),
                 (4, 9))):
            self.assertEqual(Notes(current, past).known_damage(), known)
        self.assertEqual(Notes(PASS, PAST).places_of_damage(),
                         [70, 100, 4000])
        self.assertEqual(Notes(Pass(0), Past()).places_of_damage(), [])

    def test_a_pass_that_has_begun_anew(self):
        """What was found before stays known until it has ended."""
        found = Notes(PASS, PAST).after(Pass(7, 300, 8, 9))
        self.assertEqual(found.current, Pass(7, 300, 8, 9))
        self.assertEqual(found.past, Past(9, 1690000000, 3, 100, 4000))
        self.assertEqual(Notes(PASS, PAST).after(PASS), Notes(PASS, PAST))
        self.assertEqual(
            found.after_the_end(Pass(7, 900, 8, 9), 8).known_damage(),
            (0, None))
