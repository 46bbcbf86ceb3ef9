"""A file that another release of this package has written.

Its format has seals of a version, or a size, that this release does not know.
Whoever reads such a file refuses it, and changes nothing: what was taken for a
torn tail would be cut off.
"""

import contextlib
import os
import shutil
import struct
import time

from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage

from fsyncstorage import FsyncStorage
from fsyncstorage.check import commandline
from fsyncstorage.check.info import commandline as info
from fsyncstorage.format import scan
from fsyncstorage.format import seal
from fsyncstorage.format.seal import UnknownVersion
from fsyncstorage.fsyncpack import commandline as fsyncpack

from ..format.sealing import forged
from ..format.sealing import later_release
from ..support import TestCase
from ..support import commit
from ..support import run_command
from ..support import vote

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

    def test_also_where_the_last_transactions_have_no_seal(self):
        self.write(with_index=True)
        stock = FileStorage(self.path())
        for number in range(3):
            commit(stock, {10 + number: b'x'})
        stock.close()
        self.refused('version')

    def test_a_description_is_not_taken_for_a_seal(self):
        for options in {}, {'checksums': False}:
            storage = self.open(create=True, **options)
            transaction = TransactionMetaData('', forged())
            storage.tpc_begin(transaction)
            storage.tpc_vote(transaction)
            storage.tpc_finish(transaction)
            storage.close()
            with contextlib.closing(self.open(**options)) as storage:
                self.assertEqual(len(storage), 0)

    def test_the_header_and_a_user_are_not_taken_for_one(self):
        """The length of the extension ends in the first byte of the magic."""
        storage = self.open(checksums=False)
        transaction = TransactionMetaData(seal.MAGIC[1:], '', b'x' * 245)
        storage.tpc_begin(transaction)
        storage.tpc_vote(transaction)
        tid = storage.tpc_finish(transaction)
        storage.close()
        os.remove(self.path() + '.index')
        self.assertEqual(self.open(checksums=False).lastTransaction(), tid)

    def test_what_is_stored_is_not_taken_for_one(self):
        """Of a vote that was written, and never finished."""
        for version in seal.VERSION, 9:
            storage = self.open(f'{version}', create=True)
            tid = commit(storage, {0: b'x'})
            storage.journal.reserve.is_real = False  # so the vote writes
            at = storage.getSize() + scan.HEADER + seal.room(b'') + (
                scan.RECORD_HEADER)
            voted = vote(
                storage, {1: self.looks_like_a_transaction(version, at)})
            for suffix in '', '.index':
                if os.path.exists(self.path(f'{version}{suffix}')):
                    shutil.copy(self.path(f'{version}{suffix}'),
                                self.path(f'{version}.killed{suffix}'))
            killed = self.open(f'{version}.killed')
            self.assertEqual(killed.lastTransaction(), tid)
            storage.tpc_abort(voted)

    def looks_like_a_transaction(self, version, at):
        length = scan.HEADER + seal.SIZE
        header = struct.pack('>8sQcHHH', b'\x7f' * 8, length, b' ', 0, 0,
                             seal.SIZE)
        if version != seal.VERSION:
            return header + forged(version, seal.SIZE, at)
        return header + seal.make(
            header, b'.', b' ', at, length, 1 << 40, 0)[1:]

    def test_the_commands_refuse_it(self):
        self.write()
        for main, arguments in (
            (commandline.main, ()),
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
