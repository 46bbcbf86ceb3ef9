"""Which code this process runs: its fingerprint.

A process that is started later imports what is on the disk then.  After an
upgrade, that is other code than its parent has.
"""

import pathlib
import sys
import zlib

_PACKAGE = pathlib.Path(__file__).parents[1]


def _fingerprint() -> int:
    """Of the whole package: no list of modules would stay complete."""
    crc = 0
    for path in sorted(_PACKAGE.rglob('*.py')):
        crc = zlib.crc32(path.read_bytes(), crc)
    return crc


# When this is imported, so is all the rest.
VERSION = f'{sys.version} {_fingerprint():08x}'
