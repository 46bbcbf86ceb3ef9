"""Does the disk answer?

A thread writes and syncs a byte on each file system that the node writes to,
each fifth of the lease, whether the node has anything else to do or not.  The
files have no names, so nothing is left of them.

*Progress* on a file system is the end of such a sync, or of any write of its
block device, which the kernel counts.  A probe alone does not do: it may stand
behind what others have written.  (A disk of 50 MB/s, and a blob of 2 GB: no
probe has ended for 42 seconds, and that disk works.)  Where there is no block
device (NFS, FUSE, btrfs, ZFS), only probes count.

A disk that is full answers.  How much is free there is measured, too.

Nobody waits for this thread: it may never come back from a sync.
"""

import contextlib
import errno
import math
import os
import tempfile
import time
import typing
from collections.abc import Iterable

from ... import datafile
from ...commit.wakeable import WakeableThread

#: The most seconds for which `close` waits for the thread.
LONGEST_FAREWELL = 1.0


def writes_completed(device: int) -> int | None:
    """Of a block device, writes and flushes; None: it is none.  This asks the
    kernel alone, and waits for no disk."""
    try:
        with open(f'/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat',
                  encoding='ascii') as file:
            figures = [*map(int, file.read().split())]
    except OSError:
        return None
    return figures[_WRITES] + sum(figures[_FLUSHES:_FLUSHES + 1])


#: In the kernel's statistics of a block device.  (Old ones count no flushes.)
_WRITES, _FLUSHES = 4, 15


def free(directory: str) -> int:
    """How many bytes this user may still write there."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def write_and_sync(file: typing.BinaryIO) -> None:
    os.pwrite(file.fileno(), b'.', 0)
    datafile.Disk.sync(file.fileno())


class Probing:

    def __init__(self, homes: Iterable[str], spools: Iterable[str],
                 every: float) -> None:
        """Directories in which the node keeps something, and in which it does
        not.  Those that are not there are left out until they are."""
        self._homes, self._spools = [*homes], [*spools]
        self._every = every
        #: By the device of the file system.
        self._files: dict[int, typing.BinaryIO] = {}
        #: When there was progress on each, or the first sync was to begin.
        self._progress: dict[int, float] = {}
        self._completed: dict[int, int | None] = {}
        self._begun = time.monotonic()
        #: When the last round has begun of which every sync has ended.
        self._good = -math.inf
        #: The bytes that are free in the fullest home.
        self.room: float = math.inf
        #: Why the last round has failed, or None.
        self.trouble: str | None = None
        self._is_over = False
        self._thread = WakeableThread(
            'probes of the disk', self._work, lambda: self._every)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """(A thread that hangs closes its files when it goes on.)"""
        self._is_over = True
        self._thread.close(LONGEST_FAREWELL)

    @property
    def age(self) -> float:
        """Seconds since the last round began that was good."""
        return time.monotonic() - self._good

    @property
    def overdue(self) -> float:
        """The same, or since there are probes at all."""
        return time.monotonic() - max(self._good, self._begun)

    def works_since(self, moment: float) -> bool:
        """Was there a good round that began after this moment?  If not, there
        is one at once."""
        if self._good >= moment:
            return True
        self._thread.wake()
        return False

    @property
    def silence(self) -> float:
        """Seconds without progress, on the file system that has the least.
        It is to be asked for again and again."""
        for device in list(self._progress):
            completed = writes_completed(device)
            if completed != self._completed.get(device):
                self._completed[device] = completed
                self._progress[device] = time.monotonic()
        return time.monotonic() - min(
            list(self._progress.values()), default=self._begun)

    # In the thread

    def _work(self) -> None:
        if self._is_over:
            for file in self._files.values():
                file.close()
            return
        begun = time.monotonic()
        try:
            for each in *self._homes, *self._spools:
                self._open(each)
            for device, file in self._files.items():
                write_and_sync(file)
                self._progress[device] = time.monotonic()
            self.room = min(map(free, filter(os.path.isdir, self._homes)),
                            default=math.inf)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                self.trouble = str(error)
                return
            self.room = 0
        self.trouble, self._good = None, begun

    def _open(self, directory: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            device = os.stat(directory).st_dev
            if device not in self._files:
                self._progress.setdefault(device, time.monotonic())
                self._files[device] = tempfile.TemporaryFile(
                    buffering=0, dir=directory)
