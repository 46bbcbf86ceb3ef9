"""The large file of the campaigns."""

import contextlib

from ZODB.FileStorage import FileStorage
from ZODB.serialize import referencesf
from ZODB.utils import p64

from fsyncstorage.check import verify
from fsyncstorage.format.window import Window
from perf import contents

from ..support import TestCase


class ContentsTests(TestCase):

    level = 2
    OBJECTS = 2500      # the last folder is not full

    def test_the_file_is_sound(self):
        records = contents.build(self.path(), self.OBJECTS)
        with open(self.path(), 'rb') as file:
            report = verify.verify(Window.of_file(file.fileno())).report
        self.assertEqual(report.problems, [])
        self.assertEqual(
            (report.objects, report.records), (self.OBJECTS, records))
        self.assertEqual(report.seals, {'sound': report.transactions})

    def test_for_stock(self):
        contents.build(self.path(), self.OBJECTS)
        with contextlib.closing(
                FileStorage(self.path(), read_only=True)) as storage:
            self.assertEqual(len(storage), self.OBJECTS)
            self.assertEqual(
                referencesf(storage.load(p64(2))[0]), [p64(1)])
            self.assertEqual(
                len(referencesf(storage.load(p64(1))[0])), contents.PAGES)
