"""After a crash while one file takes the place of another: which is there?"""

import os

from fsyncstorage import datafile
from fsyncstorage.pack import checksum
from fsyncstorage.pack import generation
from fsyncstorage.pack.agreed import Becoming
from fsyncstorage.pack.generation import Found

from ..support import TestCase


class Looks(TestCase):

    OLD, NEW = b'old' * 100, b'new' * 50

    def setUp(self):
        super().setUp()
        self.write('new', self.NEW)
        with open(self.path('new'), 'rb') as file:
            self.becoming = Becoming(len(self.NEW), checksum.of_first(
                file.fileno(), len(self.NEW)))

    def write(self, name, content):
        with open(self.path(name), 'wb') as file:
            file.write(content)

    def look(self, data=None, packed=None):
        for name, content in ('Data.fs', data), ('Data.fs.pack', packed):
            datafile.remove_if_there(self.path(name))
            if content is not None:
                self.write(name, content)
        return self.again()

    def again(self):
        before = sorted(os.listdir(self.directory))
        found = generation.look(self.path(), self.becoming, lambda file:
                                os.pread(file.fileno(), 3, 0) == b'old')
        self.assertEqual(sorted(os.listdir(self.directory)), before)
        return found

    def test_what_is_there(self):
        old, new = self.OLD, self.NEW
        self.assertIs(self.look(old, new), Found.READY)
        self.assertIs(self.look(old), Found.OLD)
        self.assertIs(self.look(None, new), Found.READY)
        self.assertIs(self.look(new), Found.NEW)
        self.assertIs(self.look(new, new), Found.NEW)
        self.assertIs(self.look(), Found.NEITHER)
        self.assertIs(self.look(b'other' * 100, new), Found.NEITHER)

    def test_what_was_appended_to_the_new_one(self):
        """Since it has the name; not before."""
        self.assertIs(self.look(self.NEW + b'more'), Found.NEW)
        self.assertIs(self.look(self.OLD, self.NEW + b'more'), Found.OLD)

    def test_a_new_one_that_is_not_whole(self):
        for wrong in self.NEW[:-1], b'', self.NEW.replace(b'w', b'v', 1):
            self.assertIs(self.look(self.OLD, wrong), Found.OLD)
            self.assertIs(self.look(wrong), Found.NEITHER)
            self.assertIs(self.look(None, wrong), Found.NEITHER)

    def test_what_is_no_file(self):
        self.look(self.OLD)
        os.mkfifo(self.path('Data.fs.pack'))
        self.assertIs(self.again(), Found.OLD)
        os.rename(self.path('Data.fs.pack'), self.path())
        self.assertIs(self.again(), Found.NEITHER)
