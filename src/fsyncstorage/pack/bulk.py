"""Makes the files of a pack, and does nearly all of it while others commit: in
a child process, or in this process where that is not possible.

The rest that is left then is small, or commits add to it faster than it is
copied.  The caller (packing, or a node that follows) lets it be copied, with
the Copier that it gets here.
"""

import contextlib
import logging
import os
from collections.abc import Callable

import ZODB.serialize

from .. import datafile
from ..format import index
from ..format import scan
from ..format.references import references
from ..format.scan import FIRST
from ..format.window import Window
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
from .progress import PackWatch

logger = logging.getLogger(__name__)


class Bulk:
    """The bulk of a pack of the data file at `path`, and the files of it.

    It must be made while no other process has the data file open, or packs it:
    only then may files of these names be removed.

    `old` is the data file, opened once more: it belongs to the Bulk, and the
    child reads it, too.  `size()` returns up to where it can be copied now.
    """

    def __init__(self, path: str, blob_dir: str | None,
                 old: datafile.DataFile, size: Callable[[], int],
                 watch: PackWatch) -> None:
        self._path = path
        self.old = old
        self._size = size
        self._watch = watch
        self._made: list[datafile.DataFile] = []
        #: Does the new file have the name of the old one?
        self.is_named = False
        self.removed: datafile.DataFile | None = None
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

    def _make(self, path: str) -> datafile.DataFile:
        # The old file may be for its owner alone.
        file = datafile.open_new(path, 0o600)
        self._made.append(file)
        naming.make_like(self.old, file)
        return file

    def give_name(self) -> None:
        """Let the new file take the name of the old one."""
        self.is_named = True    # an interrupt may come right behind the rename
        try:
            datafile.disk.replace(self._path + naming.PACKED, self._path)
        except OSError:
            self.is_named = False
            raise
        self.new.name = self._path

    def leave_nothing(self) -> None:
        """Remove the files that were made.

        Files of others are left alone: if the data file is not ours any more,
        another process may be packing, and its files may have these names.
        """
        for file in self._made:
            datafile.remove_if_it_is(str(file.name), file)

    def close(self, but_new: bool = False) -> None:
        """Close the files; with `but_new`, the new one stays open."""
        for file in self.old, *self._made:
            if not (but_new and file is self.new):
                file.close()

    @property
    def _files(self) -> work.Files:
        return work.Files(self.old, self.removed, self.new, self.index)

    def copied(self, job: Job, referencesf: References,
               own_process: bool) -> Copier:
        """Copy all but a small rest; the returned copier can go on."""
        if own_process and process.is_possible(referencesf):
            try:
                return self._by_process(job)
            except NotStarted as reason:
                logger.warning(
                    '%s: no process could be started for the pack, which goes'
                    ' on within this one (%s)', self._path, reason)
        logger.info('%s: packing within this process', self._path)
        if referencesf is ZODB.serialize.referencesf:
            # It takes gigabytes of memory for a hostile record of a few bytes.
            referencesf = references
        return work.copied(
            job, self._files, referencesf, self._watch.tell, self._size)

    def copy_rest(self, copier: Copier, end: int) -> None:
        """Copy what was appended in the meantime, up to `end`."""
        self._watch.tell(SWAP, copier.copied_to, end)
        copier.copy_later(Window.of_data_file(self.old, end))
        copier.flush()  # a full disk must fail here

    def _by_process(self, job: Job) -> Copier:
        with contextlib.closing(
                Process(job, self._files, self._watch)) as child:
            logger.info('%s: packing in a process of its own (%s)',
                        self._path, child.pid)
            return self._copier(job, child.copied(self._size))

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
        checksum = Checksum.of_file(number, done.blocks) if job.sums else None
        copier = Copier(
            Output(new, done.written_to, Pacer(new).written, checksum),
            copied_to=done.copied_to, index=loaded.index)
        copier.part = done.part
        return copier
