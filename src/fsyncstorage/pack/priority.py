"""Lets a process give way to others: for the processor, and for the disk."""

import contextlib
import ctypes
import os
import platform

_NICE = 10
# ioprio_set(2), which the C library does not have.
_IOPRIO_SET = {'x86_64': 251, 'aarch64': 30}
_THIS_PROCESS, _IDLE = 1, 3 << 13


def give_way() -> None:
    """Of this process.  A system that does not know how goes on as it is."""
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    number = _IOPRIO_SET.get(platform.machine())
    if platform.system() == 'Linux' and number is not None:
        ctypes.CDLL(None).syscall(number, _THIS_PROCESS, 0, _IDLE)
