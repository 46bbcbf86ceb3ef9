"""Which code this process runs: its fingerprint.

A process that is started later imports what is on the disk then.  After an
upgrade, that is other code than its parent has.
"""

import pathlib
import sys
import zlib

_HOME = pathlib.Path(__file__).parents[1]
#: What both processes use, relative to the package.
_MODULES = ('datafile.py', 'format/*.py', 'pack/*.py', 'processes/*.py',
            'scrub/*.py')


def _fingerprint() -> int:
    crc = 0
    for pattern in _MODULES:
        for path in sorted(_HOME.glob(pattern)):
            crc = zlib.crc32(path.read_bytes(), crc)
    return crc


# When this is imported, so is all the rest.
VERSION = f'{sys.version} {_fingerprint():08x}'
