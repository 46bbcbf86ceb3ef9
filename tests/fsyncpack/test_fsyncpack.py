"""`fsync-pack`: of a file, of our server, of stock's; and what it refuses."""

import contextlib
import functools
import io
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
import unittest
from unittest import mock

import ZEO
import ZODB
import ZODB.blob
from ZEO.Exceptions import ServerException
from ZODB.FileStorage import FileStorage
from ZODB.POSException import POSKeyError
from ZODB.serialize import referencesf

from fsyncstorage import FsyncStorage
from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.fsyncpack import commandline
from fsyncstorage.fsyncpack import target
from fsyncstorage.pack import progress
from fsyncstorage.pack import work

from ..pack import phases
from ..pack.histories import state
from ..server.serving import Served
from ..server.serving import record
from ..support import PATIENCE
from ..support import Thread
from ..support import commit
from ..support import oid
from ..support import run_command
from ..support import until

CANNOT_RUN = 2
INTERRUPTED = 130


class PackCase(Served):
    """A file is packed by this process, if a test does not say otherwise."""

    def setUp(self):
        super().setUp()
        # Tests wait for what is seen at such a look.
        self.patch(commandline, EVERY=0.01)
        self.patch(target, FsyncStorage=functools.partial(
            FsyncStorage, pack_process=False))

    def packable(self, **options):
        """A storage with something to free."""
        return phases.fill(
            self.open(blob_dir=self.path('blobs'), **options))

    def packable_file(self):
        self.packable().close()
        return os.stat(self.path()).st_size

    def packable_file_without_blobs(self):
        phases.fill(self.open()).close()
        return os.stat(self.path()).st_size

    def run_pack(self, *options, path=None):
        """Exit status, standard output, standard error."""
        with mock.patch.dict(os.environ, COLUMNS='100'):
            return run_command(
                commandline.main, path or self.path(), *options)

    def said(self, *options, path=None):
        status, out, err = self.run_pack(*options, path=path)
        self.assertEqual((status, err), (0, ''))
        return out

    def report(self, *options, path=None):
        return json.loads(self.said('--json', *options, path=path))

    def assert_cannot_run(self, reason, *options, path=None):
        status, out, err = self.run_pack(*options, path=path)
        self.assertEqual((status, out), (CANNOT_RUN, ''))
        self.assertEqual(err.count('\n'), 1, err)
        self.assertIn(reason, err)

    def interrupted(self):
        """What a pack says that is interrupted while it marks."""
        with phases.held_up(progress.MARK) as there:

            def interrupt(*args):
                self.assertTrue(there.wait(PATIENCE))
                raise KeyboardInterrupt

            with mock.patch.object(commandline, 'look_on', interrupt):
                status, out, err = self.run_pack()
        self.assertEqual((status, out), (INTERRUPTED, ''))
        return err

    def files(self):
        return sorted(
            os.path.join(parent, name)
            for parent, _, names in os.walk(self.directory) for name in names)


class OfAFile(PackCase):

    def test_a_pack(self):
        self.patch(target, FsyncStorage=FsyncStorage)
        before = self.packable_file()
        said = self.said('--blobs', self.path('blobs'))
        after = os.stat(self.path()).st_size
        self.assertLess(after, before / 2)
        self.assertIn(
            f'packed from {before:,} bytes to {after:,} bytes in ', said)
        blobs = [path for path in self.files()
                 if path.startswith(self.path('blobs/'))
                 and path.endswith('.blob')]
        self.assertEqual(len(blobs), 1)
        self.assertIn('nothing can be freed', self.said())

    def test_blobs_without_their_directory(self):
        """Their files stay; a dry run says so."""
        before = self.packable_file()
        files = self.files()
        said = self.said('--dry-run')
        self.assertIn('Blobs are among what would go', said)
        self.assertIn('blob-dir for a server', said)
        status, out, err = self.run_pack()
        self.assertEqual((status, err), (0, ''))
        self.assertIn(f'packed from {before:,}', out)
        self.assertLessEqual(
            {path for path in files if path.endswith('.blob')},
            set(self.files()))

    def test_a_link(self):
        """The file that it leads to is packed."""
        before = self.packable_file_without_blobs()
        os.symlink('Data.fs', self.path('link'))
        self.assertIn(f'packed from {before:,}', self.said(
            path=self.path('link')))
        self.assertTrue(os.path.islink(self.path('link')))
        self.assertLess(os.stat(self.path()).st_size, before)

    def test_json(self):
        before = self.packable_file_without_blobs()
        self.assertNotIn('Blobs', self.said('--dry-run'))
        self.assertIn('nothing can be freed', self.said('--days', '0.5'))
        self.assertEqual(os.stat(self.path()).st_size, before)
        found = self.report('--days', '0')
        self.assertGreater(found.pop('seconds'), 0)
        self.assertEqual(found, {
            'path': self.path(), 'outcome': 'packed', 'before': before,
            'after': os.stat(self.path()).st_size})
        self.assertEqual(self.report()['outcome'], 'nothing')

    def test_a_dry_run(self):
        before = self.packable_file()
        files = self.files()
        found = self.report('--dry-run', '--blobs', self.path('blobs'))
        said = self.said('--dry-run', '--blobs', self.path('blobs'))
        self.assertEqual(self.files(), files)
        self.assertEqual(os.stat(self.path()).st_size, before)
        self.said('--blobs', self.path('blobs'))
        after = os.stat(self.path()).st_size
        self.assertEqual(found['new_size'], after)
        self.assertIn(
            f'a pack would free {before - after:,} bytes of {before:,} bytes',
            said)
        self.assertIn('19 blobs with 171 bytes', said)
        for row in found['rows']:
            self.assertRegex(
                said, rf'{row["class"]} +{row["objects"]} +{row["records"]}'
                rf' +{row["bytes"]:,}')

    def test_a_dry_run_of_a_file_that_is_in_use(self):
        storage = self.packable()
        found = self.report('--dry-run')
        storage.pack(time.time(), referencesf)
        self.assertEqual(found['new_size'], storage.getSize())

    def test_without_garbage_collection(self):
        storage = self.open()
        first = commit(storage, {0: record(), 1: record('lost')})
        commit(storage, {1: record('lost')}, {1: first})
        storage.close()
        shutil.copy(self.path(), self.path('other'))
        self.said('--no-gc')
        with contextlib.closing(FsyncStorage(self.path())) as storage:
            storage.load(oid(1))
        self.said(path=self.path('other'))
        with contextlib.closing(FsyncStorage(self.path('other'))) as storage:
            with self.assertRaises(POSKeyError):
                storage.load(oid(1))

    def test_an_interrupt_cancels_it(self):
        before = self.packable_file()
        files = self.files()
        err = self.interrupted()
        self.assertEqual(
            err, f'{self.path()}: the pack has ended: cancelled\n')
        self.assertEqual(os.stat(self.path()).st_size, before)
        self.assertEqual(self.files(), files)

    def test_an_interrupt_that_is_too_late(self):
        self.packable_file_without_blobs()

        def interrupt(work, ask):
            work.result()
            raise KeyboardInterrupt

        with mock.patch.object(commandline, 'look_on', interrupt):
            status, out, err = self.run_pack()
        self.assertEqual((status, out), (INTERRUPTED, ''))
        self.assertEqual(
            err, f'{self.path()}: the pack has ended: packed\n')

    def test_how_far_it_is(self):
        self.packable_file_without_blobs()
        told = []

        @contextlib.contextmanager
        def bar(size, stages):
            yield lambda stage, position: told.append(
                (stages[stage], position / size))

        with (phases.held_up(progress.COPY) as there,
              mock.patch.object(commandline, 'progress_bar', bar)):
            running = Thread(lambda: commandline.main([self.path()]))
            self.assertTrue(there.wait(PATIENCE))
            until(lambda: 'copy' in dict(told), 'progress')
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(running.result(), 0)
        self.assertGreater(dict(told)['copy'], 0.5)

    def test_what_the_storage_warns_of(self):
        """It is said, and the command goes on."""
        self.packable_file()
        with open(self.path(), 'ab') as file:
            file.write(b'torn')
        status, out, err = self.run_pack()
        self.assertEqual(status, 0)
        self.assertIn('packed', out)
        self.assertIn('cut off', err)


class ByRoot(PackCase):
    """What a pack leaves, the server can open: all has the owner of the
    file."""

    level = 2

    OWNER = 1234, 2345

    @unittest.skipUnless(os.getuid() == 0, 'root alone becomes another user')
    def test_a_pack(self):
        before = self.packable_file()
        os.remove(self.path('Data.fs.lock'))
        os.remove(self.path('Data.fs.index'))
        for parent, directories, names in os.walk(self.directory):
            for name in ['', *names]:
                os.chown(os.path.join(parent, name), *self.OWNER)
        done = subprocess.run(
            [sys.executable, '-c', 'import sys; from fsyncstorage import'
             ' fsyncpack; sys.exit(fsyncpack.main())',
             self.path(), '--blobs', self.path('blobs')],
            capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLess(os.stat(self.path()).st_size, before)
        made = [self.directory, *self.files()]
        for name in 'Data.fs.lock', 'Data.fs.index', 'blobs.old/.layout':
            self.assertIn(self.path(name), made)
        for path in made:
            found = os.stat(path)
            self.assertEqual(
                (found.st_uid, found.st_gid), self.OWNER, path)


class FilesThatAreRefused(PackCase):

    def test_one_that_is_in_use(self):
        self.packable()
        self.assert_cannot_run(
            f'is open in process {os.getpid()}: give the ADDRESS')

    def test_no_data_file(self):
        for options in (), ('--dry-run',):
            self.assert_cannot_run('No such file', *options)
            self.assert_cannot_run(
                'is a directory', *options, path=self.directory)
        self.assertEqual(self.files(), [])
        for content in b'', b'FS', b'FS21' * 10, b'something else' * 10:
            with open(self.path(), 'wb') as file:
                file.write(content)
            for options in (), ('--dry-run',):
                with self.subTest(content, options=options):
                    self.assert_cannot_run('', *options)
                    self.assertEqual(self.files(), [self.path()])

    @unittest.skipIf(os.getuid() == 0, 'root may do anything')
    def test_no_permission(self):
        self.packable_file()
        os.chmod(self.path(), 0)
        self.assert_cannot_run('Permission denied')

    def test_one_of_somebody_else(self):
        self.packable_file()
        files = self.files()
        for name in files:
            if name.endswith('.lock'):
                os.remove(name)
        files = self.files()
        uid = os.getuid()
        with mock.patch.object(os, 'geteuid', lambda: uid + 1):
            self.assert_cannot_run(f'belongs to the user {uid}')
            self.assertIn('would free', self.said('--dry-run'))
        self.assertEqual(self.files(), files)

    def test_a_damaged_file(self):
        size = self.packable_file()
        with open(self.path(), 'r+b') as file:
            file.seek(size // 2)
            file.write(b'\xff' * 8)
        self.assert_cannot_run('fsync-check')
        self.assert_cannot_run('fsync-check', '--dry-run')

    def test_a_reference_that_leads_nowhere(self):
        storage = self.open()
        first = commit(storage, {0: state(random.Random(1), [7])})
        commit(storage, {0: state(random.Random(2), [7])}, {0: first})
        storage.close()
        for options in (), ('--dry-run',):
            self.assert_cannot_run('an object refers to 0x07', *options)

    def test_too_little_room(self):
        self.packable_file()
        files = self.files()
        with mock.patch.object(
                work, 'free_bytes', lambda file: 100):
            self.assert_cannot_run('the new file and its index need')
            self.assert_cannot_run('and 100 are free')
            self.assertIn('ONLY 100 bytes ARE FREE', self.said('--dry-run'))
        self.assertEqual(self.files(), files)

    def test_a_directory_of_something_else(self):
        """A pack would remove what is in it, or in what is `.old`."""
        before = self.packable_file()
        self.assert_cannot_run(
            'is no directory', '--blobs', self.path('other'))
        self.assertFalse(os.path.exists(self.path('other')))
        for name, given in ('photos', 'photos'), ('blobs.old', 'blobs'):
            os.mkdir(self.path(name))
            with open(self.path(f'{name}/mine'), 'w'):
                pass
            with self.subTest(name):
                self.assert_cannot_run(
                    f'{name} has no .layout', '--blobs', self.path(given))
                self.assertEqual(os.listdir(self.path(name)), ['mine'])
        self.assertEqual(os.stat(self.path()).st_size, before)
        os.remove(self.path('blobs.old/mine'))
        self.assertIn('packed', self.said('--blobs', self.path('blobs')))


class Options(PackCase):

    def test_what_is_refused(self):
        self.packable_file()
        for reason, *options in (
                ('is not a number of days', '--days', '-1'),
                ('is not a number of days', '--days', 'nan'),
                ('is not a number of days', '--days', 'inf'),
                ('is not a number of days', '--days', '1e9'),
                ('invalid', '--days', 'x\x1b[1m'),
                ('not allowed with', '--dry-run', '--cancel'),
                ('not allowed with', '--status', '--cancel'),
                ('--days is for', '--status', '--days', '1'),
                ('ask a server', '--status'),
                ('ask a server', '--cancel'),
                ('unrecognized', '--no-such-option')):
            with self.subTest(options):
                self.assert_cannot_run(reason, *options)
        for options in ('--no-gc',), ('--blobs', 'blobs'):
            self.assert_cannot_run(
                'are for a file', *options, path='127.0.0.1:1')

    def test_what_an_address_is(self):
        for path, address in (
                ('localhost:8100', ('localhost', 8100)),
                (':8100', ('127.0.0.1', 8100)),
                ('[::1]:8100', ('::1', 8100)),
                ('localhost', None), ('localhost:http', None),
                ('localhost:70000', None), ('var/Data.fs', None),
                ('var/x:80', None), ('8100', None), (self.directory, None)):
            with self.subTest(path):
                self.assertEqual(target.address_of(path), address)

    def test_a_file_that_looks_like_an_address(self):
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.directory)
        self.packable_file_without_blobs()
        os.rename('Data.fs', 'localhost:1')
        self.assertIn('packed', self.said(path='localhost:1'))


class OfAServer(PackCase):

    level = 2

    def setUp(self):
        super().setUp()
        self.storage = self.packable(pack_process=False)
        self.server = self.serve(self.storage)
        self.address = '%s:%s' % self.server.addr

    def run_pack(self, *options, path=None):
        return super().run_pack(*options, path=path or self.address)

    def test_a_pack(self):
        before = self.storage.getSize()
        said = self.said()
        after = self.storage.getSize()
        self.assertLess(after, before)
        self.assertIn(
            f'{self.address}: packed from {before:,} bytes to {after:,} bytes',
            said)
        self.assertIn('nothing can be freed', self.said())

        self.assertRegex(
            self.said('--status'),
            r'the last one ended [\d.]+ s ago: nothing could be freed\n')
        status = self.report('--status')
        self.assertEqual(status['last']['outcome'], 'nothing')
        self.assertIsNone(status['pack'])
        self.assertEqual(self.report()['outcome'], 'nothing')

    def test_a_dry_run(self):
        found = self.report('--dry-run')
        said = self.said('--dry-run')
        self.assertIn(f'would free {found["freed"]:,} bytes of', said)
        self.said()
        self.assertEqual(found['new_size'], self.storage.getSize())

    def test_status(self):
        self.assertEqual(
            self.said('--status'), f'{self.address}: no pack is under way\n')
        with phases.held_up(progress.COPY) as there:
            packing = Thread(
                lambda: self.storage.pack(time.time(), referencesf))
            self.assertTrue(there.wait(PATIENCE))
            self.assertRegex(
                self.said('--status'),
                "a pack is under way, in the phase 'copy'; [0-9]+% in ")
        packing.result()
        self.assertRegex(
            self.said('--status'),
            'the last one ended .* ago: packed from .* to .* bytes in ')

    def test_a_second_pack(self):
        with phases.held_up(progress.CHECK) as there:
            packing = Thread(
                lambda: self.storage.pack(time.time(), referencesf))
            self.assertTrue(there.wait(PATIENCE))
            self.assert_cannot_run('Already packing')
        packing.result()

    def test_cancel(self):
        before = self.storage.getSize()
        for phase in progress.CHECK, progress.COPY, progress.SWAP:
            with self.subTest(phase), phases.held_up(phase) as there:
                packing = Thread(lambda: FsyncClient.pack(self.client))
                self.assertTrue(there.wait(PATIENCE))
                self.assertEqual(
                    self.said('--cancel'),
                    f'{self.address}: the pack was cancelled, and nothing was'
                    ' changed\n')
                with self.assertRaisesRegex(ServerException, 'cancelled'):
                    packing.result()
                self.assertEqual(self.storage.getSize(), before)

    def test_who_waits_for_a_pack_that_is_cancelled(self):
        with phases.held_up(progress.COPY) as there:
            cancelling = Thread(lambda: (
                there.wait(PATIENCE), self.storage.packs.cancel()))
            self.assert_cannot_run('the pack was cancelled')
            cancelling.result()

    def test_a_cancel_that_is_too_late(self):
        with phases.held_up(progress.SWAP) as there, mock.patch.object(
                progress.PackWatch, 'cancel'):
            packing = Thread(
                lambda: self.storage.pack(time.time(), referencesf))
            self.assertTrue(there.wait(PATIENCE))
            cancelling = Thread(lambda: self.run_pack('--cancel'))
            until(lambda: progress.PackWatch.cancel.called, 'the call')
        packing.result()
        status, out, err = cancelling.result()
        self.assertEqual((status, out), (CANNOT_RUN, ''))
        self.assertIn('it was too late: packed', err)

    def test_a_server_that_was_restarted_meanwhile(self):
        with mock.patch.object(self.storage.packs, 'cancel'):
            self.assert_cannot_run('was restarted', '--cancel')
        self.assert_cannot_run('No pack is under way', '--cancel')

    def test_an_interrupt_lets_it_go_on(self):
        before = self.storage.getSize()
        err = self.interrupted()
        self.assertIn('the pack goes on; --cancel ends it', err)
        until(lambda: self.storage.packs.status()['last'], 'the end')
        self.assertLess(self.storage.getSize(), before)

    def test_a_server_that_goes_away(self):
        with phases.held_up(progress.COPY) as there:
            running = Thread(self.run_pack)
            self.assertTrue(there.wait(PATIENCE))
            for session in list(self.server.services['1'].sessions):
                self.server.mailbox.post(session.end)
            status, out, err = running.result()
        self.assertEqual((status, out), (CANNOT_RUN, ''))
        self.assertEqual(err.count('\n'), 1, err)
        self.assertIn('the server goes on to pack', err)
        until(lambda: self.storage.packs.status()['last'], 'the end')

    def test_an_answer_that_cannot_be(self):
        for answer in (
                None, [], {}, {'pack': 1, 'last': None, 'forecast': None},
                {'pack': None, 'last': {'ago': 'x'}, 'forecast': None},
                {'pack': {'phase': 'copy', 'share': .5,
                          'seconds': 10 ** 400}, 'last': None,
                 'forecast': None}):
            with self.subTest(answer), mock.patch.object(
                    self.storage.packs, 'status', return_value=answer):
                self.assert_cannot_run('does not understand', '--status')

    def test_no_storage_of_that_name(self):
        with mock.patch.object(target, 'PATIENCE', 1):
            self.assert_cannot_run("storage 'other'", '--storage', 'other')

    @property
    def client(self):
        client = FsyncClient(self.server.addr)
        self.addCleanup(client.close)
        return client


class OtherServers(PackCase):

    level = 2

    def address(self, server):
        return '%s:%s' % server.addr

    def test_a_unix_socket(self):
        storage = self.packable(pack_process=False)
        path = self.path('socket')
        self.serve(storage, path)
        before = storage.getSize()
        self.assertIn(f'{path}: packed', self.said(path=path))
        self.assertLess(storage.getSize(), before)

    def test_one_that_only_reads(self):
        server = self.serve(self.packable(), read_only=True)
        for options in (), ('--dry-run',), ('--cancel',):
            self.assert_cannot_run(
                'the server is read-only', *options, path=self.address(server))
        self.assertIn('no pack is under way',
                      self.said('--status', path=self.address(server)))

        server = self.serve(self.open('other.fs', read_only=False))
        server.close()
        server = self.serve(self.open('other.fs', read_only=True))
        self.assert_cannot_run('read-only', path=self.address(server))

    def test_stocks_server(self):
        with contextlib.closing(
                ZODB.DB(FileStorage(self.path()))) as db:
            for number in range(20):
                with db.transaction() as connection:
                    connection.root()['text'] = 'x' * number * 100
        address, stop = ZEO.server(self.path())
        self.addCleanup(stop)
        address = '%s:%s' % address
        for options in ('--dry-run',), ('--status',), ('--cancel',):
            self.assert_cannot_run('is not ours', *options, path=address)
        before = os.stat(self.path()).st_size
        self.assertEqual(self.said(path=address), f'{address}: packed\n')
        self.assertLess(os.stat(self.path()).st_size, before)
        found = self.report(path=address)
        self.assertEqual(found, {'path': address, 'outcome': None})

    def test_where_nobody_answers(self):
        path = self.path('socket')
        with socket.socket() as bound, socket.socket(socket.AF_UNIX) as other:
            bound.bind(('127.0.0.1', 0))
            other.bind(path)
            for address in '%s:%s' % bound.getsockname(), path:
                self.assert_cannot_run('Connection refused', path=address)

    def test_one_that_says_nothing(self):
        """As one that waits for TLS to begin."""
        with socket.create_server(('127.0.0.1', 0)) as silent:
            address = '%s:%s' % silent.getsockname()
            with mock.patch.object(target, 'PATIENCE', 0.2):
                self.assert_cannot_run('TLS', path=address)


class OnATerminal(PackCase):
    """Without --days, a pack asks first."""

    level = 2

    def answered(self, answer, *options):
        """Exit status, and what the terminal shows."""
        ours, theirs = os.openpty()
        self.addCleanup(os.close, ours)
        os.write(ours, answer.encode())
        with open(theirs, 'rb+', buffering=0) as terminal:
            done = subprocess.run(
                [sys.executable, '-c', 'import sys, fsyncstorage.fsyncpack;'
                 ' sys.exit(fsyncstorage.fsyncpack.main())',
                 self.path(), *options],
                stdin=terminal, stdout=subprocess.DEVNULL, stderr=terminal,
                timeout=PATIENCE,
                env=os.environ | {'PYTHONPATH': os.pathsep.join(sys.path)})
            return done.returncode, os.read(ours, 1 << 16).decode()

    def test_no(self):
        before = self.packable_file()
        for answer in 'n\n', '\n', 'what?\n':
            with self.subTest(answer):
                status, shown = self.answered(answer)
                self.assertEqual(status, CANNOT_RUN)
                self.assertIn('all earlier revisions go', shown)
                self.assertIn('nothing was changed', shown)
                self.assertEqual(os.stat(self.path()).st_size, before)

    def test_yes(self):
        before = self.packable_file()
        self.assertEqual(self.answered('y\n')[0], 0)
        self.assertLess(os.stat(self.path()).st_size, before)

    def test_who_says_days_is_not_asked(self):
        before = self.packable_file()
        status, shown = self.answered('', '--days', '0')
        self.assertEqual(status, 0)
        self.assertNotIn('[y/N]', shown)
        self.assertLess(os.stat(self.path()).st_size, before)


class Words(PackCase):

    def test_of_errors(self):
        for error, text in (
                (ServerException('a.b.C', ('why',)), 'why'),
                (ServerException('builtins.OSError', (28, 'full')), 'full'),
                (ServerException('a.C', {'x': 1}), "('a.C', {'x': 1})"),
                (ServerException('a.C', ()), "('a.C', ())"),
                (ValueError(), 'ValueError')):
            with self.subTest(error):
                self.assertEqual(commandline.reason(error), text)

    def test_names_of_classes_do_not_steer_the_terminal(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            options = commandline.parser().parse_args(['x', '--dry-run'])
            commandline.show({
                'path': 'x\x1b', 'old_size': 100, 'new_size': 50, 'freed': 50,
                'needed': 60, 'free': 70, 'seconds': 1, 'transactions': 0,
                'blobs': None, 'objects': 1, 'records': 1,
                'rows': [{'class': f'[red]\x1b[1m{number}', 'objects': 1,
                          'records': 2, 'bytes': 3}
                         for number in range(30)]}, options)
        self.assertNotIn('\x1b', out.getvalue())
        self.assertEqual(out.getvalue().count('[red]'), 30)
