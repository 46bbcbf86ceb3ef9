"""Keeps a copy of a site on another machine, seconds behind it.

The first start restores; then each object of the log is added as soon as it is
there, in the same way (copied).  A start finds its place by the bytes: behind
the last object of which the file has all of them.  The copy is locked as by a
writer: others may only read it, each as of when it opens the file.  What is
left of a first restore that was killed is removed by the next.

It ends with its timeline, which `promote` ends.
"""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator

import zc.lockfile
from ZODB.blob import FilesystemHelper

from .. import datafile
from ..pack import packedblobs
from . import content
from . import head as heads
from .ahead import read_ahead
from .copied import Copy
from .copied import NotRestored
from .head import Damaged
from .restore import fill
from .restore import remove_parts
from .restore import restore
from .store import Missing
from .store import StoreError
from .store import is_there
from .timeline import History
from .timeline import Tip
from .timeline import tip_behind

logger = logging.getLogger(__name__)

#: Seconds from one look to the next, and while the store is away.
PERIOD, RETREAT = 1.0, 10.0
#: Seconds until it asks why nothing comes.
PATIENCE = 60.0


def follow(history: History, path: str, blob_dir: str | None,
           stop: threading.Event) -> bytes | None:
    """Return the last tid when the timeline has ended; None: it was stopped.
    """
    def end_if_told(end: int) -> None:
        if stop.is_set():
            raise _ToldToEnd

    is_away = False
    while not stop.is_set():
        try:
            with _locked(path):
                if not os.path.lexists(path):
                    remove_parts(path, blob_dir)
                    restore(history, path, blob_dir, tell=end_if_told)
                with _opened(history, path, blob_dir) as copy:
                    logger.info('%s: it follows, from position %d on', path,
                                copy.end)
                    is_away = False
                    _catch_up(history, copy, end_if_told)
                    return _go_on(history, copy, stop)
        except _ToldToEnd:
            break
        except StoreError as error:
            if not is_away:
                logger.warning('%s: it does not follow now: %s', path, error)
            is_away = True
            stop.wait(RETREAT)
    return None


class _ToldToEnd(Exception):
    """Before it has all that there is."""


def _catch_up(history: History, copy: Copy,
              tell: Callable[[int], None]) -> None:
    def kept(end: int) -> None:
        copy.file.sync()
        tell(end)

    fill(history, copy, kept)


def _go_on(history: History, copy: Copy,
           stop: threading.Event) -> bytes | None:
    next_question = time.monotonic() + PATIENCE
    is_said = False
    while not copy.has_ended:
        sequence = copy.chain.tip.sequence
        key = history.names.segment(sequence)
        try:
            data = history.store.get(key)
        except Missing:
            if time.monotonic() >= next_question:
                is_said = _say_why(history, copy, is_said)
                next_question = time.monotonic() + PATIENCE
            if stop.wait(PERIOD):
                return None
        else:
            copy.add(sequence, key, data)
            copy.file.sync()
    return copy.tid


def _say_why(history: History, copy: Copy, is_said: bool) -> bool:
    """Nothing comes: has another timeline begun?  NotRestored, if there is
    more, but not the next object."""
    store, names = history.store, history.names
    next_one = copy.chain.tip.sequence
    for entry in store.list(names.log, names.segment(next_one - 1)):
        if names.sequence(entry.key) != next_one:
            raise NotRestored(
                f'{names.segment(next_one)} was removed, and {copy.file.name}'
                ' has not got it: remove that with its blobs, and follow anew')
        return is_said
    other = names.number + 1
    has_begun = is_there(store, history.database.timeline(other).begin)
    if has_begun and not is_said:
        logger.warning(
            '%s: nothing comes from timeline %d, and timeline %d has begun: to'
            ' follow that: --timeline %d', copy.file.name, names.number, other,
            other)
    return has_begun


def _locked(path: str) -> contextlib.AbstractContextManager[object]:
    """While nobody else writes to it."""
    try:
        return contextlib.closing(zc.lockfile.LockFile(path + '.lock'))
    except zc.lockfile.LockError:
        raise NotRestored(f'{path} is open for writing elsewhere') from None


@contextlib.contextmanager
def _opened(history: History, path: str, blob_dir: str | None
            ) -> Iterator[Copy]:
    """The copy that is there."""
    file = datafile.open_existing(path)
    try:
        tip = _place(history, file)
        _refuse_other_bytes(history, file, tip)
    except BaseException:
        file.close()
        raise
    blobs = None
    if blob_dir:
        blob_dir = os.path.abspath(blob_dir)
        blobs = FilesystemHelper(blob_dir, 'bushy')
        packedblobs.take_up(
            packedblobs.BlobDirectory(blob_dir, blobs, False), path)
    copy = Copy(history, file, blobs, tip.sequence, tip)
    try:
        yield copy
    finally:
        # Not what could not be added.  (A pack replaces the file.)
        copy.file.truncate(copy.end)
        copy.file.close()


def _place(history: History, file: datafile.DataFile) -> Tip:
    """Behind the last object of the log of which the file has all bytes.

    Whoever was away for long reads as many heads as then objects.
    """
    read, size = content.of_file(file.fileno()), file.size()
    last = history.last()
    numbers = range(history.first(), last[0] + 1) if last else range(0)
    for sequence, head in read_ahead(
            reversed(numbers), lambda number: heads.SIZE, history.head):
        if content.is_in(head, read, size):
            return tip_behind(head, sequence)
    raise NotRestored(f'{file.name} is no copy of what is in'
                      f' {history.store.name}: name another place')


def _refuse_other_bytes(history: History, file: datafile.DataFile,
                        tip: Tip) -> None:
    """Behind its place, the file has the begin of the next segment, if this
    was killed; else somebody has opened it for writing."""
    length = file.size() - tip.position
    if not length:
        return
    key = history.names_of(tip.sequence).segment(tip.sequence)
    with contextlib.suppress(Damaged):
        _, pieces = content.get(history.store, key, (heads.SEGMENT,))
        if b''.join(pieces).startswith(
                content.of_file(file.fileno())(length, tip.position)):
            return
    raise NotRestored(
        f'{file.name} has {length:,} bytes that were not shipped. If nobody'
        ' has opened it for writing, a power cut has left them: truncate'
        f' --size={tip.position} {file.name}')
