"""The parent of one of our processes, seen from the process.

Commands arrive on the standard input; reports go to what was the standard
output.  Each is a line of JSON.

The process ends when its parent ends.  It notices this because its standard
input ends, or because it has another parent then.  (Its input does not end
while another child of the parent holds the other end of the socket.)

It gives way to all others.  Linux may first share the processor among sessions
(`autogroup` in sched(7)), and compare the nice values of processes only within
a session.  So a process that leads a session of its own gives that session a
nice value, too.

For the disk, the process gets the lowest priority of the best-effort class.
It does not get the idle class, which may use the disk only when nobody else
does.  This process may hold a lock of the file system for which a commit
waits; the commit would then wait until nobody else uses the disk.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import platform
import queue
import signal
import sys
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]

# Seconds between two checks whether the process still has its parent.
_LOOK_AFTER = 1.0
_NICE = 10
_OF_SESSION = '/proc/self/autogroup'
_OOM = '/proc/self/oom_score_adj'
# ioprio_set(2), which the C library does not have.
_IOPRIO_SET = {'x86_64': 251, 'aarch64': 30}
_THIS_PROCESS, _BEST_EFFORT, _LOWEST = 1, 2 << 13, 7


def _fingerprint() -> int:
    """Of the whole package: a list of modules would not stay complete."""
    crc = 0
    for path in sorted(pathlib.Path(__file__).parents[1].rglob('*.py')):
        crc = zlib.crc32(path.read_bytes(), crc)
    return crc


#: Which code this process runs, as of its import.  A child imports the code
#: that is on the disk when it is started.  After an upgrade, this is not the
#: code that its parent runs.
VERSION = f'{sys.version} {_fingerprint():08x}'


def serve(pid: int, work: Callable[[Message, 'ParentProcess'], Message],
          failure: Callable[[Exception], Message]) -> None:
    """Do one job, give way to all others, and end this process.

    The last report is what `work(job, parent)` returns, or `failure(error)`.
    """
    _give_way()
    parent = ParentProcess(pid)
    try:
        parent.report(work(parent.job(), parent))
    except Exception as error:
        parent.report(failure(error))
    # An ordinary exit would wait for the thread that reads commands.
    os._exit(0)


class ParentProcess:
    """`pid` is the process id of the parent."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        # A supervisor that stops all processes sends SIGTERM to the parent,
        # too.  The parent then ends this process in its own way.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._reports = os.fdopen(os.dup(1), 'w')
        os.dup2(2, 1)  # other output must not look like a report
        self._commands: queue.SimpleQueue[Message] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            for line in sys.stdin:
                self._commands.put(json.loads(line))
        finally:
            os._exit(1)  # the parent has ended, or has sent nonsense

    def job(self) -> Message:
        """Report that this process is ready, and return its job."""
        self.report({'ready': VERSION})
        return self.command()

    def command(self) -> Message:
        while True:
            self._end_with_the_parent()
            with contextlib.suppress(queue.Empty):
                return self._commands.get(timeout=_LOOK_AFTER)

    def wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._end_with_the_parent()
            time.sleep(min(left, _LOOK_AFTER))

    def _end_with_the_parent(self) -> None:
        if os.getppid() != self._pid:
            os._exit(1)

    def tell(self, phase: str, done: int, total: int) -> None:
        """Report the progress."""
        self.report({'tell': [phase, done, total]})

    def report(self, message: Message) -> None:
        self._end_with_the_parent()
        try:
            self._reports.write(json.dumps(message) + '\n')
            self._reports.flush()
        except OSError:  # the parent has ended since the check above
            os._exit(1)


def _give_way() -> None:
    """Let this process give way.

    What the system does not support is left out.
    """
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    with contextlib.suppress(OSError), open(_OF_SESSION, 'w') as file:
        file.write(str(_NICE))
    number = _IOPRIO_SET.get(platform.machine())
    if platform.system() == 'Linux' and number is not None:
        ctypes.CDLL(None).syscall(
            number, _THIS_PROCESS, 0, _BEST_EFFORT | _LOWEST)
    # If memory runs out, the system ends this process before any other.
    with contextlib.suppress(OSError), open(_OOM, 'w') as file:
        file.write('1000')
