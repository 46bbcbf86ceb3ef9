"""What the tests share: a scratch directory, a disk under control, commits."""

import contextlib
import ctypes
import io
import json
import os
import shutil
import signal
import tempfile
import threading
import traceback
import unittest
import warnings
from unittest import mock

from ZODB.Connection import TransactionMetaData
from ZODB.utils import z64

from fsyncstorage import FsyncStorage
from fsyncstorage import datafile
from fsyncstorage.server import quiet

# Seconds.  Nothing here takes that long, on a machine that has ten times too
# much to do; a test that would hang fails instead.
PATIENCE = 60


def all_is_cached(case):
    """Where the file system of the tests cannot tell what is in the page cache
    (tmpfs): let it say of all that it is."""
    with tempfile.TemporaryFile() as file:
        file.write(b'x')
        file.flush()
        try:
            os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
        except OSError:
            patch = mock.patch.object(os, 'RWF_NOWAIT', 0)
            patch.start()
            case.addCleanup(patch.stop)


class ControlledDisk(datafile.Disk):
    """A disk whose syncs can be counted, held up, and made to fail."""

    def __init__(self):
        self.log = []               # names of operations, in order
        self.before_write = lambda data, position: None
        self._errors = []
        self._held = False
        self._entered = threading.Semaphore(0)
        self._allowed = threading.Semaphore(0)

    @property
    def syncs(self):
        return self.log.count('sync')

    def fail_sync(self, error):
        """The next sync raises this."""
        self._errors.append(error)

    def hold_syncs(self):
        self._held = True

    def wait_for_sync(self):
        """Return when a sync has begun (and is held up)."""
        if not self._entered.acquire(timeout=PATIENCE):
            raise AssertionError('no sync began')

    def hold_again(self):
        """After `release_syncs`."""
        self._allowed = threading.Semaphore(0)
        self._entered = threading.Semaphore(0)
        self._held = True

    def let_one_sync_end(self):
        self._allowed.release()

    def release_syncs(self):
        self._held = False
        self._allowed.release(1000)

    def write(self, fd, data, position):
        self.before_write(data, position)
        self.log.append('status' if len(data) == 1 else 'write')
        super().write(fd, data, position)

    def sync(self, fd):
        if self._held:
            self._entered.release()
            if not self._allowed.acquire(timeout=PATIENCE):
                raise AssertionError('a sync was held up for too long')
        self.log.append('sync')
        if self._errors:
            raise self._errors.pop()
        super().sync(fd)

    def truncate(self, fd, size):
        self.log.append('truncate')
        super().truncate(fd, size)


class TestCase(unittest.TestCase):
    """In a directory of its own; no thread and no lock is left behind."""

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix='fsyncstorage-')
        self.addCleanup(shutil.rmtree, self.directory)
        self.addCleanup(self._check_threads, set(threading.enumerate()))
        quiet.said.allowances.clear()

    def _check_threads(self, before):
        left = [thread for thread in threading.enumerate()
                if thread not in before]
        for thread in left:
            thread.join(PATIENCE)  # it may be about to end
        self.assertEqual([each for each in left if each.is_alive()], [])

    def path(self, name='Data.fs'):
        return os.path.join(self.directory, name)

    def open(self, name='Data.fs', **options):
        """(Where no process reads for clients, a test sees all loads, and can
        hold them up.)"""
        storage = FsyncStorage(self.path(name), **{'readers': 0, **options})
        self.addCleanup(storage.close)
        return storage

    def store_blob(self, storage, transaction, number, content=b'content',
                   serial=z64, record=b'record'):
        """As an application does it, which has the content in a file."""
        with open(self.path('upload'), 'wb') as file:
            file.write(content)
        storage.storeBlob(oid(number), serial, record, self.path('upload'),
                          '', transaction)

    def patch(self, target, **values):
        """Other values in a module, or of an object, until the test ends."""
        for name, value in values.items():
            patch = mock.patch.object(target, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def controlled_disk(self):
        disk = ControlledDisk()
        self.patch(datafile, disk=disk)
        self.addCleanup(disk.release_syncs)
        return disk


def interrupt(thread, error=KeyboardInterrupt):
    """It is raised when the thread next runs."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident), ctypes.py_object(error))


def oid(number):
    return number.to_bytes(8, 'big')


def begin(storage, **metadata):
    transaction = TransactionMetaData(**metadata)
    storage.tpc_begin(transaction)
    return transaction


def under_way(storage):
    """The Transaction that was begun last."""
    return [*storage._begun.values()][-1]


def vote(storage, records, serials={}, **metadata):
    """A transaction, ready to finish, that stores {number: data}."""
    transaction = begin(storage, **metadata)
    for number, data in records.items():
        storage.store(oid(number), serials.get(number, z64), data, '',
                      transaction)
    storage.tpc_vote(transaction)
    return transaction


def commit(storage, records, serials={}, f=None):
    return storage.tpc_finish(vote(storage, records, serials), f)


class Thread(threading.Thread):
    """A call in a thread, whose result or error `result` gives."""

    def __init__(self, function, *args, **kw):
        super().__init__(daemon=True)
        self._call = lambda: function(*args, **kw)
        self._result = self._error = None
        self.start()

    def run(self):
        try:
            self._result = self._call()
        except BaseException as error:
            self._error = error

    def result(self):
        self.join(PATIENCE)
        if self.is_alive():
            raise AssertionError('a thread hangs')
        if self._error is not None:
            raise self._error
        return self._result


def run_command(main, *arguments):
    """Exit status, standard output, standard error of a command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(list(arguments))
        except SystemExit as end:   # of argparse
            status = end.code
    return status, out.getvalue(), err.getvalue()


def in_a_child(function, *args):
    """What the function returns (as JSON) in a fork of this process."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of any fork beside threads: that is what is tested.
        warnings.simplefilter('ignore', DeprecationWarning)
        child = os.fork()
    if not child:
        signal.alarm(PATIENCE)  # it may wait for a thread of its parent
        try:
            result = function(*args)
        except BaseException:
            result = traceback.format_exc()
        try:
            with os.fdopen(writer, 'w') as file:
                print(json.dumps(result), file=file)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        result = file.readline()  # a grandchild may keep it open
    os.waitpid(child, 0)
    return json.loads(result)


def name_of_error(function, *args):
    """The class of what the function raises, in words; empty: nothing."""
    try:
        function(*args)
    except BaseException as error:
        return type(error).__name__
    return ''


def owners(turns):
    """How many owners hold objects, or wait for them."""
    return len(turns._granted) + len(turns._waiting)


def read_to_the_end(connection):
    """All that comes until the other end has closed it."""
    data = b''
    with contextlib.suppress(ConnectionError):
        while more := connection.recv(1 << 16):
            data += more
    return data


def until(condition, what):
    """Poll for what no event tells: that a thread has begun to wait."""
    waited, pause = 0.0, 0.001
    while waited < PATIENCE:
        found = condition()
        if found:
            return found
        threading.Event().wait(pause)
        waited += pause
        # To look all the time would take the processor from what it is about.
        pause = min(1.1 * pause, 0.02)
    raise AssertionError(f'never: {what}')
