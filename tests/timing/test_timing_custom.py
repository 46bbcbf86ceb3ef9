"""Storages of the user's own in `fsync-time`.

A measurement changes nothing that the user has in a database.
"""

import contextlib
import os
import pathlib
import sys
import tempfile
import types
from unittest import mock

import ZODB
from ZODB.FileStorage import FileStorage

from .support import Command

FILESTORAGE = """\
<filestorage>
  path {path}
</filestorage>
"""


class CustomTests(Command):

    level = 2

    def setUp(self):
        super().setUp()
        self.home = pathlib.Path(
            self.enterContext(tempfile.TemporaryDirectory()))
        self.data = self.home / 'Data.fs'
        self.mine = f'mine={self.configuration()}'

    @contextlib.contextmanager
    def root(self):
        with contextlib.closing(ZODB.DB(FileStorage(str(self.data)))) as db, \
                db.transaction() as connection:
            yield connection.root()

    def configuration(self, text=FILESTORAGE):
        path = self.home / 'storage.conf'
        path.write_text(text.format(path=self.data))
        return str(path)

    def arguments(self, *contestants):
        return ('commits', '--rounds', '1', '--threads', '2', '--seconds',
                '1us', *contestants)

    def test_it_takes_part_again_and_again(self):
        """All that it writes is below one key."""
        for _ in range(2):
            document, text = self.document(*self.arguments(
                'filestorage', self.mine, '--sync-latency', '0,1us'))
        self.assertIn('mine', text)
        self.assertNotIn(str(self.home), pathlib.Path(self.json).read_text())
        # Nothing is added to its syncs.
        self.assertEqual(
            {(sample['contestant'], document['races'][sample['race']][
                'settings']['sync_latency'])
             for sample in document['samples']},
            {('filestorage', 0), ('filestorage', 1e-6), ('mine', 0)})
        with self.root() as root:
            self.assertEqual(set(root), {'fsync-time'})

    def test_a_database_with_data_is_left_alone(self):
        """Also if their classes are not here."""
        module = types.ModuleType('theirs')
        exec('import persistent\n'
             'class Site(persistent.Persistent): pass\n'
             'class Value: pass\n', vars(module))
        for name in 'Site', 'Value', '':
            with mock.patch.dict(sys.modules, theirs=module), \
                    self.root() as root:
                root['site'] = getattr(module, name)() if name else 'valuable'
            data = self.data.read_bytes()
            self.assertOneLine(
                1, "in its root is 'site', which is not of fsync-time",
                *(self.arguments(self.mine) if name else [
                    'zeo', self.mine, '--workload', 'write', '--clients', '1',
                    '--seconds', '1us']))
            self.assertEqual(self.data.read_bytes(), data)

    def test_what_is_given_wrong_is_one_line(self):
        _, _, good = self.mine.partition('=')
        for contestants, expected in [
                (['mine=/no/such/file'], '/no/such/file cannot be used'),
                ([f'mine={self.home}'], 'Is a directory'),
                ([f'[red]={good}'], "'[red]' is no name"),
                ([f'filestorage={good}'], "'filestorage' is taken"),
                ([self.mine, self.mine], 'the same name'),
                ([self.mine, '--sync-latency', '1ms'],
                 'none of these contestants takes part in commits'),
        ]:
            with self.subTest(contestants):
                self.assertOneLine(2, expected, *self.arguments(*contestants))
        for text, expected in [
                ('<filestorage>', 'unclosed'),
                ('', 'section'),
                ('%import no.such.package', 'no.such'),
        ]:
            with self.subTest(text):
                self.configuration(text)
                self.assertOneLine(2, expected, *self.arguments(self.mine))

    def test_what_cannot_be_used_is_one_line(self):
        with self.root():
            self.assertOneLine(1, 'LockError', *self.arguments(self.mine))
        self.configuration(
            FILESTORAGE.replace('\n<', '\n  read-only true\n<'))
        self.assertOneLine(1, 'ReadOnlyError', *self.arguments(self.mine))
        self.assertFalse(os.listdir(self.scratch))
