"""Brings what the log has into a data file that nobody else writes.

`Follower.apply` is called for each record that the fold applies.  A batch
*counts* when it is whole, its transactions are sound, and its blobs are
durable (fetching).  It is *kept* when it is synced, a majority of the members
has it, and the state after it is saved: in this order, so that what is saved
never says more than the disk has.

A pack goes on in parallel (`repacking`).  At its swap, what was applied is
kept, with the pack; a majority must have the record, as there will be no way
back; what the file becomes is kept; and then the new file gets the name.  So a
start finds out which file it has (`unfinished`).

The follower takes the memory of one record, and of the index.  It owns the
file and its lock, until it is closed or hands them over to a storage.
"""

import contextlib
import os

import zc.lockfile

from ... import datafile
from ...errors import DiskError
from ...pack import packedblobs
from ...pack.agreed import Becoming
from ...storage import opening
from ..files import state as states
from ..files.state import Kept
from ..history.fold import Apply
from ..history.fold import State
from ..history.fold import Why
from ..history.record import Data
from ..history.record import Epoch
from ..history.record import PackSwap
from ..history.record import Place
from ..log.interface import Log
from ..log.interface import Unanswered
from ..log.members import confirmed
from ..log.reading import ANEW
from ..log.reading import BROKEN
from ..log.reading import Refused
from . import repacking
from .fetching import Fetching
from .fetching import refuse_without
from .indexing import Indexing
from .repacking import Late
from .repacking import Repacking
from .spool import Spool
from .spool import Spooling
from .spool import with_spool

MISLED = (
    'A member of the log has shown a record that most of them do not have: its'
    ' disk is wrong, or the log was restored from a backup. Replace that'
    ' member; a start of this node cuts off what came from it, or refuses the'
    ' log')


class Follower:

    def __init__(self, lock_file: zc.lockfile.LockFile,
                 file: datafile.DataFile, kept: Kept, indexing: Indexing,
                 log: Log, packs: repacking.Options, spool: Spool,
                 blobs: Fetching | None = None) -> None:
        """The file ends where the kept state says, and `log` is behind the
        spool.

        `blobs`: None without a blob directory.
        """
        state = kept.state
        #: The identity of this node (log.notes).
        self.identity = kept.node
        self._lock_file = lock_file
        self._file = file
        self.log = log
        self.blobs = blobs
        self._spool = spool
        self._indexing = indexing
        self._is_handed_over = False
        self.packs = packs
        #: The state after the last record.
        self.state = state
        #: The states after the last whole batch, after the last one that is
        #: synced, and after the last one that is kept on the disk.
        self.whole = self.synced = self.kept = state
        #: What goes on while a swap waits for the pack.
        self._spooling: Spooling | None = None
        #: A record whose bytes may be written, but which is not applied yet.
        self._begun: Place | None = None
        self._repacking = Repacking(
            self.name, lambda: self.whole.end, packs,
            None if blobs is None else packedblobs.BlobDirectory(
                blobs.blob_dir, blobs.helper, packs.keep_old))
        self._repacking.goes_by(state)

    @property
    def name(self) -> str:
        return self._file.name

    @property
    def blob_dir(self) -> str | None:
        return None if self.blobs is None else self.blobs.blob_dir

    @property
    def noted(self) -> Place:
        """Up to here the log need not keep anything for this node."""
        return max(self.kept.place, self._spool.whole)

    @property
    def waits_for_its_pack(self) -> bool:
        """The log has replaced its file, and its own is not ready."""
        return self._spooling is not None

    def spool_on(self) -> bool:
        """While a swap waits: keep some of what follows it.  Is there more?"""
        return self._spooling is not None and self._spooling.go_on()

    @property
    def pack_trouble(self) -> str | None:
        return self._repacking.trouble

    @property
    def pack_said(self) -> tuple[int, bytes]:
        """What the note says of its pack."""
        return self._repacking.said

    def apply(self, applied: Apply, patience: float = 0.0) -> None:
        """A swap waits for its pack so many seconds; then it is Late.

        After OSError, Unanswered, Late, or a Refused for damage, the record
        is not applied, and the call may be repeated."""
        state, record = applied
        refuse_without(self.blob_dir, record)
        if self._begun not in (None, state.place):
            self._take_back()
        body = record.body
        if isinstance(body, Data):
            self._begun = state.place
            self._file.write_at(body.data, record.position)
            if state.incomplete is not None:
                if self.blobs is not None:
                    self.blobs.add(body.blobs)
            else:
                if self.blobs is not None:
                    self.blobs.fetch(
                        self.log, state.place.sequence, body.blobs)
                self._indexing.count(state.end, BROKEN)
        elif isinstance(body, Epoch) and self.state.incomplete is not None:
            if self.blobs is not None:
                self.blobs.give_up()
            self._file.truncate(state.end)
        elif isinstance(body, PackSwap):
            self._swap(
                applied, Becoming(body.size, body.checksum), patience)
        if state.incomplete is None:
            self.whole = state
        self.state = state
        self._begun = None
        self._repacking.goes_by(state)  # last: it may fail, and is not needed

    def goes_on_with(self, log: Log) -> None:
        """In place of the one that it had."""
        self.log, self._spooling = with_spool(log, self._spool), None

    def _take_back(self) -> None:
        """Undo a record that was not applied, and has been replaced."""
        if self.blobs is not None:
            self.blobs.take_back()
        self._file.truncate(self.state.next)
        self._begun = None

    def _swap(self, swap: Apply, becoming: Becoming,
              patience: float) -> None:
        """Replace the file."""
        if self._spooling is None:
            self.sync()
            self.save()
            if not confirmed(self.log, swap.state):
                raise Refused(MISLED, Why.DAMAGED)  # others may have another
        self._repacking.wait(patience)
        try:
            made = self._repacking.made(self.whole, becoming)
        except Late:
            if self._spooling is None:
                self._spooling = Spooling(
                    self.log, self._spool, swap, self.blobs)
            raise
        states.save(self.name, self.whole, self.read, self.identity, becoming)
        with contextlib.ExitStack() as stack:
            stack.enter_context(made.file)
            try:
                self._repacking.replace(made)
            except OSError as error:
                raise DiskError(
                    f'{self.name}: the packed file could not get its name'
                    f' ({error}). Check the disk, then start this node again:'
                    ' it finds out which file it has') from error
            stack.pop_all()
        self._file.close()
        self._file, self.synced = made.file, swap.state
        self._indexing.replaced(made.file, made.index, swap.state.end)
        if self._spooling is not None:
            self._spooling.end()
            self._spooling = None

    def check_its_name(self) -> None:
        """Raise OSError if the file has lost its name: the next start would
        not find what comes into it."""
        try:
            is_ours = os.path.samestat(
                os.stat(self.name), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            is_ours = False
        if not is_ours:
            raise OSError(
                f'{self.name} was removed, or another file is in its place.'
                f' Put the file back; or {ANEW}')

    def reopened(self) -> datafile.DataFile:
        """The file, opened once more, for reading only."""
        self.check_its_name()
        return datafile.open_existing(self.name, read_only=True)

    def sync(self) -> None:
        """Make all whole batches durable.  A DiskError is final (I7)."""
        if self.synced is not self.whole:
            self._sync_file()
            self.synced = self.whole

    def _sync_file(self) -> None:
        try:
            self._file.sync()
        except OSError as error:
            raise DiskError(
                f'{self._file.name}: a sync failed ({error}): what is on the'
                ' disk is in doubt. Check it, then start this node again: it'
                ' reads from the log what is missing') from error

    def save(self) -> None:
        """Keep what is synced; raise Unanswered if that is not known to be in
        the log."""
        if self.kept is not self.synced:
            self._keep(self.synced)
            self._repacking.catch_up()

    def _keep(self, state: State) -> None:
        if not confirmed(self.log, state):
            raise Refused(MISLED, Why.FORKED)
        states.save(self._file.name, state, self.read, self.identity)
        self.kept = state
        self._spool.kept(state.place)
        if self.blobs is not None:
            self.blobs.kept(state.place.sequence)

    def save_index(self, every: int = 1) -> None:
        """Write the index file, if a start would otherwise read `every` bytes
        or more, and if all that counts is kept."""
        if self.kept is self.whole and not self._is_handed_over:
            self._indexing.save_if_due(every)

    def read(self, position: int, length: int) -> bytes:
        return os.pread(self._file.fileno(), length, position)

    def hand_over(self, epoch: int = 0) -> opening.Opened:
        """Hand the file to a storage, which continues after the last whole
        batch, and writes in this epoch.

        Its node leads: the epoch has given up any batch that is not whole,
        so the rest of it is cut off.
        """
        self._repacking.close()
        if self._file.size() > self.whole.end:
            self._file.truncate(self.whole.end)
            self._sync_file()
            self.synced = self.whole
        self.sync()
        if self.blobs is not None and self.blobs.has_lists:
            # (If that fails, the lists stay until a start.)
            with contextlib.suppress(Unanswered, OSError):
                self.save()
        self._spool.close()
        self._is_handed_over = True  # last: else `close` closes the file
        return opening.Opened(
            self._lock_file, self._file, self._indexing.content, epoch)

    def close(self) -> None:
        """Close the file, unless it was handed over."""
        self._repacking.close()
        self._spool.close()
        if not self._is_handed_over:
            self._file.unlock()  # an error may keep it open for longer
            self._file.close()
            self._lock_file.close()
