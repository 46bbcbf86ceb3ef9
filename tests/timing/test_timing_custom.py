"""Storages of the user's own in `fsync-time`.

A measurement changes nothing that the user has in a database, however it ends.
"""

import contextlib
import os
import pathlib
import signal
import sys
import tempfile
import threading
import types
from unittest import mock

import transaction
import ZODB
from ZODB.FileStorage import FileStorage
from ZODB.POSException import ConflictError

from fsyncstorage.timing import commits
from fsyncstorage.timing import custom
from fsyncstorage.timing.running import population
from fsyncstorage.timing.running import supervisor

from ..support import PATIENCE
from .support import Command

FILESTORAGE = """\
<filestorage>
  path {path}
</filestorage>
"""


class CustomTests(Command):
    """A database of the user's, with data in it."""

    level = 2

    def setUp(self):
        super().setUp()
        self.home = pathlib.Path(
            self.enterContext(tempfile.TemporaryDirectory()))
        self.data = str(self.home / 'Data.fs')
        self.mine = f'mine={self.configuration()}'
        self.change(lambda root: root.update(mine='valuable', tree0='mine'))

    @contextlib.contextmanager
    def database(self):
        with contextlib.closing(ZODB.DB(FileStorage(self.data))) as db:
            yield db

    def change(self, how):
        with self.database() as db, db.transaction() as connection:
            how(connection.root())

    def assertUntouched(self):
        with self.database() as db, db.transaction() as connection:
            self.assertEqual(dict(connection.root()),
                             {'mine': 'valuable', 'tree0': 'mine'})

    def configuration(self, text=FILESTORAGE):
        path = self.home / 'storage.conf'
        path.write_text(text.format(path=self.data))
        return str(path)

    def storage(self):
        return custom.read('mine', self.configuration())

    def arguments(self, *contestants):
        return ('commits', '--rounds', '1', '--threads', '2', '--seconds',
                '1us', *contestants)

    def fails(self, expected, *patches, code=1):
        """A run that ends with one line leaves nothing."""
        with contextlib.ExitStack() as stack:
            for owner, name, value in patches:
                stack.enter_context(mock.patch.object(owner, name, value))
            self.assertOneLine(code, expected, *self.arguments(self.mine))
        self.assertUntouched()

    def test_it_takes_part_and_leaves_nothing(self):
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
        self.assertUntouched()

    def test_all_is_below_one_key(self):
        storage = self.storage()
        self.assertNotEqual(storage.key, self.storage().key)
        storage.add_key()
        with storage.opened(self.scratch) as opened, \
                contextlib.closing(ZODB.DB(opened)) as db:
            commits.plant(db, 3)
            with db.transaction() as connection:
                root = connection.root()
                self.assertEqual(set(root), {'mine', 'tree0', storage.key})
                self.assertEqual(
                    set(root[storage.key]), {'tree0', 'tree1', 'tree2'})
        storage.remove_key()
        self.assertUntouched()
        self.assertIsNone(population._key)

    def test_a_failing_sample_leaves_nothing(self):
        def failing(contestant, *arguments, **settings):
            with contestant.opened(self.scratch) as opened, \
                    contextlib.closing(ZODB.DB(opened)) as db:
                commits.plant(db, 3)
                1 / 0

        def killed(*arguments, **settings):
            with arguments[0].opened(self.scratch):
                os._exit(3)

        self.fails('ZeroDivisionError', (commits, 'measure', failing))
        self.fails('exit code 3', (commits, 'measure', killed))

    def test_a_key_whose_commit_was_not_answered_is_removed(self):
        def killed(storage, add_key=custom.CustomStorage.add_key):
            add_key(storage)
            os._exit(3)

        self.fails('exit code 3', (custom.CustomStorage, 'add_key', killed))

    def test_interrupts_leave_nothing(self):
        """One comes in a sample, another one before the key is removed."""
        def unfinished(*arguments, **settings):
            os.kill(os.getppid(), signal.SIGINT)
            signal.pause()

        def interrupted(storage, remove=custom.CustomStorage.remove_key):
            os.kill(os.getppid(), signal.SIGINT)
            return remove(storage)

        self.fails('interrupted; nothing is kept',
                   (commits, 'measure', unfinished),
                   (custom.CustomStorage, 'remove_key', interrupted), code=130)

    def test_what_cannot_be_removed_is_named(self):
        """The wait for it has an end."""
        def spoilt(*arguments, **settings):
            with arguments[0].opened(self.scratch):
                os.remove(self.data)
                os.mkdir(self.data)
                os._exit(3)

        def slow(storage):
            threading.Event().wait(PATIENCE)

        for remove, expected in [
                (slow, 'it does not answer'),
                (custom.CustomStorage.remove_key, '.*directory')]:
            with mock.patch.object(commits, 'measure', spoilt), \
                    mock.patch.object(
                        custom.CustomStorage, 'remove_key', remove), \
                    mock.patch.object(
                        custom, '_PATIENCE', 0 if remove is slow else 60):
                code, _, err = self.run_main(*self.arguments(self.mine))
            self.assertEqual(code, 1)
            left, failure = err.splitlines()
            self.assertIn('exit code 3', failure)
            self.assertRegex(
                left, 'fsync-time commits: mine: remove the key'
                ' fsync-time-[0-9a-f]{16} from its root yourself: ' + expected)
            os.rmdir(self.data)
            self.change(lambda root: None)

    def test_what_will_be_written_is_said_before(self):
        with mock.patch.object(supervisor, 'run', side_effect=[
                False, None, True, KeyboardInterrupt, None]):
            _, _, err = self.run_main(
                'blobs', 'filestorage', self.mine, '--rounds', '1', '--sizes',
                '50MB', '--workload', 'write', '--clients', '1')
        # Three blobs, in the warm-up and in the one round.
        self.assertEqual(err.splitlines()[0], (
            'fsync-time blobs: mine: at least 300 MB will be written to it;'
            ' pack it afterwards'))

    def test_others_may_change_the_root(self):
        storage, tried = self.storage(), []
        commit = transaction.TransactionManager.commit

        def conflicting(manager):
            tried.append(manager)
            if len(tried) == 2:  # the first is made when it is opened
                raise ConflictError
            commit(manager)

        with mock.patch.object(
                transaction.TransactionManager, 'commit', conflicting):
            storage.add_key()
        self.assertIs(tried[1], tried[2])
        storage.remove_key()
        self.assertUntouched()

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
        with self.database():
            self.assertOneLine(1, 'LockError', *self.arguments(self.mine))
        for text, expected in [
                (FILESTORAGE.replace('\n<', '\n  read-only true\n<'),
                 'ReadOnlyError'),
                ('<mappingstorage>\n</mappingstorage>', 'it forgets')]:
            self.configuration(text)
            self.assertOneLine(1, expected, *self.arguments(self.mine))
        self.assertUntouched()

    def test_a_root_of_classes_that_are_not_here_is_left_alone(self):
        """ZODB would store placeholders for their objects."""
        module = types.ModuleType('theirs')
        exec('import persistent\n'
             'class Site(persistent.Persistent): pass\n'
             'class Value: pass\n', vars(module))
        for name in 'Site', 'Value':
            with mock.patch.dict(sys.modules, theirs=module):
                self.change(lambda root: root.update(
                    site=getattr(module, name)()))
            data = pathlib.Path(self.data).read_bytes()
            self.assertOneLine(
                1, f'in its root is a theirs.{name}; run fsync-time where',
                *self.arguments(self.mine))
            self.assertEqual(pathlib.Path(self.data).read_bytes(), data)
