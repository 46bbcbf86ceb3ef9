"""A file that another release of this package has written.

Its format has seals of a version, or a size, that this release does not know.
Whoever reads such a file refuses it, and changes nothing: what was taken for a
torn tail would be cut off.
"""

import contextlib
import os
import time

from ZODB.FileStorage import FileStorage

from fsyncstorage import FsyncStorage
from fsyncstorage.check import commandline
from fsyncstorage.check.info import commandline as info
from fsyncstorage.format import seal
from fsyncstorage.format.seal import UnknownVersion
from fsyncstorage.fsyncpack import commandline as fsyncpack

from ..format.sealing import later_release
from ..support import TestCase
from ..support import commit
from ..support import run_command

OTHERS = (
    (seal.VERSION + 1, seal.SIZE), (seal.VERSION + 1, seal.SIZE + 16),
    (seal.VERSION, seal.SIZE + 1), (0xff, 0xff))


class OtherReleases(TestCase):

    @contextlib.contextmanager
    def nothing_changes(self):
        def found():
            return {entry.name: entry.stat().st_mtime_ns
                    for entry in os.scandir(self.directory)
                    if not entry.name.endswith('.lock')}

        before = found()
        yield
        self.assertEqual(found(), before)

    def write(self, version=seal.VERSION + 1, size=seal.SIZE + 16,
              with_index=False):
        """A file of that release, which was killed, or closed."""
        with later_release(version, size):
            storage = self.open(create=True)
            for number in range(3):
                commit(storage, {number: b'x'})
            storage.close()
        if not with_index:
            os.remove(self.path() + '.index')

    def refused(self, words, **options):
        with self.nothing_changes(), self.assertRaisesRegex(
                UnknownVersion, words):
            FsyncStorage(self.path(), **options)

    def test_an_opening_refuses_it(self):
        for version, size in OTHERS:
            for with_index in False, True:
                with self.subTest(version=version, size=size,
                                  with_index=with_index):
                    self.write(version, size, with_index)
                    words = (f'{self.path()}.* version {version} .*'
                             f'knows version {seal.VERSION} ')
                    self.refused(words)
                    self.refused(words, read_only=True)
                    self.refused(words, read_only=True,
                                 stop=b'\x7f' + b'\xff' * 7)

    def test_also_where_its_end_is_torn(self):
        self.write()
        size = os.path.getsize(self.path())
        os.truncate(self.path(), size - 5)
        self.refused('version')

    def test_also_where_its_begin_is_not_sound(self):
        self.write()
        with open(self.path(), 'r+b') as file:
            file.seek(30)
            file.write(bytes(40))
        self.refused('version')

    def test_also_where_stock_has_moved_it(self):
        self.write()
        stock = FileStorage(self.path())
        stock.pack(time.time(), lambda data: [], gc=False)
        stock.close()
        self.refused('version')

    def test_the_commands_refuse_it(self):
        self.write()
        for main, arguments in (
            (commandline.main, ()),
            (commandline.main, ('--repair-index',)),
            (commandline.main, ('--salvage', self.path('new'))),
            (info.main, ()),
            (fsyncpack.main, ('--days', '0')),
        ):
            with self.subTest(main.__module__, arguments=arguments), (
                    self.nothing_changes()):
                status, out, err = run_command(main, self.path(), *arguments)
                self.assertEqual((status, out), (2, ''))
                self.assertIn(self.path(), err)
                self.assertIn(f'version {seal.VERSION + 1} ', err)
