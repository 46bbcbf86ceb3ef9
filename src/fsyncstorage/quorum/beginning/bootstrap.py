"""A log begins with a file: what is done once, on the first node.

`begin` makes the log, and makes a node of an existing data file, or of a new
one.  The file is not changed, but for a torn tail.  What the node keeps is
written first, and the log is made then, with the identity that was kept.  So
it can be broken off, and repeated: a log that is there is known by that.  If
there is none, another identity is taken, as the first one may be that of a log
somewhere else: under another name, or on another etcd.  So there are never two
logs of one identity.

The other nodes begin with a copy of this one (copying).
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
from ..history.fold import State
from ..history.fold import beginning
from ..leading.writer import new_identity
from ..log.interface import Exists
from ..log.interface import Log
from ..log.interface import Missing

logger = logging.getLogger(__name__)


def begin(path: str, log: Log) -> bytes:
    """Begin a log with this file; return its identity.

    Raise FileStorageError if the file is one of a log already, or if there is
    a log of another file: what is kept is as before then.  Unanswered: call it
    again.
    """
    opening.check_arguments(path, False, False, None)
    opening.prepare(path, False, False, None)
    with _opened(path) as (file, end):
        before = _kept_before(path, end)
        identity = None if before is None else before.state.log
        found = _identity_of(log)
        if found is None:
            identity = new_identity()
            _keep(file, beginning(identity, 0, end), new_identity())
            with contextlib.suppress(Exists):  # it may be ours all the same
                log.create(identity)
            found = _identity_of(log)
        if found is None or found != identity:
            _keep_as_before(file, before)
            raise FileStorageError(
                f'{path}: there is a log of this name already, of another'
                ' file, or something else in its place. Give another name to'
                ' this one, or let this node join that log')
    logger.info('%s: a log has begun, at %d, with the identity %s',
                path, end, found.hex())
    return found


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


def _identity_of(log: Log) -> bytes | None:
    with contextlib.suppress(Missing):
        return log.ends().log
    return None


def _keep(file: datafile.DataFile, state: State, node: bytes) -> None:
    states.save(
        file.name, state,
        lambda position, length: os.pread(file.fileno(), length, position),
        node)


def _keep_as_before(file: datafile.DataFile, before: Kept | None) -> None:
    if before is None:
        datafile.remove_if_there(file.name + states.SUFFIX)
    else:
        _keep(file, before.state, before.node)
