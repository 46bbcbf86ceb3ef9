"""Lets a process give way to others: for the processor, the disk, and memory.

Linux may share the processor among sessions first (`autogroup` in sched(7)),
and compare what is nice within each of them only.  A process that leads a
session of its own therefore makes that nice, too.

For the disk it has the lowest priority among those that get their turn, and
not the class of those that get it only when the disk is idle: what waits for
a lock of the file system behind this process, as a commit may, would wait
until nobody else uses the disk.
"""

import contextlib
import ctypes
import os
import platform

_NICE = 10
_OF_SESSION = '/proc/self/autogroup'
_OOM = '/proc/self/oom_score_adj'
# ioprio_set(2), which the C library does not have.
_IOPRIO_SET = {'x86_64': 251, 'aarch64': 30}
_THIS_PROCESS, _BEST_EFFORT, _LOWEST = 1, 2 << 13, 7


def give_way() -> None:
    """Of this process.  A system that does not know how goes on as it is."""
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    with contextlib.suppress(OSError), open(_OF_SESSION, 'w') as file:
        file.write(str(_NICE))
    number = _IOPRIO_SET.get(platform.machine())
    if platform.system() == 'Linux' and number is not None:
        ctypes.CDLL(None).syscall(
            number, _THIS_PROCESS, 0, _BEST_EFFORT | _LOWEST)
    # Without memory, the system ends this process before any other.
    with contextlib.suppress(OSError), open(_OOM, 'w') as file:
        file.write('1000')
