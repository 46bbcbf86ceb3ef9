"""Files that interrupted work left beside a data file.

A process that is killed leaves what it was writing: a pack leaves its new file
and the new index, a checkpoint its index, a server the blobs that clients were
sending.  The next opening removes these files, once it has the lock and the
data file is sound.  It removes only names that nobody but the holder of the
lock makes: those in GONE_AFTER_OPEN, and names in `blobs/tmp` that begin with
`UPLOAD`.  Other files may belong to a client with a shared blob directory.  It
keeps the new file of a pack if that has transactions which the data file
lacks.

A name is not touched if it may be a name of the data file itself:
docs/internals/file.rst, "Names", says how that can happen.
"""

import logging
import os
from typing import Any

from ZODB._compat import FILESTORAGE_MAGIC

from .. import datafile
from ..commit.blobs import uploads
from ..format import scan
from ..format.window import Window
from ..pack import packedblobs
from ..scrub.notes import SUFFIX_OF_NEW
from .recovery import DamagedFile

logger = logging.getLogger(__name__)

#: An opening for writing removes files with these suffixes beside the data
#: file.  (The last one is of stock FileStorage.)
GONE_AFTER_OPEN = (
    '.pack', '.pack.index', '.index.index_tmp', SUFFIX_OF_NEW, '.tmp')
# Stock FileStorage truncates the first, zc.lockfile writes into the second.
_WRITTEN_AT_OPEN = '.tmp', '.lock'


def refuse_second_names(path: str) -> None:
    """Refuse to open a file that stock code would overwrite under another
    name."""
    for suffix in _WRITTEN_AT_OPEN:
        if datafile.is_same(path + suffix, path):
            raise DamagedFile(
                f'{path}{suffix} is another name of {path}; opening it would'
                ' overwrite the data. Nothing was changed. Remove this name')


def remove(storage: Any) -> None:
    """Remove the leftovers: the lock is held, and nothing is under way."""
    path = storage._file_name
    for suffix in GONE_AFTER_OPEN:
        if os.path.lexists(path + suffix):
            _refuse_uncounted(path + suffix, path)
            if not _ends_later(path + suffix, storage):
                _remove(path + suffix)
    if storage.blob_dir:
        packedblobs.take_up(storage, path)
        for name in uploads(storage.temporaryDirectory()):
            _remove(name)


def _ends_later(name: str, storage: Any) -> bool:
    """Does the file end in a later transaction than the data file?

    Then it is more than a copy: after a rename that a power cut left half
    done, it can be the only whole file.
    """
    tid = _last_tid(name)
    if tid is None or tid <= storage.lastTransaction():
        return False
    logger.warning(
        '%s is left: its last transaction (tid %s) is later than that of %s;'
        ' the next pack removes it', name, tid.hex(), storage._file_name)
    return True


def _last_tid(path: str) -> bytes | None:
    """The last tid of a data file if it ends in a sound transaction."""
    if not os.path.isfile(path):
        return None
    with datafile.open_existing(path, read_only=True) as file:
        window = Window.of_file(file.fileno())
        if window.read(0, len(FILESTORAGE_MAGIC)) != FILESTORAGE_MAGIC:
            return None
        last = scan.transaction_before(window, window.end)
        return None if last is None else last.tid


def _remove(name: str) -> None:
    try:
        datafile.disk.remove(name)
    except OSError as error:
        logger.warning('%s could not be removed: %s', name, error)
    else:
        logger.info('removed %s, which was left behind', name)


def _refuse_uncounted(name: str, path: str) -> None:
    if (datafile.is_same(name, path) and not os.path.islink(name)
            and os.stat(name).st_nlink < 2):
        raise DamagedFile(
            f'{name} and {path} are two names of one file, but the file system'
            ' counts one: check the file system (fsck), then open it again')

