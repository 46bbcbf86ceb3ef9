"""Lets a process give way to others: for the processor, the disk, and memory.

Linux may first share the processor among sessions (`autogroup` in sched(7)),
and compare the nice values of processes only within a session.  So a process
that leads a session of its own gives that session a nice value, too.

For the disk, the process gets the lowest priority of the best-effort class.
It does not get the idle class, which may use the disk only when nobody else
does.  This process may hold a lock of the file system for which a commit
waits; the commit would then wait until nobody else uses the disk.
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
