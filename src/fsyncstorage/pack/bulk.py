"""Makes the new file, and does nearly all of a pack while others commit: in a
child process, or in this process where that is not possible.

The rest that is left then is small, or commits add to it faster than the child
copies.  The caller (packing, unopened) lets it be copied, with the Copier that
it gets here.
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
from ..format.window import Window
from ..processes.rate import Rate
from ..processes.starting import NotStarted
from . import naming
from . import packedblobs
from . import process
from . import work
from .checksum import Checksum
from .copying import Copier
from .output import Output
from .output import Pacer
from .plan import Job
from .plan import References
from .process import Process
from .progress import SWAP
from .progress import Watch

logger = logging.getLogger(__name__)

# Bytes of the old file that the child may leave to this process, whose
# interpreter clients use.  (An undo can become longer in the new file.  That
# is not counted here, because no lock is held while the rest is copied.)
REST_OF_PROCESS = 1 << 18
# If this many rounds were not enough, the child is slower than committers.
MOST_ROUNDS = 20


class Bulk:
    """The bulk of a pack of the data file at `path`, and the files of it.

    It must be made while no other process has the data file open, or packs it:
    only then may files of these names be removed.

    `old` is the data file, opened once more: it belongs to the Bulk, and the
    child reads it, too.  `size()` returns up to where it can be copied now.
    """

    def __init__(self, path: str, blob_dir: str | None,
                 old: datafile.DataFile, size: Callable[[], int],
                 watch: Watch) -> None:
        self._path = path
        self.old = old
        self._size = size
        self._watch = watch
        self._made: list[datafile.DataFile] = []
        self.removed: datafile.DataFile | None = None
        #: An index of the new file up to this position is durable.
        self.index_to = 0
        try:
            self.new = self._make(path + naming.PACKED)
            self.index = self._make(path + naming.INDEX_OF_PACKED)
            if blob_dir:
                self.removed = self._make(
                    os.path.join(blob_dir, packedblobs.LIST))
        except BaseException:
            self.leave_nothing()
            self.close()
            raise
        self.pacer = Pacer(self.new)

    def _make(self, path: str) -> datafile.DataFile:
        # The old file may be for its owner alone.
        file = datafile.open_new(path, 0o600)
        self._made.append(file)
        naming.give_owner(self.old, file)
        return file

    def leave_nothing(self) -> None:
        """Remove the files that were made.

        Files of others are left alone: if the data file is not ours any more,
        another process may be packing, and its files may have these names.
        """
        for file in self._made:
            datafile.remove_if_it_is(str(file.name), file)

    def close(self) -> None:
        for file in self.old, *self._made:
            file.close()

    def pread(self, length: int, position: int) -> bytes:
        return os.pread(self.old.fileno(), length, position)

    def copied(self, job: Job, referencesf: References,
               own_process: bool) -> Copier:
        """Copy all but a small rest; the returned copier can go on."""
        if own_process and process.is_possible(referencesf):
            copier = self._by_process(job)
            if copier is not None:
                return copier
        return self._within(job, referencesf)

    def copy_rest(self, copier: Copier, end: int) -> None:
        """Copy what was appended in the meantime, up to `end`."""
        self._watch.tell(SWAP, copier.copied_to, end)
        copier.copy_later(Window(self.pread, end))
        copier.flush()  # a full disk must fail here

    def _within(self, job: Job, referencesf: References) -> Copier:
        """The same work as in the child process."""
        logger.info('%s: packing within this process', self._path)
        if referencesf is ZODB.serialize.referencesf:
            # It takes gigabytes of memory for a hostile record of a few bytes.
            referencesf = references
        copier = work.copied(
            job, self.pread, self.new, self.pacer, self.removed, referencesf,
            self._watch.tell)
        self._watch.gone_blobs = copier.gone_blobs
        copier.flush()
        # No rate limits the copy of the rest: at the end, commits wait for
        # this copy (I2).
        self.pacer.rate = Rate(None)
        index.write(
            self.index, index.Snapshot(copier.index, copier.written_to),
            self.new, noted=Pacer(self.index).written)
        self.index_to = copier.written_to
        return copier

    def _by_process(self, job: Job) -> Copier | None:
        """None: no child process could be started."""
        try:
            with contextlib.closing(Process(
                    job, self.old, self.new, self.index, self.removed,
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
        new, number = self.new, self.new.fileno()
        try:
            loaded = index.load_open(self.index.fileno(), str(self.index.name))
            if not (loaded.position <= done.written_to == new.size()
                    and FIRST < done.copied_to <= self._size()):
                raise ValueError('its files do not fit what it reports')
            # Add what was copied after the index was written.
            for found in scan.transactions(
                    Window.of_file(number), loaded.position):
                for record in found.records:
                    loaded.index[record.oid] = record.position
        except (index.Damaged, scan.Damage, ValueError) as wrong:
            raise process.Gone(
                f'the process that packs has not done its work: {wrong}.'
                ' Nothing was changed') from None
        self.index_to = loaded.position
        self._watch.gone_blobs = done.gone_blobs
        checksum = Checksum.of_file(number, done.blocks) if job.sums else None
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
