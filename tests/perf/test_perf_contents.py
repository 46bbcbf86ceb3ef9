"""The file that `fsync-info` is measured with; not how fast that was."""

import contextlib
import io

from ZODB.FileStorage import FileStorage
from ZODB.serialize import referencesf
from ZODB.utils import p64

from fsyncstorage.check import verify
from fsyncstorage.format.window import Window
from perf import contents

from ..support import TestCase


class ContentsTests(TestCase):

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

    def test_what_is_printed(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertEqual(contents.main(
                [str(self.OBJECTS), '--directory', self.directory]), 0)
        size, *runs = out.getvalue().splitlines()
        self.assertIn('2,500 objects', size)
        self.assertEqual(len(runs), 2)
        for line in runs:
            self.assertRegex(
                line, r'[\d,]+ records a second, at most [\d,]+ MB')
