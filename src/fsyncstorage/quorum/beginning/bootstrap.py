"""A log begins with a file: what is done once, on the first node.

`begin` makes the log, and makes a node of an existing data file, or of a new
one.  The file is not changed, but for a torn tail.  What the node keeps is
written first, and the log is made then, with the identity that was kept.  So
it can be broken off, and repeated: nobody else knows that identity.

The other nodes join with a copy of the file, and of what is kept beside it
(`Data.fs.quorum`): that is a node, which reads in the log what it lacks
(rejoin).  If the copy is made while a node runs, what is kept is copied first
(copying).
"""

import contextlib
import logging
import os
from collections.abc import Iterator

from ZODB.FileStorage.FileStorage import FileStorageError

from ... import datafile
from ...storage import opening
from ..files import state as states
from ..files.state import Kept
from ..history.fold import beginning
from ..leading.writer import new_identity
from ..log.interface import Exists
from ..log.interface import Log
from ..log.interface import Missing

logger = logging.getLogger(__name__)


def begin(path: str, log: Log) -> bytes:
    """Begin a log with this file; return its identity.

    Raise FileStorageError if the file is one of a log already, or if there is
    a log of another file: nothing was changed then.  Unanswered: call it
    again.
    """
    opening.check_arguments(path, False, False, None)
    opening.prepare(path, False, False, None)
    with _opened(path) as (file, end):
        kept = _kept_before(path, end) or _keep(file, end)
        identity = kept.state.log
        try:
            log.create(identity)
        except Exists as error:
            _refuse_another(path, log, identity, error)
    logger.info('%s: a log has begun, at %d, with the identity %s',
                path, kept.state.end, identity.hex())
    return identity


@contextlib.contextmanager
def _opened(path: str) -> Iterator[tuple[datafile.DataFile, int]]:
    """The file, locked and durable; and where it ends."""
    with contextlib.closing(opening.lock_name(path)):
        file, content = opening.open_and_read(path, False, False, None, True)
        with contextlib.closing(file):
            file.sync()
            datafile.disk.sync_directory(
                os.path.dirname(os.path.abspath(path)))
            yield file, content.end


def _kept_before(path: str, end: int) -> Kept | None:
    """By a beginning that was broken off."""
    kept = states.load(path)
    if kept is not None and (kept.state.place.sequence
                             or kept.state.end != end):
        raise FileStorageError(
            f'{path} is a node of a log already: there is {path}'
            f'{states.SUFFIX}. To begin another log with this file, for good,'
            ' remove that')
    return kept


def _keep(file: datafile.DataFile, end: int) -> Kept:
    states.save(
        file.name, beginning(new_identity(), 0, end),
        lambda position, length: os.pread(file.fileno(), length, position))
    kept = states.load(file.name)
    assert kept is not None
    return kept


def _refuse_another(path: str, log: Log, identity: bytes,
                    error: Exists) -> None:
    """If the log that is there is not the one that was to be made."""
    with contextlib.suppress(Missing):
        if log.ends().log == identity:
            return
    datafile.disk.remove(path + states.SUFFIX)
    raise FileStorageError(
        f'{path}: there is a log of this name already, of another file'
        f' ({error or "it exists"}). Give another name to this one, or let'
        ' this node join that log')
