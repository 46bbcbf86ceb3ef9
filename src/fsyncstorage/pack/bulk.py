"""Has nearly all of a pack done, while others commit: by a process of its own,
or by this one where that is not possible.

What is left is small, or comes faster than the process copies.  It is copied
by the caller (packing, unopened), with the Copier that it gets here.
"""

import contextlib
import logging
import math
import os
from collections.abc import Callable

import ZODB.serialize

from .. import datafile
from ..format import index
from ..format import scan
from ..format.references import references
from ..format.scan import FIRST
from ..format.window import Pread
from ..format.window import Window
from ..processes.starting import NotStarted
from . import process
from . import work
from .checksum import Checksum
from .copying import Copier
from .files import Files
from .marking import Kept
from .marking import References
from .output import Output
from .pacing import Pacer
from .plan import Job
from .process import Process
from .progress import Watch
from .restorable import write_gone

logger = logging.getLogger(__name__)

# Bytes of the old file that the other process may leave to this one, whose
# interpreter clients use.  (What an undo becomes longer by is not counted: no
# lock is held for it.)
REST_OF_PROCESS = 1 << 18
# After so many rounds, the process is slower than committers.
MOST_ROUNDS = 20


class Bulk:
    """Of the data file at `path`; `size()` says up to where it can be copied
    by now, and `pread` reads it.

    `marked()` is called when the objects that go are in their file.
    """

    def __init__(self, path: str, files: Files, pread: Pread,
                 size: Callable[[], int], watch: Watch,
                 marked: Callable[[], object]) -> None:
        self._path = path
        self._files = files
        self._pread = pread
        self._size = size
        self._watch = watch
        self._marked = marked
        self.pacer = Pacer(files.new)
        #: An index of the new file is written, and durable, up to here.
        self.index_to = 0

    def copied(self, job: Job, referencesf: References,
               own_process: bool) -> Copier:
        """Copied up to a small rest; the copier goes on."""
        if own_process and process.is_possible(referencesf):
            copier = self._by_process(job)
            if copier is not None:
                return copier
        return self._within(job, referencesf)

    def _within(self, job: Job, referencesf: References) -> Copier:
        """As the process does it."""
        logger.info('%s: packing within this process', self._path)
        files = self._files
        copier = work.copied(
            job, self._pread, files.new, self.pacer, files.removed,
            _references(referencesf), self._watch.tell, self._marked_here)
        self._watch.gone_blobs = copier.gone_blobs
        copier.flush()
        # The rest is copied at no rate: in the end, commits wait for it (I2).
        copier.write_to(Output(
            files.new, copier.written_to, self.pacer.written,
            copier.checksum))
        self.write_index(copier)
        return copier

    def _marked_here(self, kept: Kept) -> None:
        write_gone(kept, self._files.gone.number, self._watch.tell)
        self._marked()

    def write_index(self, copier: Copier) -> None:
        """Into the file for it, which is empty."""
        file = self._files.index
        index.write_unchanging(
            file, copier.written_to, copier.index, self._files.new,
            Pacer(file).written)
        self.index_to = copier.written_to

    def _by_process(self, job: Job) -> Copier | None:
        """None: there is no such process."""
        files = self._files
        try:
            with contextlib.closing(Process(
                    job, files.old(), files.new, files.index, files.removed,
                    files.gone, self._watch)) as child:
                logger.info('%s: packing in a process of its own (%s)',
                            self._path, child.pid)
                done = child.copied(self._next_end(), self._marked)
        except NotStarted as reason:
            logger.warning(
                '%s: no process could be started for the pack, which goes on'
                ' within this one (%s)', self._path, reason)
            return None
        return self._copier(job, done)

    def _copier(self, job: Job, done: process.Done) -> Copier:
        """Goes on where the process has stopped, if that can be."""
        new, of_index = self._files.new, self._files.index
        try:
            loaded = index.load_open(of_index.fileno(), str(of_index.name))
            if not (loaded.position <= done.written_to == new.size()
                    and FIRST < done.copied_to <= self._size()):
                raise ValueError('its files do not fit what it reports')
            # What was copied after the index was written.
            for found in scan.transactions(
                    Window.of_file(new.fileno()), loaded.position):
                for record in found.records:
                    loaded.index[record.oid] = record.position
        except (index.Damaged, scan.Damage, ValueError) as wrong:
            raise process.Gone(
                f'the process that packs has not done its work: {wrong}.'
                ' Nothing was changed') from None
        self.index_to = loaded.position
        self._watch.gone_blobs = done.gone_blobs
        checksum = (Checksum.of_file(new.fileno(), done.blocks)
                    if job.sums else None)
        return Copier(
            Output(new, done.written_to, self.pacer.written, checksum),
            copied_to=done.copied_to, index=loaded.index, places=done.places)

    def _next_end(self) -> Callable[[int], int | None]:
        """How far the process copies next.

        None: the rest is small, or this process has to do it, because the
        other one is too slow.  The process asks anew when its index is
        written.
        """
        rounds, rest = 0, math.inf

        def next_end(copied_to: int) -> int | None:
            nonlocal rounds, rest
            end = self._size()
            before, rest = rest, end - copied_to
            if REST_OF_PROCESS <= rest < before and rounds < MOST_ROUNDS:
                rounds += 1
                return end
            # When it has written its index, much may have been committed.
            rounds, rest = 0, math.inf
            return None

        return next_end


def _references(referencesf: References) -> References:
    """ZODB's own takes gigabytes for a hostile record of a few bytes."""
    return (references if referencesf is ZODB.serialize.referencesf
            else referencesf)


def reading(file: datafile.DataFile) -> Pread:
    """Of an open file, also when that is closed meanwhile."""
    descriptor = file.descriptor
    return lambda length, position: os.pread(
        descriptor.number, length, position)
