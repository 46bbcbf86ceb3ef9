"""How much memory is used by the processes that send files.

The peak of a process is the most that it had in memory, including what it
shares with others (VmHWM of Linux).  On other systems nothing is known.
"""

import contextlib
import os
import pathlib
import re

_PROC = pathlib.Path('/proc')

#: The roles of processes, and how their command lines are recognised.
ROLES = {
    'application': 'perf.web.program',
    'nginx': 'nginx: worker process',
    'server': 'fsyncstorage.timing.servers.launcher',
}


def figure(role):
    return f'{role}_peak_bytes'


def forget():
    """Start to measure: forget the peaks until now."""
    for path, role in _processes():
        with contextlib.suppress(OSError):
            path.joinpath('clear_refs').write_text('5')


def peaks():
    """The peak of the largest process of each role, by figure."""
    found = {}
    for path, role in _processes():
        with contextlib.suppress(OSError):
            status = path.joinpath('status').read_text()
            for kilobytes in re.findall(r'VmHWM:\s+(\d+) kB', status):
                found[figure(role)] = max(
                    found.get(figure(role), 0), int(kilobytes) << 10)
    return found


def _processes():
    """Directories of the children of this process, and of their children."""
    for path in _below(_PROC / str(os.getpid())):
        with contextlib.suppress(OSError):
            command = path.joinpath('cmdline').read_text().replace('\0', ' ')
            for role, sign in ROLES.items():
                if sign in command:
                    yield path, role


def _below(path):
    for children in path.glob('task/*/children'):
        with contextlib.suppress(OSError):
            for number in children.read_text().split():
                yield _PROC / number
                yield from _below(_PROC / number)
