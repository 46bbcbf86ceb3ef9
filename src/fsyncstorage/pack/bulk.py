"""Does nearly all of a pack while others commit: in a child process, or in
this process where that is not possible.

The rest that is left then is small, or commits add to it faster than the child
copies.  The caller (packing, unopened) copies it, with the Copier that it gets
here.
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
from .marking import References
from .output import Output
from .pacing import Pacer
from .plan import Job
from .process import Process
from .progress import Watch

logger = logging.getLogger(__name__)

# Bytes of the old file that the child may leave to this process, whose
# interpreter clients use.  (An undo can become longer in the new file.  That
# is not counted here, because no lock is held while the rest is copied.)
REST_OF_PROCESS = 1 << 18
# If this many rounds were not enough, the child is slower than committers.
MOST_ROUNDS = 20


class Bulk:
    """The bulk of a pack of the data file at `path`.

    `size()` returns up to where the file can be copied now, and `pread` reads
    the file.
    """

    def __init__(self, path: str, files: Files, pread: Pread,
                 size: Callable[[], int], watch: Watch) -> None:
        self._path = path
        self._files = files
        self._pread = pread
        self._size = size
        self._watch = watch
        self.pacer = Pacer(files.new)
        #: An index of the new file up to this position is durable.
        self.index_to = 0

    def copied(self, job: Job, referencesf: References,
               own_process: bool) -> Copier:
        """Copy all but a small rest; the returned copier can go on."""
        if own_process and process.is_possible(referencesf):
            copier = self._by_process(job)
            if copier is not None:
                return copier
        return self._within(job, referencesf)

    def _within(self, job: Job, referencesf: References) -> Copier:
        """The same work as in the child process."""
        logger.info('%s: packing within this process', self._path)
        files = self._files
        copier = work.copied(
            job, self._pread, files.new, self.pacer, files.removed,
            _references(referencesf), self._watch.tell)
        self._watch.gone_blobs = copier.gone_blobs
        copier.flush()
        # No rate limits the copy of the rest: at the end, commits wait for
        # this copy (I2).
        copier.write_to(Output(
            files.new, copier.written_to, self.pacer.written,
            copier.checksum))
        self.write_index(copier)
        return copier

    def write_index(self, copier: Copier) -> None:
        """Write the index into its file, which is empty."""
        file = self._files.index
        index.write_unchanging(
            file, copier.written_to, copier.index, self._files.new,
            Pacer(file).written)
        self.index_to = copier.written_to

    def _by_process(self, job: Job) -> Copier | None:
        """None: no child process could be started."""
        files = self._files
        try:
            with contextlib.closing(Process(
                    job, files.old(), files.new, files.index, files.removed,
                    self._watch)) as child:
                logger.info('%s: packing in a process of its own (%s)',
                            self._path, child.pid)
                done = child.copied(self._next_end())
        except NotStarted as reason:
            logger.warning(
                '%s: no process could be started for the pack, which goes on'
                ' within this one (%s)', self._path, reason)
            return None
        return self._copier(job, done)

    def _copier(self, job: Job, done: process.Done) -> Copier:
        """A copier that goes on where the child has stopped.

        process.Gone if what the child reports does not fit its files.
        """
        new, of_index = self._files.new, self._files.index
        try:
            loaded = index.load_open(of_index.fileno(), str(of_index.name))
            if not (loaded.position <= done.written_to == new.size()
                    and FIRST < done.copied_to <= self._size()):
                raise ValueError('its files do not fit what it reports')
            # Add what was copied after the index was written.
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
        """A function that says how far the child copies next.

        It returns None if the rest is small, or if the child is too slow, so
        that this process must copy the rest.  The child asks again when it has
        written its index.
        """
        rounds, rest = 0, math.inf

        def next_end(copied_to: int) -> int | None:
            nonlocal rounds, rest
            end = self._size()
            before, rest = rest, end - copied_to
            if REST_OF_PROCESS <= rest < before and rounds < MOST_ROUNDS:
                rounds += 1
                return end
            # Much may be committed while the child writes its index.
            rounds, rest = 0, math.inf
            return None

        return next_end


def _references(referencesf: References) -> References:
    """In place of ZODB's function, which takes gigabytes of memory for a
    hostile record of a few bytes, use ours."""
    return (references if referencesf is ZODB.serialize.referencesf
            else referencesf)


def reading(file: datafile.DataFile) -> Pread:
    """Read an open file, even if the file is closed in the meantime."""
    descriptor = file.descriptor
    return lambda length, position: os.pread(
        descriptor.number, length, position)
