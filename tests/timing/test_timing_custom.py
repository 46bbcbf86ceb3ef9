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

from fsyncstorage.timing.commits import committing
from fsyncstorage.timing.options import custom
from fsyncstorage.timing.results import document as documents
from fsyncstorage.timing.running import crew
from fsyncstorage.timing.running import population
from fsyncstorage.timing.running import supervisor

from ..support import PATIENCE
from .test_timing import Command

FILESTORAGE = """\
<filestorage>
  path {path}
</filestorage>
"""


class OwnStorage(Command):
    """A database of the user's, with data in it."""

    def setUp(self):
        super().setUp()
        self.home = pathlib.Path(
            self.enterContext(tempfile.TemporaryDirectory()))
        self.data = str(self.home / 'Data.fs')
        self.change(lambda root: root.update(mine='valuable', tree0='mine'))

    @contextlib.contextmanager
    def database(self):
        with contextlib.closing(ZODB.DB(FileStorage(self.data))) as db:
            yield db

    def change(self, how):
        with self.database() as db, db.transaction() as connection:
            how(connection.root())

    def root(self):
        with self.database() as db, db.transaction() as connection:
            return dict(connection.root())

    def assertUntouched(self):
        self.assertEqual(self.root(), {'mine': 'valuable', 'tree0': 'mine'})

    def configuration(self, text=FILESTORAGE):
        path = self.home / 'storage.conf'
        path.write_text(text.format(path=self.data))
        return str(path)

    def storage(self):
        return custom.read('mine', self.configuration())

    def commits(self, *arguments):
        return self.run_main(
            'commits', '--directory', self.scratch, '--rounds', '1',
            '--threads', '2', '--seconds', '1us', *arguments)


class CustomTests(OwnStorage):

    level = 2

    def test_it_takes_part_and_leaves_nothing(self):
        path = self.json_file()
        code, out, err = self.commits(
            'filestorage', f'mine={self.configuration()}', '--json', path)
        self.assertEqual((code, err), (0, ''))
        self.assertIn('mine', out)
        document = documents.load(path)
        self.assertEqual(
            [sample['contestant'] for sample in document['samples']],
            ['filestorage', 'mine', 'mine', 'filestorage'])
        self.assertNotIn(str(self.home), pathlib.Path(path).read_text())
        self.assertUntouched()

    def test_all_is_below_one_key(self):
        storage = self.storage()
        storage.add_key()
        with storage.opened(self.scratch) as opened, \
                contextlib.closing(ZODB.DB(opened)) as db:
            committing.plant(db, 3)
            with db.transaction() as connection:
                root = connection.root()
                self.assertEqual(
                    set(root), {'mine', 'tree0', storage.key})
                self.assertEqual(
                    set(root[storage.key]), {'tree0', 'tree1', 'tree2'})
                self.assertIs(
                    population.ground(connection), root[storage.key])
        storage.remove_key()
        self.assertUntouched()
        with self.database() as db, db.transaction() as connection:
            self.assertIs(population.ground(connection), connection.root())

    def test_the_key_is_random(self):
        self.assertNotEqual(self.storage().key, self.storage().key)

    def test_a_failing_sample_leaves_nothing(self):
        def failing(contestant, *arguments, **settings):
            with contestant.opened(self.scratch) as opened, \
                    contextlib.closing(ZODB.DB(opened)) as db:
                committing.plant(db, 3)
                1 / 0

        with mock.patch.object(committing, 'measure', failing):
            code, out, err = self.commits(f'mine={self.configuration()}')
        self.assertEqual(code, 1)
        self.assertIn('ZeroDivisionError', err)
        self.assertUntouched()

    def test_a_killed_sample_leaves_nothing(self):
        def killed(*arguments, **settings):
            with arguments[0].opened(self.scratch):
                os._exit(3)

        with mock.patch.object(committing, 'measure', killed):
            code, out, err = self.commits(f'mine={self.configuration()}')
        self.assertEqual(code, 1)
        self.assertEqual(len(err.splitlines()), 1)
        self.assertIn('exit code 3', err)
        self.assertUntouched()

    def test_a_key_whose_commit_was_not_answered_is_removed(self):
        add_key = custom.CustomStorage.add_key

        def killed(storage):
            add_key(storage)
            os._exit(3)

        with mock.patch.object(custom.CustomStorage, 'add_key', killed):
            code, out, err = self.commits(f'mine={self.configuration()}')
        self.assertEqual(code, 1)
        self.assertEqual(len(err.splitlines()), 1)
        self.assertIn('exit code 3', err)
        self.assertUntouched()

    def test_what_cannot_be_removed_is_named(self):
        def spoilt(*arguments, **settings):
            with arguments[0].opened(self.scratch):
                os.remove(self.data)
                os.mkdir(self.data)
                os._exit(3)

        with mock.patch.object(committing, 'measure', spoilt):
            code, out, err = self.commits(f'mine={self.configuration()}')
        self.assertEqual(code, 1)
        left, failure = err.splitlines()
        self.assertIn('exit code 3', failure)
        self.assertRegex(
            left, 'fsync-time commits: mine: remove the key'
            ' fsync-time-[0-9a-f]{16} from its root yourself: .*directory')

    def interrupted_removal(self):
        """Ctrl-C comes each time before the key is removed."""
        remove_key = custom.CustomStorage.remove_key

        def interrupted(storage):
            os.kill(os.getppid(), signal.SIGINT)
            return remove_key(storage)

        return mock.patch.object(
            custom.CustomStorage, 'remove_key', interrupted)

    def test_a_second_interrupt_leaves_nothing(self):
        def unfinished(*arguments, **settings):
            os.kill(os.getppid(), signal.SIGINT)
            signal.pause()

        with mock.patch.object(committing, 'measure', unfinished), \
                self.interrupted_removal():
            code, out, err = self.commits(f'mine={self.configuration()}')
        self.assertEqual(
            (code, err),
            (130, 'fsync-time commits: interrupted; nothing is kept\n'))
        self.assertUntouched()

    def test_a_first_interrupt_in_the_end_leaves_nothing(self):
        storage = self.storage()
        with self.assertRaises(KeyboardInterrupt):
            with custom._with_keys([storage], 'commits'):
                self.assertIn(storage.key, self.root())
                self.enterContext(self.interrupted_removal())
        self.assertUntouched()

    def test_the_wait_for_the_removal_has_an_end(self):
        def killed(*arguments, **settings):
            os._exit(3)

        with mock.patch.object(committing, 'measure', killed), \
                mock.patch.object(
                    custom.CustomStorage, 'remove_key',
                    lambda storage: threading.Event().wait(PATIENCE)), \
                mock.patch.object(custom, '_PATIENCE', 0):
            code, out, err = self.commits(f'mine={self.configuration()}')
        self.assertEqual(code, 1)
        self.assertIn('from its root yourself: it does not answer', err)

    def test_what_will_be_written_is_said_before(self):
        with mock.patch.object(supervisor, 'run', side_effect=[
                False, None, True, KeyboardInterrupt, None]):
            code, out, err = self.run_main(
                'blobs', 'filestorage', f'mine={self.configuration()}',
                '--directory', self.scratch, '--rounds', '1', '--sizes',
                '50MB', '--workload', 'write', '--clients', '1')
        # Three blobs, in the warm-up and in the one round.
        self.assertEqual(err.splitlines()[0], (
            'fsync-time blobs: mine: at least 300 MB will be written to it;'
            ' pack it afterwards'))

    def test_others_may_change_the_root(self):
        storage, commits = self.storage(), []
        commit = transaction.TransactionManager.commit

        def conflicting(manager):
            commits.append(manager)
            if len(commits) == 2:  # the first is made when it is opened
                raise ConflictError
            commit(manager)

        with mock.patch.object(
                transaction.TransactionManager, 'commit', conflicting):
            storage.add_key()
        self.assertIs(commits[1], commits[2])
        storage.remove_key()
        self.assertUntouched()

    def test_nothing_is_added_to_its_syncs(self):
        path = self.json_file()
        code, out, err = self.commits(
            'filestorage', f'mine={self.configuration()}', '--sync-latency',
            '0,1us', '--json', path)
        self.assertEqual((code, err), (0, ''))
        document = documents.load(path)
        self.assertEqual(
            {(sample['contestant'], document['races'][sample['race']][
                'settings']['sync_latency']) for sample in
             document['samples']},
            {('filestorage', 0), ('filestorage', 1e-6), ('mine', 0)})

    def test_it_can_be_the_baseline(self):
        path = self.json_file()
        code, out, err = self.commits(
            f'mine={self.configuration()}', 'filestorage', '--json', path)
        self.assertEqual((code, err), (0, ''))
        self.assertEqual(documents.load(path)['baseline'], 'mine')

    def test_what_is_given_wrong_is_one_line(self):
        good = self.configuration()
        for contestants, expected in [
                (['mine=/no/such/file'], '/no/such/file cannot be used'),
                ([f'mine={self.home}'], 'Is a directory'),
                ([f'={good}'], "'' is no name"),
                ([f'[red]={good}'], "'[red]' is no name"),
                ([f'filestorage={good}'], "'filestorage' is taken"),
                ([f'mine={good}', f'mine={good}'], 'the same name'),
                ([f'mine={good}', '--sync-latency', '1ms'],
                 'none of these contestants takes part in commits'),
        ]:
            with self.subTest(contestants):
                self.assertOneLine(2, expected, *contestants)
        for text, expected in [
                ('<filestorage>', 'unclosed'),
                ('', 'section'),
                ('<nostorage>\n</nostorage>', 'nostorage'),
                ('%import no.such.package', 'no.such'),
        ]:
            with self.subTest(text):
                self.assertOneLine(
                    2, expected, f'mine={self.configuration(text)}')
        no_text = self.home / 'Data.fs'
        no_text.write_bytes(b'\xff')
        self.assertOneLine(2, 'codec', f'mine={no_text}')

    def test_what_cannot_be_opened_is_one_line(self):
        with self.database():
            self.assertOneLine(1, 'LockError', f'mine={self.configuration()}')
        self.assertOneLine(
            1, 'ReadOnlyError', 'mine=' + self.configuration(
                FILESTORAGE.replace('\n<', '\n  read-only true\n<')))
        self.assertOneLine(
            1, 'it forgets', 'mine=' + self.configuration(
                '<mappingstorage>\n</mappingstorage>'))
        self.assertUntouched()

    def test_what_cannot_be_opened_again_is_left_clean(self):
        has_key = custom.CustomStorage.has_key

        def gone(storage):
            if has_key(storage):
                raise OSError('gone')

        with mock.patch.object(custom.CustomStorage, 'has_key', gone):
            self.assertOneLine(
                1, 'mine cannot be used: OSError: gone',
                f'mine={self.configuration()}')
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
                f'mine={self.configuration()}')
            self.assertEqual(pathlib.Path(self.data).read_bytes(), data)

    def assertOneLine(self, expected_code, expected, *contestants):
        code, out, err = self.commits(*contestants)
        self.assertEqual((code, out), (expected_code, ''))
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertIn(expected, err)
        self.assertEqual(os.listdir(self.scratch), [])


class ZeoTests(OwnStorage):
    """The storage in the file has clients, in processes of their own."""

    level = 2

    def test_clients_of_its_own(self):
        storage = self.storage()
        storage.add_key()

        def work():
            with storage.running(
                    self.scratch, loop='asyncio', sync_latency=0.0,
                    socket=False) as site:
                oids = population.plant(
                    site, population.small(read=2))['read']

                def job(start):
                    with crew.connected(site) as (_, connection):
                        objects = population.ghosts(connection, 'read')
                        return [one._p_oid for one in objects]

                [found] = crew.processes(site, [job]).results
                return found == oids

        self.assertTrue(supervisor.run(work))
        storage.remove_key()
        self.assertUntouched()
