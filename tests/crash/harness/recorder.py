"""Records what is done to the files of one directory, in the order it is done.

Each method of Recorder is a context manager: the operation itself is its body,
and is logged when it succeeded.  Operations other than syncs exclude each
other, so that the log has their true order.  A sync excludes nothing.

What the recorder meets for the first time (a blob file that the application
wrote itself) is logged as written just then, and unsynced.

The process of the storage may be killed before any of its operations: from
then on each of them raises Killed, and has no effect, and nothing is logged,
until another process is there.  What was not synced stays so, for the other
one, too.

`RecordingDisk` is the storage's Disk with each operation recorded.
"""

import contextlib
import itertools
import os
import random
import stat
import threading

from fsyncstorage import datafile

from . import events
from . import powercut
from . import tearing

# Emptied whenever they are opened: what they contain is never read.
IGNORED = '.fs.lock', '.fs.tmp'


class Killed(OSError):
    """The process is dead.  (An OSError, for nobody who lives meets it.)"""


class Clock:
    """The time of a site: it goes on only when told, and is the same in each
    run.

    It stands in the place of the module `time` where the storage asks how old
    a commit is.
    """

    def __init__(self):
        self.now = 0.0
        #: Seconds.
        self.sync_takes = 0.0

    def monotonic(self):
        return self.now


class Recorder:

    def __init__(self, directory):
        self.directory = os.path.realpath(directory)
        self.log = []
        self.clock = Clock()
        #: Operations until the process is killed; None: it is not.
        self.operations_left = None
        #: Called when a sync has begun, with the number of the file (None for
        #: a directory); may raise its error.
        self.on_sync = lambda file: None
        #: The last sync that failed, or None.
        self.sync_error = None
        #: Decides what the disk has of what a sync failed to keep.
        self.random = random.Random(0)
        self._lock = threading.RLock()
        self._unused = itertools.count()
        self._numbers = {}  # (device, inode) -> number
        self._record_what_is_there()

    def _record_what_is_there(self):
        """All of it is durable."""
        self._numbers[_identity(os.stat(self.directory))] = next(self._unused)
        names = {}  # number -> the first one
        for parent, directories, files in os.walk(self.directory):
            for name in sorted(directories + files):
                path = os.path.join(parent, name)
                number = self._number_of(path)
                if name in files and number is not None:
                    if number in names:
                        self.mark(events.Linked(
                            names[number], self._relative(path)))
                    else:
                        names[number] = self._relative(path)
                        self.mark(events.Synced(number, len(self.log)))
            self.mark(events.SyncedDirectory(
                self._relative(parent), len(self.log)))

    def mark(self, event):
        with self._lock:
            if not self.is_dead:
                self.log.append(event)

    # The death of the process

    @property
    def is_dead(self):
        return self.operations_left == 0

    def _another_operation(self):
        with self._lock:
            if self.is_dead:
                raise Killed('the process is dead')
            if self.operations_left is not None:
                self.operations_left -= 1
                if self.is_dead:
                    raise Killed('the process is killed')

    def look_around(self):
        """Log what somebody wrote, and nothing was done to yet."""
        with self._lock:
            for parent, _, files in os.walk(self.directory):
                for name in sorted(files):
                    self._number_of(os.path.join(parent, name))

    # Names and numbers

    def _relative(self, path):
        """The path in the directory; None for one that is not recorded."""
        parent, name = os.path.split(os.path.abspath(path))
        path = os.path.join(os.path.realpath(parent), name)
        if path == self.directory:
            return ''
        inside = self.directory + os.sep
        if path.startswith(inside) and not path.endswith(IGNORED):
            return path[len(inside):]

    def _number_of(self, path):
        """The number of what has this name; None if it is not recorded."""
        if self._relative(path) is None:
            return None
        identity = _identity(os.stat(path))
        if identity not in self._numbers:
            self._adopt(path)
        return self._numbers[identity]

    def _adopt(self, path):
        """Log what is there and was not seen before."""
        self._number_of(os.path.dirname(path))
        number = self._create(path)
        if not os.path.isdir(path):
            with open(path, 'rb') as file:
                content = file.read()
            if content:
                self.log.append(events.Wrote(number, 0, content))

    def _create(self, path):
        """Log a new file or directory; return its number."""
        number = next(self._unused)
        self._numbers[_identity(os.stat(path))] = number
        relative = self._relative(path)
        if os.path.isdir(path):
            self.log.append(events.MadeDirectory(relative))
        else:
            self.log.append(events.Created(relative, number))
        return number

    def _file(self, fd):
        """The number of an open file; None if it is not recorded."""
        return self._numbers.get(_identity(os.fstat(fd)))

    @contextlib.contextmanager
    def _forgotten_when_gone(self, path):
        """In here this name goes: its inode may soon be another file's."""
        gone = None
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(path)
            if status.st_nlink == 1 or stat.S_ISDIR(status.st_mode):
                gone = _identity(status)
        yield  # it may fail
        self._numbers.pop(gone, None)

    # Files

    @contextlib.contextmanager
    def opening(self, path, truncates):
        with self._lock:
            if self._relative(path) is None:
                yield
                return
            new = not os.path.exists(path)
            if new or truncates:
                self._another_operation()
            yield
            if new:
                self._create(path)
            elif truncates:
                self.log.append(events.Truncated(self._number_of(path), 0))
            else:
                self._number_of(path)

    @contextlib.contextmanager
    def writing(self, fd, data, position):
        with self._lock:
            number = self._file(fd)
            if number is not None:
                self._another_operation()
            yield
            if number is not None:
                self.log.append(events.Wrote(number, position, bytes(data)))

    @contextlib.contextmanager
    def truncating(self, fd, size):
        with self._lock:
            number = self._file(fd)
            if number is not None:
                self._another_operation()
            yield
            if number is not None:
                self.log.append(events.Truncated(number, size))

    @contextlib.contextmanager
    def syncing(self, fd):
        number, began = self._file(fd), len(self.log)
        try:
            with self._sync(number):
                yield
        except OSError:
            if number is not None:
                self.mark(events.SyncFailed(number, began))
            raise
        if number is not None:
            self.mark(events.Synced(number, began))

    @contextlib.contextmanager
    def _sync(self, number):
        self._another_operation()
        try:
            self.on_sync(number)
            yield
        except OSError as error:
            self.sync_error = error
            raise
        if self.clock.sync_takes:
            self.clock.now += self.clock.sync_takes
            self.mark(events.Passed(self.clock.now))

    def drop_cache(self, fd):
        """Let the file show what the disk has of what syncs did not keep."""
        with self._lock:
            number = self._file(fd)
            file = powercut.Disk.after_all(self.log).files[number]
            if file.is_dirty or not file.changes:
                return  # dirty pages are never dropped
            torn = tearing.Blocks(powercut.PAGE, file)
            content = torn.content([
                torn.options[0] - 1,  # the size stays
                *map(self.random.randrange, torn.options[1:])])
            os.pwrite(fd, content, 0)
            self.log.append(events.Reread(number, content))

    # Names

    @contextlib.contextmanager
    def making_directory(self, path):
        """Its parents may be made, too."""
        with self._lock:
            self._another_operation()
            yield
            self._number_of(path)

    @contextlib.contextmanager
    def linking(self, source, target):
        with self._lock:
            self._another_operation()
            self._number_of(source)
            yield
            self.log.append(events.Linked(
                self._relative(source), self._relative(target)))

    @contextlib.contextmanager
    def renaming(self, source, target):
        """Of one name of a file to another one of it, nothing happens."""
        with self._lock:
            self._another_operation()
            if os.path.exists(target) and os.path.samefile(source, target):
                yield
                return
            self._number_of(source)
            self._number_of(os.path.dirname(target))
            with self._forgotten_when_gone(target):
                yield
            self.log.append(events.Renamed(
                self._relative(source), self._relative(target)))

    @contextlib.contextmanager
    def removing(self, path):
        with self._lock:
            known = (os.path.exists(path)
                     and self._relative(path) is not None
                     and _identity(os.stat(path)) in self._numbers)
            if known:
                self._another_operation()
            with self._forgotten_when_gone(path):
                yield
            if known:
                self.log.append(events.Removed(self._relative(path)))

    @contextlib.contextmanager
    def syncing_directory(self, path):
        began = len(self.log)
        with self._sync(None):
            yield
        self.mark(events.SyncedDirectory(self._relative(path), began))


def _identity(status):
    return status.st_dev, status.st_ino


class RecordingDisk(datafile.Disk):
    """A test in test_crash_harness finds a method of Disk that is missing."""

    def __init__(self, recorder):
        self.recorder = recorder

    def open(self, path, flags, mode=0o666):
        with self.recorder.opening(path, flags & os.O_TRUNC):
            return super().open(path, flags, mode)

    def write(self, fd, data, position):
        with self.recorder.writing(fd, data, position):
            super().write(fd, data, position)

    def sync(self, fd):
        with self.recorder.syncing(fd):
            super().sync(fd)

    def begin_to_write_back(self, fd, position, end):
        """It makes nothing durable."""

    def drop_cache(self, fd, position):
        self.recorder.drop_cache(fd)

    def truncate(self, fd, size):
        with self.recorder.truncating(fd, size):
            super().truncate(fd, size)

    def reserve(self, fd, position, length):
        """Nothing that is in a file, or its size, is changed by it."""
        if not self.recorder.is_dead:
            super().reserve(fd, position, length)

    def link(self, source, target):
        with self.recorder.linking(source, target):
            super().link(source, target)

    def replace(self, source, target):
        with self.recorder.renaming(source, target):
            super().replace(source, target)

    def remove(self, path):
        with self.recorder.removing(path):
            super().remove(path)

    def make_directory(self, path):
        with self.recorder.making_directory(path):
            super().make_directory(path)

    def remove_directory(self, path):
        with self.recorder.removing(path):
            super().remove_directory(path)

    def sync_directory(self, path, *args):
        with self.recorder.syncing_directory(path):
            super().sync_directory(path, *args)
