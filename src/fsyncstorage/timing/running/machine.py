"""The machine and the disk that are measured, and what others do with it.

No host, user or path is named: a report can be published.

Others are all processes except the driver and those of its samples, and other
virtual machines on the same host, if they took processor time away (steal).
Their time in the kernel does not count, because the kernel also writes to the
disk for the samples, in threads that belong to none of them.  What others use
is known only on Linux, from counters that tick a hundred times a second: too
coarse for one short sample, and fine enough for all samples of a round.
"""

import importlib.metadata
import os
import pathlib
import platform
import resource
import tempfile
import time
from statistics import median

from fsyncstorage.datafile import disk

from . import crew

PACKAGES = (
    'fsyncstorage', 'ZODB', 'BTrees', 'persistent', 'transaction', 'ZEO',
    'uvloop', 'RelStorage')

#: The probe of a sync ends after this number of appends, or these seconds.
_PROBES, _PROBE_SECONDS = 200, 2.0

_STAT = pathlib.Path('/proc/stat')


def describe(directory):
    """The machine, and the disk that the directory is on."""
    return {
        'cpus': os.cpu_count(),
        'cpu_model': _cpu_model(),
        'system': f'{platform.system()} {platform.release()}',
        'architecture': platform.machine(),
        'python': (f'{platform.python_implementation()}'
                   f' {platform.python_version()}'),
        'packages': {name: _version(name) for name in PACKAGES},
        'file_system': _file_system(directory),
        'load_average': os.getloadavg()[0],
        'sync_p50_seconds': sync_p50(directory),
    }


def sync_p50(directory):
    """The median of an append of 1000 bytes and a data sync."""
    # Not a file without a name: that may be cheaper to sync.
    with tempfile.NamedTemporaryFile(dir=directory, buffering=0) as file:

        def append():
            file.write(b'x' * 1000)
            disk.sync(file.fileno())

        return median(
            crew.timed([append] * _PROBES, _PROBE_SECONDS).durations)


def _cpu_model():
    found = [line.partition(':')[2].strip() for line in _lines('/proc/cpuinfo')
             if line.startswith('model name')]
    return found[0] if found else platform.processor() or 'unknown'


def _version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return '(not installed)'


def _file_system(directory):
    """The type of the file system that holds the directory."""
    path = pathlib.Path(directory).resolve()
    found, kind = 0, 'unknown'
    for line in _lines('/proc/self/mountinfo'):
        # 27 1 254:0 / /srv rw,relatime shared:1 - ext4 /dev/vda rw
        mount, _, source = line.partition(' - ')
        point = mount.split()[4].replace('\\040', ' ')
        # Of two mounts at one point, the later one hides the other.
        if len(point) >= found and path.is_relative_to(point):
            found, kind = len(point), source.split()[0]
    return kind


def _lines(path):
    try:
        return pathlib.Path(path).read_text(encoding='utf-8').splitlines()
    except OSError:
        return []  # not Linux


class Watch:
    """Watches what others use, from the time when it was made."""

    def __init__(self):
        self._began, self._others = time.monotonic(), _others()

    def seen(self):
        """Seconds, and the processor time of others; None if unknown."""
        others = _others()
        if self._others is None or others is None:
            return None
        return {
            'seconds': time.monotonic() - self._began,
            # The counters were not all read at the same time.
            'cpu_seconds': max(0.0, others - self._others)}


def _others():
    """Processor seconds of others since the machine was started."""
    try:
        # cpu user nice system idle iowait irq softirq steal ...
        _, user, nice, _, _, _, _, _, steal, *_ = _STAT.read_text().split()
    except (OSError, ValueError):
        return None  # not Linux
    ticks = sum(map(int, (user, nice, steal)))
    ours = sum(resource.getrusage(whose).ru_utime for whose in (
        resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return ticks / os.sysconf('SC_CLK_TCK') - ours
