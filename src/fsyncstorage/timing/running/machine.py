"""The machine and the disk that are measured.

No host, user or path is named: a report can be published.
"""

import importlib.metadata
import os
import pathlib
import platform
import tempfile
from statistics import median

from fsyncstorage import core
from fsyncstorage.datafile import disk

from . import crew

PACKAGES = (
    'fsyncstorage', 'ZODB', 'BTrees', 'persistent', 'transaction', 'ZEO',
    'uvloop', 'RelStorage', 'zodb-pgjsonb')

#: The probe of a sync ends after this number of appends, or these seconds.
_PROBES, _PROBE_SECONDS = 200, 2.0


def describe(directory):
    """The machine, and the disk that the directory is on."""
    return {
        'cpus': os.cpu_count(),
        'cpu_model': _cpu_model(),
        'system': f'{platform.system()} {platform.release()}',
        'architecture': platform.machine(),
        'python': (f'{platform.python_implementation()}'
                   f' {platform.python_version()}, core in {core.IN_USE}'),
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
