"""Is this a Data.fs?  Its first four bytes tell."""

from ZODB._compat import FILESTORAGE_MAGIC

from ..format import scan


class NoDataFile(Exception):
    """The file is no Data.fs, and cannot be read as one."""


def wrong_magic(window):
    """None for a Data.fs; a text if only its first bytes are damaged.

    NoDataFile if it is no Data.fs.
    """
    magic = window.read(0, scan.FIRST)
    if len(magic) < scan.FIRST:
        raise NoDataFile(
            f'it has {len(magic)} bytes, and no Data.fs is that short. A'
            ' power cut while one is created or packed can leave this: do'
            ' not open it, look for a .old beside it or a backup')
    if magic == b'FS21':
        raise NoDataFile(
            'it was written under Python 2 (it begins with FS21); convert'
            ' it with zodbupdate first')
    if magic == FILESTORAGE_MAGIC:
        return None
    expected = FILESTORAGE_MAGIC.decode()
    try:
        scan.read_transaction(window, scan.FIRST)
    except scan.Damage:
        raise NoDataFile(
            f'it is no Data.fs: it does not begin with {expected}') from None
    return f'the file begins with {magic!r}, not with {expected}'
