"""A log begins with a file: what is done once, on the first node.

`begin` makes the log, and makes a node of an existing data file, or of a new
one.  It does not change the file, except that it cuts off a torn tail.  It
first writes what the node keeps, with a new identity for the log, and then
creates the log with that identity.  So it can be interrupted and repeated: it
recognises a log that is there by the identity that was kept.  If there is no
log, it takes a new identity, because the kept one may be that of a log
somewhere else: under another name, or on another etcd.  So two logs never have
one identity.

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
from ..log.members import ends

logger = logging.getLogger(__name__)


def begin(path: str, log: Log) -> bytes:
    """Begin a log with this file; return its identity.

    Raise FileStorageError if the file already belongs to a log, or if there is
    a log of another file: then what was kept before is kept again, and there
    is no new file.  After Unanswered, call it again.
    """
    opening.checked(path, False, False, None)
    opening.prepare(path, False, False, None)
    with _opened(path) as (file, end):
        before = _kept_before(path, end)
        identity = None if before is None else before.state.log
        found = _identity_of(log)
        if found is None:
            identity = new_identity()
            _keep(file, beginning(identity, 0, end), new_identity())
            with contextlib.suppress(Exists):  # it may still be ours
                log.create(identity)
            found = _identity_of(log)
        if found is None or found != identity:
            _keep_as_before(file, before)
            raise FileStorageError(
                f'{path}: there is a log of this name already, of another'
                ' file, or something else in its place. Give another name to'
                ' this one, or let this node join that log (fsync-quorum'
                ' bootstrap --from DIRECTORY)')
    logger.info('%s: a log has begun, at %d, with the identity %s',
                path, end, found.hex())
    return found


@contextlib.contextmanager
def _opened(path: str) -> Iterator[tuple[datafile.DataFile, int]]:
    """The file, locked and durable; and where it ends.

    If there was no file, and the beginning is refused, there is none again:
    it would be in the way of a copy of another node.
    """
    with contextlib.closing(opening.lock_name(path)):
        is_new = not os.path.lexists(path)
        file, content = opening.open_and_read(path, False, False, None, True)
        with contextlib.closing(file):
            file.sync()
            datafile.disk.sync_directory(
                os.path.dirname(os.path.abspath(path)))
            try:
                yield file, content.end
            except FileStorageError:
                if is_new:
                    datafile.disk.remove(file.name)
                raise


def _kept_before(path: str, end: int) -> Kept | None:
    """What was kept by a beginning that was interrupted."""
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
        return ends(log).log
    return None


def _keep(file: datafile.DataFile, state: State, node: bytes) -> None:
    states.save(file.name, state, states.reading(file), node)


def _keep_as_before(file: datafile.DataFile, before: Kept | None) -> None:
    if before is None:
        datafile.remove_if_there(file.name + states.SUFFIX)
    else:
        _keep(file, before.state, before.node)
