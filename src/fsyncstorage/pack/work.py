"""The long part of a pack: check, mark, copy; and what a pack would free.

It reads the old file and appends to the new one, and to the list of blobs that
are not kept.  It renames no file, takes no lock and knows no storage.  So a
child process can do it (process), or this one.

Left to others: what is kept (plan), and the copies (copying).

Before anything is copied, there must be enough room on the disk.  Nearly
always, there is room for a new file as long as the old one, which is enough.
Otherwise it is copied to nowhere first.

A forecast decides what is kept by the same code as a pack, and then copies to
nowhere, by the same code, too.
"""

import dataclasses
import errno
import math
import os
import time
from collections.abc import Callable
from typing import Any

from .. import datafile
from ..format import index
from ..format.references import references
from ..format.window import Window
from ..processes.rate import NO_LIMIT
from ..processes.rate import Rate
from ..processes.reading import Reader
from .checksum import Checksum
from .copying import Copier
from .counting import Tally
from .counting import refuse_wrapped
from .counting import total
from .output import Nowhere
from .output import Output
from .output import Pacer
from .output import reading_at
from .plan import Job
from .plan import NothingToDo
from .plan import Plan
from .plan import References
from .plan import planned
from .progress import COUNT
from .progress import Tell

# Bytes of one of `st_blocks`, on any file system.
_BLOCK = 512
# Bytes of an index for each object; fewer, unless oids are sparse.
_INDEX = 12
# Bytes of the old file that may be left to the storage's process, whose
# interpreter clients use.
SMALL_REST = 1 << 18
# If this many rounds were not enough, committers are as fast as the copying.
MOST_ROUNDS = 20


@dataclasses.dataclass(frozen=True)
class Files:
    """The open files of a pack."""

    #: No other reader may share this open file while the pack copies.
    old: datafile.DataFile
    #: The list of blobs that are not kept, if there is a blob directory.
    removed: datafile.DataFile | None
    #: The new file and its index; a forecast has none.
    new: datafile.DataFile | None = None
    index: datafile.DataFile | None = None


def copied(job: Job, files: Files, references: References, tell: Tell,
           size: Callable[[], int]) -> Copier:
    """Copy what is needed of the old file, and write an index of the new one.

    `size()` returns up to where the old file can be copied by now.  All but a
    small rest is copied of that, and synced.

    Raises the errors of `planned`, NothingToDo, OSError.
    """
    rate = Rate(job.rate)
    new = files.new
    assert new is not None and files.index is not None
    pread = Reader(files.old.fileno())
    pacer = Pacer(new, rate)
    window = Window(reading_at(rate, pread), job.end)
    plan = planned(job, window, references, tell)
    _refuse_without_room(files, window, plan, tell)
    checksum = Checksum.of_file(new.fileno()) if job.sums else None
    copier = Copier(
        Output(new, 0, pacer.written, checksum), files.removed)
    copier.copy_planned(window, plan, tell)
    if files.removed is not None:
        files.removed.sync()

    def catch_up() -> None:
        rest: float = math.inf
        for _ in range(MOST_ROUNDS):
            copier.flush()
            pacer.sync(copier.written_to)
            end = size()
            before, rest = rest, end - copier.copied_to
            if not SMALL_REST <= rest < before:
                return
            copier.copy_later(Window(pread, end), tell)

    # To write a large index takes long.  So the index is written before the
    # last rounds of copying, and lacks what these rounds copy.
    catch_up()
    index.write(
        files.index, index.Snapshot(copier.index, copier.written_to), new,
        noted=Pacer(files.index).written)
    catch_up()
    # No rate limits the copy of the rest: at the end, commits wait for it
    # (I2).
    pacer.rate = NO_LIMIT
    return copier


def copied_to_nowhere(window: Window, plan: Plan, tell: Tell,
                      removed: datafile.DataFile | None = None,
                      tally: Tally | None = None) -> Copier:
    """Raises NothingToDo."""
    copier = Copier(Nowhere(), removed, tally=tally)
    copier.copy_planned(
        window, plan, lambda phase, done, total: tell(COUNT, done, total))
    return copier


def foreseen(job: Job, files: Files, tell: Tell) -> dict[str, Any]:
    """What a pack would free, and what it would need; nothing is changed.

    It is plain data.  `removed` gets the list of blobs that are not kept.
    Raises the errors of `planned`, OSError.
    """
    window = Window(
        reading_at(Rate(job.rate), Reader(files.old.fileno())), job.end)
    tally, copier, needed = Tally(window), None, 0
    begun = is_planned = time.monotonic()
    try:
        plan = planned(job, window, _references, tell)
        is_planned = time.monotonic()
        copier = copied_to_nowhere(
            window, plan, tell, files.removed, tally)
        needed = room(copier.written_to, plan, files)
    except NothingToDo:
        pass
    now = time.monotonic()
    new_size = job.end if copier is None else copier.written_to
    rows = [] if copier is None else tally.rows()
    freed = job.end - new_size
    return {
        'old_size': job.end, 'new_size': new_size, 'freed': freed,
        # Room on the disk for the new file, and for the files beside it.
        'needed': needed,
        # A pack does the same, and to write is assumed to take as long as to
        # read.
        'seconds': 2 * now - is_planned - begun,
        # What is freed of transactions, in addition to their records.
        'transactions': freed - total(rows, 'bytes'),
        'objects': total(rows, 'objects'), 'records': total(rows, 'records'),
        'rows': rows}


def _references(record: bytes) -> list[bytes]:
    """Refuse a record that a storage wrapper has changed.

    No reference would be found in it, and nearly all objects would seem to go.
    """
    refuse_wrapped(record)
    return references(record)


def room(size: int, plan: Plan, files: Files) -> int:
    """Bytes that a new file of this size needs on the disk.

    Its index is added, with the most bytes that it can have.
    """
    return (int(size * share_on_disk(files.old))
            + _INDEX * len(plan.objects))


def _refuse_without_room(files: Files, window: Window, plan: Plan,
                         tell: Tell) -> None:
    free = free_bytes(files.old.fileno())
    if free is None or free >= room(window.end, plan, files):
        return
    copier = copied_to_nowhere(window, plan, tell)
    needed = room(copier.written_to, plan, files)
    if free < needed:
        raise OSError(
            errno.ENOSPC, f'the new file and its index need {needed:,} bytes,'
            f' and {free:,} are free')


def free_bytes(where: int | str) -> int | None:
    """Bytes that are free for us on the file system of this file.

    None: the file system does not say.
    """
    found = os.statvfs(where)
    return found.f_bavail * found.f_frsize if found.f_blocks else None


def share_on_disk(file: datafile.DataFile) -> float:
    """How much of its length a file takes on the disk, at most all of it.

    A pack assumes that the new file is compressed as well as the old one.
    """
    found = os.fstat(file.fileno())
    if not found.st_blocks:     # a small file, or one that is not written yet
        return 1.0
    return min(1.0, found.st_blocks * _BLOCK / found.st_size)
