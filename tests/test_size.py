"""`make size`: rooms, ceilings, and what belongs to no room."""

import contextlib
import io
import os
import pathlib
from unittest import mock

from . import size
from .support import TestCase

TABLE = """
# a room, its ceiling, its paths
room     3  src/room src/*
inner    -  src/room/inner
all-src  4  src
docs     5  docs
"""


class Sizes(TestCase):

    def setUp(self):
        super().setUp()
        self.paths = []
        self.write('ceilings.txt', TABLE)
        self.write('src/room/a.py', 'a = 1\n\n# b\n')
        self.write('src/room/inner/b.css', 'x {}\n')
        self.write('docs/a.rst', 'one two\nthree')

    def write(self, path, text):
        made = pathlib.Path(self.directory, path)
        os.makedirs(made.parent, exist_ok=True)
        made.write_text(text)
        self.paths.append(path)

    def run_it(self):
        home = pathlib.Path(self.directory)
        with mock.patch.multiple(
                size, HOME=home, CEILINGS=home / 'ceilings.txt',
                tracked=lambda: self.paths), \
                contextlib.redirect_stdout(io.StringIO()) as out:
            return size.main(), out.getvalue()

    def test_all_is_well(self):
        status, out = self.run_it()
        self.assertEqual(status, 0)
        found = {words[0]: words[1:] for words in map(str.split, (
            out.splitlines()[1:]))}
        self.assertEqual(found, {
            'room': ['3', '3', '1.00'], 'inner': ['1', '3.00'],
            'all-src': ['4', '4', '1.50'], 'docs': ['3', '5']})

    def test_one_line_too_many(self):
        self.write('src/room/c.py', '#\n')
        status, out = self.run_it()
        self.assertEqual(status, 1)
        self.assertIn('room is above its ceiling', out)
        self.assertIn('all-src is above its ceiling', out)

    def test_too_many_words(self):
        self.write('docs/b.rst', 'four five six')
        status, out = self.run_it()
        self.assertEqual(status, 1)
        self.assertIn('docs is above its ceiling', out)

    def test_a_directory_that_belongs_to_no_room(self):
        self.write('src/other/a.py', '')
        self.write('lib/code.c', '')
        status, out = self.run_it()
        self.assertEqual(status, 1)
        for directory in 'src/other', 'lib':
            self.assertIn(f'{directory} belongs to no room', out)

    def test_what_is_in_work_is_in_no_sum(self):
        self.write('ceilings.txt', TABLE + 'in-work-too  -  src/new\n')
        self.write('src/new/a.py', 'a = 1\n')
        status, out = self.run_it()
        self.assertEqual(status, 0)
        self.assertRegex(out, r'in-work-too +1 ')

    def test_all_code_of_this_project_has_a_room(self):
        table = list(size.rows(size.CEILINGS.read_text()))
        self.assertEqual([path for path in size.tracked() if size.is_code(path)
                          and size.room_of(path, table) is None], [])
