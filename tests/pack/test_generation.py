"""After a crash while one file takes the place of another: which is there?"""

import itertools
import os
import shutil
import time
import unittest
from unittest import mock

from ZODB.serialize import referencesf

from fsyncstorage import datafile
from fsyncstorage.pack import checksum
from fsyncstorage.pack import generation
from fsyncstorage.pack.agreed import Becoming
from fsyncstorage.pack.generation import Data
from fsyncstorage.pack.generation import Found
from fsyncstorage.pack.unopened import made

from ..support import TestCase
from ..support import commit
from ..support import oid
from .nodes import Cut
from .nodes import DiskThatEnds
from .nodes import Follower
from .nodes import Hooks
from .phases import fill


class Decisions(unittest.TestCase):

    def test_each(self):
        expected = {
            (Data.OLD, True): Found.READY, (Data.OLD, False): Found.OLD,
            (Data.NEW, True): Found.NEW, (Data.NEW, False): Found.NEW,
            (Data.MISSING, True): Found.READY,
            (Data.MISSING, False): Found.NEITHER,
            (Data.OTHER, True): Found.NEITHER,
            (Data.OTHER, False): Found.NEITHER}
        for given in itertools.product(Data, (True, False)):
            self.assertIs(generation.decide(*given), expected[given], given)


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


class EachCut(TestCase):
    """A node finds the right file after each of them, and goes on."""

    def setUp(self):
        super().setUp()
        for home in 'first', 'second':
            os.mkdir(self.path(home))
        storage = fill(self.open('first/Data.fs', pack_process=False))
        hooks = Hooks(storage)
        follower = Follower(storage, self.path('second/Data.fs'))
        self.addCleanup(follower.close)
        storage.pack(time.time() + 1, referencesf)
        storage.close()
        with open(self.path('first/Data.fs'), 'rb') as file:
            self.new = file.read()
        self.old = follower.content
        self.becoming = hooks.becoming
        follower.begins(hooks.begin, own_process=False)
        with made(follower.pack, follower.size, self.becoming).file:
            pass
        # The directory of a node that is about to replace its file.
        self.node = self.path('second')

    def look(self, path):
        return generation.look(path, self.becoming, lambda file: os.pread(
            file.fileno(), len(self.old) + 1, 0) == self.old)

    def test_each_cut(self):
        found = {True: set(), False: set()}
        for links in True, False:
            for keep_old in True, False:
                for left in itertools.count():
                    with self.subTest(links=links, left=left):
                        path = self.copy()
                        if self.is_over(path, left, links, keep_old):
                            break
                        found[links].add(self.look(path))
                        self.goes_on(path, links, keep_old)
                self.assertGreater(left, 3)
        for each in found.values():
            self.assertEqual(each, {Found.READY, Found.NEW})

    def copy(self):
        home = self.path('node')
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(self.node, home)
        return os.path.join(home, 'Data.fs')

    def is_over(self, path, left, links, keep_old):
        """Cut it short, if it does so much."""
        disk = DiskThatEnds(left, links)
        with mock.patch.object(datafile, 'disk', disk):
            try:
                generation.finish(path, keep_old)
            except Cut:
                return False
        self.is_new(path, keep_old)
        return True

    def is_new(self, path, keep_old):
        with open(path, 'rb') as file:
            self.assertEqual(file.read(), self.new)
        self.assertFalse(os.path.exists(path + '.pack'))
        if keep_old:
            with open(path + '.old', 'rb') as file:
                self.assertEqual(file.read(), self.old)

    def goes_on(self, path, links, keep_old):
        """The start after the cut, which is cut short anywhere, too."""
        for left in itertools.count():
            if self.look(path) is Found.NEW:
                break
            self.assertIs(self.look(path), Found.READY)
            if self.is_over(path, left, links, keep_old):
                break
        self.is_new(path, keep_old)
        storage = self.open(path)
        self.assertEqual(len(storage), 1)
        self.assertEqual(storage.getSize(), len(self.new))
        commit(storage, {1: b'x'})
        storage.close()
        self.assertIs(self.look(path), Found.NEW)
        self.assertEqual(self.open(path).load(oid(1))[0], b'x')
