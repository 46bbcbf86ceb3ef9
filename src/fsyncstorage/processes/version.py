"""Which code this process runs: a fingerprint of it.

A child process imports the code that is on the disk when it is started.  After
an upgrade, this is not the code that its parent runs.
"""

import pathlib
import sys
import zlib

_PACKAGE = pathlib.Path(__file__).parents[1]


def _fingerprint() -> int:
    """Of the whole package: a list of modules would not stay complete."""
    crc = 0
    for path in sorted(_PACKAGE.rglob('*.py')):
        crc = zlib.crc32(path.read_bytes(), crc)
    return crc


# Computed at import, when all the rest is imported, too.
VERSION = f'{sys.version} {_fingerprint():08x}'
