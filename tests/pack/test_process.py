"""A pack in a process of its own: what it does, and the same bytes; its ends,
and where there is no such process."""

import contextlib
import ctypes
import errno
import functools
import json
import os
import platform
import random
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import tracemalloc
import unittest
from unittest import mock

import ZODB
import ZODB.blob
from ZODB.FileStorage.FileStorage import FileStorageError
from ZODB.FileStorage.format import CorruptedError
from ZODB.serialize import referencesf

from fsyncstorage import FsyncStorage
from fsyncstorage import datafile
from fsyncstorage.pack import bulk
from fsyncstorage.pack import packing
from fsyncstorage.pack import process
from fsyncstorage.pack import progress
from fsyncstorage.pack import work
from fsyncstorage.processes import starting

from ..often import often
from ..processes.started import StartedTestCase
from ..support import PATIENCE
from ..support import Thread
from ..support import commit
from ..support import oid
from .histories import random_history
from .histories import state
from .phases import PHASES
from .phases import fill

# They look into /proc, write to /dev/full, wait for any process.
on_linux = unittest.skipUnless(sys.platform == 'linux', 'not on Linux')


class ProcessTestCase(StartedTestCase):

    def setUp(self):
        super().setUp()
        #: The processes that were started.
        self.started = started = []

        class Process(process.Process):

            def __init__(self, *args):
                super().__init__(*args)
                started.append(self.pid)

        self.patch(bulk, Process=Process)

    def packable(self, **options):
        return fill(self.open(blob_dir=self.path('blobs'), **options))

    def content(self, name='Data.fs'):
        with open(self.path(name), 'rb') as file:
            return file.read()

    def pack(self, storage, told=lambda phase: None):
        """`told(phase)` is called wherever the process reports."""
        tell = progress.PackWatch.tell

        def tell_us(watch, phase, done, total):
            told(phase)
            tell(watch, phase, done, total)

        with mock.patch.object(progress.PackWatch, 'tell', tell_us):
            storage.pack(time.time() + 1, referencesf)

    def check_nothing_happened(self, storage, before):
        """It packs as if there had been no pack before."""
        self.assertEqual(self.content(), before)
        self.check_nothing_is_left()
        self.assertIsNone(storage.pack_watch)
        self.assertFalse(storage.is_packing)
        storage.pack_process = often(False, True)
        self.pack(storage)
        self.assertLess(len(self.content()), len(before))

    def check_nothing_is_left(self):
        for name in 'Data.fs.pack', 'Data.fs.pack.index', 'blobs/.removed':
            self.assertFalse(os.path.exists(self.path(name)), name)

    def blobs(self):
        return [name for _, _, names in os.walk(self.path('blobs'))
                for name in names if name.endswith('.blob')]


NICEST = 19
# Of ioprio_get(2): the lowest priority of those that get their turn.
LOWEST = 2 << 13 | 7
_IOPRIO_GET = {'x86_64': 252, 'aarch64': 31}


def at_the_disk(pid):
    """None: not known on this system."""
    number = _IOPRIO_GET.get(platform.machine())
    if sys.platform != 'linux' or number is None:
        return None
    return ctypes.CDLL(None).syscall(number, 1, pid)


def said_in(name, pid):
    """What /proc has about a process; None: nothing on this system."""
    try:
        with open(f'/proc/{pid}/{name}') as file:
            return file.read().strip()
    except OSError:
        return None


class Bytes(ProcessTestCase):

    level = 2

    def test_the_same_as_within(self):
        """I15, for whoever packs."""
        packed = 0
        for number in often((3, 18), (3, 4, 17, 18, 23, 41)):
            _, history = random_history(number)
            with open(self.path('history'), 'wb') as file:
                file.write(bytes(history))
            self.check_same(number)
            packed += self.content() != bytes(history)
        self.assertGreater(packed, 0)

    def check_same(self, number):
        outcomes = []
        for pack_process in True, True, False:
            with self.subTest(number, pack_process=pack_process):
                shutil.copy(self.path('history'), self.path())
                with contextlib.suppress(FileNotFoundError):
                    os.remove(self.path('Data.fs.index'))
                storage = FsyncStorage(
                    self.path(), pack_process=pack_process)
                outcome = None
                try:
                    storage.pack(time.time(), referencesf)
                except Exception as error:
                    outcome = type(error), str(error)
                storage.close()
                outcomes.append((outcome, self.content()))
        self.assertEqual(*outcomes[:2])
        self.assertEqual(*outcomes[1:])
        self.assertTrue(self.started)

    def test_what_is_freed(self):
        """Also where sockets have a timeout."""
        self.addCleanup(socket.setdefaulttimeout, socket.getdefaulttimeout())
        socket.setdefaulttimeout(.001)
        storage = self.packable()
        before = len(self.content())
        self.assertEqual(len(self.blobs()), 20)
        self.pack(storage)
        self.assertEqual(len(self.started), 1)
        self.assertLess(len(self.content()), before / 2)
        self.assertEqual(len(self.blobs()), 1)
        self.check_nothing_is_left()
        storage.close()
        with ZODB.DB(self.open(blob_dir=self.path('blobs'))
                     ).transaction() as connection:
            self.assertEqual(connection.root()['text'], 'x' * 1900)
            with connection.root()['blob'].open() as file:
                self.assertEqual(file.read(), b'x' * 19)

    def test_what_is_committed_meanwhile(self):
        """In every phase; the process copies once more, then the storage."""
        storage = self.packable()
        committed = {}  # phase -> oid

        def commit_one(phase):
            if phase not in committed:
                committed[phase] = 1000 + len(committed)
                commit(storage, {committed[phase]: b'meanwhile'})

        self.pack(storage, commit_one)
        self.assertEqual(list(committed), PHASES)
        for _ in range(2):
            for number in committed.values():
                self.assertEqual(storage.load(oid(number))[0], b'meanwhile')
            storage.close()
            storage = self.open(blob_dir=self.path('blobs'))

    def test_it_gives_way(self):
        storage = self.packable()
        found = set()

        def told(phase):
            if phase != progress.SWAP:
                found.add((
                    os.getpriority(os.PRIO_PROCESS, self.started[0])
                    - os.getpriority(os.PRIO_PROCESS, 0),
                    at_the_disk(self.started[0]),
                    said_in('autogroup', self.started[0]),
                    said_in('oom_score_adj', self.started[0])))

        self.pack(storage, told)
        [(nicer, of_disk, of_session, of_memory)] = found
        # Nobody is nicer than 19, as the tests themselves may be.
        self.assertEqual(
            nicer > 0, os.getpriority(os.PRIO_PROCESS, 0) < NICEST)
        self.assertIn(of_disk, (LOWEST, None))
        if of_session is not None:
            self.assertRegex(of_session, ' nice 10$')
        self.assertIn(of_memory, ('1000', None))

    @on_linux
    def test_it_has_no_file_but_those_of_the_pack(self):
        storage = self.packable()
        found = set()

        def told(phase):
            if phase != progress.SWAP:
                home = f'/proc/{self.started[0]}/fd'
                for number in os.listdir(home):
                    # It reads other files now and then, and closes them.
                    with contextlib.suppress(FileNotFoundError):
                        found.add(os.readlink(os.path.join(home, number)))

        self.pack(storage, told)
        self.assertEqual(
            {name for name in found if name.startswith(self.directory)},
            {self.path(name) for name in (
                'Data.fs', 'Data.fs.pack', 'Data.fs.pack.index',
                'blobs/.removed')})

    def test_a_large_transaction_before_the_lock_is_taken(self):
        """The append lock is not held while all of it is copied (I2)."""
        storage = self.packable(pack_process=False)
        hold_still, copy_rest = storage.hold_still, packing._Packing._copy_rest
        sizes, rests = [8 << 20], []

        def commit_and_hold_still():
            if sizes:
                commit(storage, {1000: bytes(sizes.pop())})
            hold_still()

        def copy(packing_it, copier):
            if storage._commit_lock.locked():
                rests.append(storage.getSize() - copier.copied_to)
            copy_rest(packing_it, copier)

        with mock.patch.object(storage, 'hold_still', commit_and_hold_still), \
                mock.patch.object(packing._Packing, '_copy_rest', copy):
            self.pack(storage)
        self.assertEqual((sizes, rests), ([], [0]))

    def test_no_process_copies_without_end(self):
        """Though each round leaves less than the one before."""
        storage = self.packable()
        ends = [storage.getSize()]
        for number in range(30, 0, -1):
            commit(storage, {1000 + number: bytes(100 * number)})
            ends.append(storage.getSize())
        sizes = iter(ends[1:])
        with datafile.open_existing(self.path()) as old, \
                datafile.open_new(self.path('new')) as new, \
                datafile.open_new(self.path('index')) as index, \
                mock.patch.multiple(work, SMALL_REST=1, MOST_ROUNDS=3):
            copier = work.copied(
                work.Job(packing.stop_of(storage, time.time()), ends[0], True),
                work.Files(old, None, new, index),
                referencesf, lambda *told: None, sizes.__next__)
        # Before and after it has written the index.
        self.assertEqual(copier.copied_to, ends[6])
        self.assertEqual(next(sizes), ends[7])

    def test_committers_that_are_faster_have_to_wait(self):
        storage = self.packable(pack_process=False)
        hold_still, numbers = storage.hold_still, iter(range(1000, 2000))
        held = []

        def hold():
            commit(storage, {next(numbers): bytes(packing.SMALL_REST)})
            hold_still()
            held.append(storage._commit_lock.locked())

        storage.hold_still = hold
        self.pack(storage)
        self.assertEqual(held, (packing.MOST_IN_VAIN + 1) * [True])
        self.assertFalse(storage._commit_lock.locked())
        self.assertEqual(
            storage.load(oid(1003))[0], bytes(packing.SMALL_REST))

    def test_a_record_that_takes_much_to_unpickle_here(self):
        """ZODB's referencesf takes 256 MB for it."""
        storage = self.open(pack_process=False)
        tid = commit(storage, {0: state(random.Random(1), [])})
        commit(storage, {0: (
            b'\x80\x03cpersistent.mapping\nPersistentMapping\n.'
            b'\x80\x03Nr\xff\xff\xff\x00.')}, {0: tid})
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        self.pack(storage)
        self.assertLess(tracemalloc.get_traced_memory()[1], 32 << 20)


READY = json.dumps({'ready': starting.VERSION})


class Failures(ProcessTestCase):

    level = 2

    def check_failure(self, storage, error, told=lambda phase: None):
        before = self.content()
        self.check_failure_once(storage, error, told)
        self.check_nothing_happened(storage, before)

    def check_failure_once(self, storage, error, told=lambda phase: None):
        before = self.content()
        with self.assertRaisesRegex(*error):
            self.pack(storage, told)
        self.assertEqual(self.content(), before)
        self.check_nothing_is_left()

    def at(self, phase, call):
        """Call it when this phase is reported for the first time."""
        calls = [call]

        def told(found):
            if found == phase and calls:
                calls.pop()()

        return told

    def test_it_is_broken_off(self):
        """The process is killed, the pack is cancelled, or Ctrl-C meets the
        thread that packs."""
        def interrupt(storage):
            raise KeyboardInterrupt

        for do, error, phases in (
                (lambda storage: os.kill(self.started[-1], signal.SIGKILL),
                 (process.Gone, 'nothing was changed'),
                 often([progress.COPY], PHASES[:-1])),
                (lambda storage: storage.pack_watch.cancel(),
                 (progress.Cancelled, 'cancelled'),
                 often([progress.MARK], PHASES)),
                (interrupt, (KeyboardInterrupt, ''),
                 often([progress.SWAP], PHASES))):
            for phase in phases:
                with self.subTest(phase, error=error):
                    self.started.clear()
                    storage = self.packable()
                    self.check_failure(storage, error, self.at(
                        phase, functools.partial(do, storage)))
                    self.check_gone(self.started[0])
                    storage.close()

    def test_it_hangs(self):
        """A cancel ends it, and so does a close."""
        for end, error in (
                (lambda storage: storage.pack_watch.cancel(),
                 progress.Cancelled),
                (FsyncStorage.close, ValueError)):
            with self.subTest(error=error):
                storage = self.packable()
                before = self.content()
                hangs = threading.Event()

                def stop(hangs=hangs):
                    os.kill(self.started[-1], signal.SIGSTOP)
                    self.addCleanup(self.end, self.started[-1])
                    hangs.set()

                # (There, it has nothing more to tell.)
                packing = Thread(
                    self.pack, storage, self.at(progress.COPY, stop))
                hangs.wait(PATIENCE)
                end(storage)
                with self.assertRaises(error):
                    packing.result()
                self.check_gone(self.started[-1])
                storage.close()
                storage = self.open(blob_dir=self.path('blobs'))
                self.check_nothing_happened(storage, before)
                storage.close()

    @on_linux
    def test_it_hangs_and_cannot_be_killed(self):
        """As when a disk does not answer: the pack does not wait for it."""
        storage = self.packable()
        before = self.content()
        hangs = threading.Event()
        Popen, left = subprocess.Popen, []

        def stop():
            os.kill(self.started[0], signal.SIGSTOP)
            self.addCleanup(self.end, self.started[0])
            os.waitid(os.P_PID, self.started[0], os.WSTOPPED)
            hangs.set()

        def kill(popen):
            left.append(popen)

        with mock.patch.object(starting, 'END_WITHIN', .01), \
                mock.patch.object(Popen, 'kill', kill), \
                self.assertLogs('fsyncstorage.processes') as logs:
            pack = Thread(self.pack, storage, self.at(progress.COPY, stop))
            self.assertTrue(hangs.wait(PATIENCE))
            storage.pack_watch.cancel()
            with self.assertRaises(progress.Cancelled):
                pack.result()
        self.assertIn('has not ended', logs.output[0])
        left[0].kill()
        left[0].wait()
        self.check_nothing_happened(storage, before)

    def test_what_it_reports_is_checked(self):
        storage = self.packable()
        done = {'copied_to': storage.getSize(), 'written_to': 0, 'blocks': '',
                'part': ''}
        for report in (
                'no JSON', '[]', '7', '{}', '{"tell": [1, 2, 3]}',
                '{"ask": "time"}', '{"missing": "00"}',
                '{"os": ["28", "full"]}', '{"result": ["done", {}]}',
                '{"result": ["forecast", {}]}',
                json.dumps({'result': ['done', done]}),  # the index is empty
                json.dumps({'result': ['done', {**done, 'copied_to': 'x'}]}),
                json.dumps({'result': ['done', {**done, 'blocks': 'x'}]}),
                json.dumps({'result': ['done', {**done, 'blocks': '00' * 32}]})
                ):
            with self.subTest(report), self.python_that_says(
                    says_when_asked(report)):
                self.check_failure_once(
                    storage, (process.Gone, 'Nothing was changed'))

    def test_a_second_pack_leaves_the_first_one_alone(self):
        storage = self.packable()

        def pack_again(phase):
            with self.assertRaisesRegex(FileStorageError, 'Already packing'):
                storage.pack(time.time(), referencesf)
            self.assertTrue(storage.is_packing)
            self.assertIsNotNone(storage.pack_watch)

        self.pack(storage, pack_again)
        self.assertFalse(storage.is_packing)

    def test_the_storage_is_closed(self):
        for phase in often([progress.SWAP], PHASES):
            with self.subTest(phase):
                storage = self.packable()
                before = self.content()
                with self.assertRaisesRegex(ValueError, 'closed'):
                    self.pack(storage, self.at(phase, storage.close))
                self.check_gone(self.started[-1])
                storage = self.open(blob_dir=self.path('blobs'))
                self.check_nothing_happened(storage, before)
                storage.close()

    @on_linux
    def test_the_disk_is_full(self):
        for full in often(
                ['Data.fs.pack'], ['Data.fs.pack', 'Data.fs.pack.index']):
            with self.subTest(full):
                storage = self.packable()
                self.check_full(storage, self.path(full))
                storage.close()

    def check_full(self, storage, full):
        before = self.content()
        open_new = datafile.open_new

        def open_full(path, *mode):
            file = open_new(path, *mode)
            if path == full:
                number = os.open('/dev/full', os.O_RDWR)
                os.dup2(number, file.fileno(), inheritable=False)
                os.close(number)
            return file

        with mock.patch.object(datafile, 'open_new', open_full):
            with self.assertRaises(OSError) as caught:
                self.pack(storage)
        self.assertEqual(caught.exception.errno, errno.ENOSPC)
        self.assertIn('a pack needs room', str(caught.exception))
        datafile.remove_if_there(full)  # its file is another one by now
        self.check_nothing_happened(storage, before)

    def test_damage(self):
        storage = self.packable()
        before = self.content()
        at = before.index(b'x' * 1000)
        with open(self.path(), 'r+b') as file:
            file.seek(at)
            file.write(b'y')
        texts = []
        for storage.pack_process in True, False:
            with self.assertRaises(CorruptedError) as caught:
                self.pack(storage)
            texts.append(str(caught.exception))
        self.assertIn('nothing was changed', texts[0])
        self.assertEqual(*texts)
        self.check_nothing_is_left()

    def test_a_record_that_is_no_pickle(self):
        storage = self.open()
        commit(storage, {0: b'no pickle'})
        with self.assertRaisesRegex(ValueError, '0000000000000000.*be read'):
            self.pack(storage)
        self.check_nothing_is_left()

    @on_linux
    def test_the_storage_is_killed(self):
        """The process ends, and the next opening removes its files."""
        for phase in often([progress.COPY], PHASES):
            with self.subTest(phase):
                self.packable().close()
                before = self.content()
                pid = self.kill_a_storage(phase)
                self.wait_for_the_end_of(pid)
                storage = self.open(blob_dir=self.path('blobs'))
                self.check_nothing_happened(storage, before)
                storage.close()

    def kill_a_storage(self, phase):
        """Return the process that packs."""
        told, tell = os.pipe()
        pid = os.fork()
        if not pid:
            def die():
                os.write(tell, b'%d' % self.started[-1])
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                self.started.clear()
                self.pack(FsyncStorage(
                    self.path(), blob_dir=self.path('blobs')),
                    self.at(phase, die))
            finally:
                os._exit(1)
        os.close(tell)
        with open(told, 'rb') as file:
            packing_pid = int(file.read())
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]),
                         -signal.SIGKILL)
        return packing_pid


def says_when_asked(report, end=r'\n'):
    """A script that is ready, and reports this when it has its job."""
    return (rf"read modules; printf '%s\n' '{READY}'; read job;"
            f" printf '%s{end}' '{report}'")


class Within(ProcessTestCase):
    """Where there is no process, all is done by the storage's own."""

    level = 2

    def check_within(self, storage):
        before = len(self.content())
        with self.assertLogs('fsyncstorage.pack', 'INFO') as logs:
            self.pack(storage)
        self.assertIn('packing within this process', '\n'.join(logs.output))
        self.assertLess(len(self.content()), before)
        self.assertEqual(len(self.blobs()), 1)
        self.check_nothing_is_left()
        return logs.records

    def test_where_the_operator_wants_that(self):
        self.check_within(self.packable(pack_process=False))
        self.assertEqual(self.started, [])

    def test_where_a_wrapper_reads_records(self):
        storage = self.packable()
        storage.pack(time.time() + 1, lambda data: referencesf(data))
        self.assertEqual(self.started, [])
        self.assertEqual(len(self.blobs()), 1)

    def test_where_python_is_a_part_of_another_program(self):
        storage = self.packable()
        for executable in often(
                ('/usr/bin/uwsgi_python3', None),
                ('/usr/bin/uwsgi', '/usr/bin/uwsgi_python3',
                 '/usr/bin/python3-server', '', None)):
            with self.subTest(executable), mock.patch.object(
                    sys, 'executable', executable):
                fill(storage)
                self.check_within(storage)
        with mock.patch.object(sys, 'frozen', True, create=True):
            fill(storage)
            self.check_within(storage)
        self.assertEqual(self.started, [])

    def check_warning(self, storage, why):
        fill(storage)
        [warning] = [record for record in self.check_within(storage)
                     if record.levelname == 'WARNING']
        self.assertIn(why, warning.getMessage())

    def test_where_the_process_says_something_else(self):
        """First of all; or that it has other code, from the disk."""
        storage = self.packable()
        for said in often(('[1',), ('hello', '{}', '[1', r'\377')):
            with self.subTest(said), self.python_that_says(
                    f"printf '{said}\\n'; exec {sys.executable} \"$@\""):
                self.check_warning(storage, 'it said')
        with mock.patch.object(starting, 'VERSION', 'an old one'):
            self.check_warning(storage, 'restart it')

    def test_one_that_is_not_ready_gets_no_job(self):
        """It could do it in its own way, and beside its parent."""
        storage = self.packable()
        with self.python_that_says(
                f'read modules; read job && echo >{self.path("job")}'), \
                mock.patch.object(starting, 'READY_WITHIN', .1):
            self.check_warning(storage, 'it said')
        self.assertFalse(os.path.exists(self.path('job')))

    def test_where_the_process_does_not_start(self):
        storage = self.packable()
        path = self.path('python')
        with open(path, 'w') as file:
            file.write('#!/bin/sh\nexit 3\n')
        for mode, why in (0, 'Permission'), (stat.S_IRWXU, 'exit code 3'):
            os.chmod(path, mode)
            with self.subTest(why), mock.patch.object(
                    sys, 'executable', path):
                self.check_warning(storage, why)

    def test_it_runs_nothing_of_the_environment(self):
        evil = self.path('evil')
        os.mkdir(evil)
        for name in 'sitecustomize.py', 'usercustomize.py', 'json.py':
            with open(os.path.join(evil, name), 'w') as file:
                file.write(f'open({self.path("was-run")!r}, "w")\n')
        storage = self.packable()
        home = os.getcwd()
        os.chdir(evil)
        self.addCleanup(os.chdir, home)
        with mock.patch.dict(os.environ, {'PYTHONPATH': evil}):
            self.pack(storage)
        self.assertEqual(len(self.started), 1)
        self.assertFalse(os.path.exists(self.path('was-run')))
