"""Brings what the log has into a data file that nobody else writes.

A `Follower` is told each record that the fold applies.  The bytes of a batch
are written behind the end of the file; the batch counts when it is whole and
its transactions are sound, and its blobs are durable (fetching); it is *kept*
when it is synced and the state behind it is saved.  The order is always:
write, sync, save.  So what is saved never says more than the disk has, and
after a crash at any moment the file up to the kept end is what the log says.

What is applied may be shown by one member alone, which is wrong (`members`).
So a majority is asked before anything is kept; an index file is written only
of what is kept.

A batch that an epoch gives up is cut off, and that is durable before anything
else is written in its place: a part of it that came back after a crash could
be taken for what was there (`evidence`).  So is a record that could not be
applied, when its place turns out to have another one: one wrong member had
shown the first.

*A pack* goes on beside this (`repacking`).  At its swap, in this order:

1. What was applied is kept: the file as it was, and the pack under way.
2. A majority has the record of the swap.  There will be no way back.
3. The new file is there, complete and durable, and is the one that the record
   names.
4. What the file becomes is kept.
5. It gets the name, durably.
6. The state behind the swap is kept, when it is its time.

So a start finds out which file it has, and whether that was to be
(`unfinished`).

It takes the memory of one record, and of the index.  It owns the file and its
lock, until it is closed or hands them over to a storage.
"""

import contextlib
import os
import threading

import zc.lockfile

from ... import datafile
from ...errors import DiskError
from ...pack.agreed import Becoming
from ...pack.unopened import BlobDirectory
from ...storage import opening
from ..files import state as states
from ..files.state import Kept
from ..history.fates import Fates
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
from ..log.reading import BROKEN
from ..log.reading import Refused
from . import repacking
from .fetching import Fetching
from .fetching import refuse_without
from .indexing import Indexing
from .repacking import Repacking

MISLED = (
    'A member of the log has shown a record that most of them do not have: its'
    ' disk is wrong, or the log was restored from a backup. Replace that'
    ' member; a start of this node cuts off what came from it, or refuses the'
    ' log')


class Follower:

    def __init__(self, lock_file: zc.lockfile.LockFile,
                 file: datafile.DataFile, kept: Kept, indexing: Indexing,
                 log: Log, stopping: threading.Event,
                 packs: repacking.Options,
                 blobs: Fetching | None = None) -> None:
        """The file ends where the state does that is kept.

        `blobs`: None without a blob directory.
        """
        state = kept.state
        #: Of this node (log.notes).
        self.identity = kept.node
        self._lock_file = lock_file
        self._file = file
        self.log = log
        self.blobs = blobs
        self._indexing = indexing
        self._is_handed_over = False
        #: Ends what waits for a pack; whoever has the follower may replace it.
        self.stopping = stopping
        self.packs = packs
        #: It replaces its file by a packed one, which may take as long as a
        #: pack.
        self.is_replacing = False
        #: What became of commits, for clients that ask when this node leads.
        self.fates = Fates(state.server, state.named)
        #: Behind the last record.
        self.state = state
        #: Behind the last whole batch: as far as that; as far as it is
        #: synced; as far as it is kept on the disk.
        self.whole = self.synced = self.kept = state
        #: A record whose bytes may be written, and which is not applied yet.
        self._begun: Place | None = None
        self._repacking = Repacking(
            self.name, lambda: self.whole.end,
            lambda: self.stopping.is_set(), packs,
            None if blobs is None else BlobDirectory(
                blobs.blob_dir, blobs.helper, packs.keep_old))
        self._repacking.goes_by(state)

    @property
    def name(self) -> str:
        return self._file.name

    @property
    def blob_dir(self) -> str | None:
        return None if self.blobs is None else self.blobs.blob_dir

    def apply(self, applied: Apply) -> None:
        """OSError, Unanswered: it has not happened, and may be repeated; and
        so may a Refused for damage."""
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
            self._sync_file()
            self._keep(state)
            self.synced = state
        elif isinstance(body, PackSwap):
            self.is_replacing = True
            try:
                self._swap(state, Becoming(body.size, body.checksum))
            finally:
                self.is_replacing = False
            self.synced = state
        if state.incomplete is None:
            self.whole = state
        self.state = state
        self._begun = None
        self.fates.applied(applied)
        self._repacking.goes_by(state)  # last: it may fail, and is not needed

    def _take_back(self) -> None:
        """Of a record that was not applied, and is another one now."""
        if self.blobs is not None:
            self.blobs.take_back()
        self._file.truncate(self.state.next)
        self._sync_file()
        self._begun = None

    def _swap(self, state: State, becoming: Becoming) -> None:
        """Replace the file; this is the state behind that."""
        self.sync()
        self.save()
        if not confirmed(self.log, state):
            raise Refused(MISLED, Why.HOLE)  # others may have another one
        made = self._repacking.made(self.whole, becoming)
        with contextlib.ExitStack() as stack:
            stack.enter_context(made.file)
            states.save(
                self.name, self.whole, self.read, self.identity, becoming)
            try:
                self._repacking.replace(made)
            except OSError as error:
                raise DiskError(
                    f'{self.name}: the packed file could not get its name'
                    f' ({error}). Check the disk, then start this node again:'
                    ' it finds out which file it has') from error
            stack.pop_all()
        self._file.close()
        self._file = made.file
        self._indexing.replaced(
            made.file, made.index, state.end, made.index_to)

    def sync(self) -> None:
        """All that is whole is durable.  DiskError is final (I7)."""
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
            raise Refused(MISLED)
        states.save(self._file.name, state, self.read, self.identity)
        self.kept = state
        if self.blobs is not None:
            self.blobs.kept(state.place.sequence)

    def save_index(self, every: int = 1) -> None:
        """Write the index file, if a start would read so many bytes, and all
        that counts is kept."""
        if self.kept is self.whole and not self._is_handed_over:
            self._indexing.save_if_due(every)

    def read(self, position: int, length: int) -> bytes:
        return os.pread(self._file.fileno(), length, position)

    def hand_over(self, epoch: int = 0) -> opening.Opened:
        """For a storage, which goes on behind the last whole batch, as the
        one that writes in this epoch.

        That one leads: its epoch has given up what there is of another batch,
        which is cut off.
        """
        self._repacking.close()
        if self._file.size() > self.whole.end:
            self._file.truncate(self.whole.end)
            self._sync_file()
            self.synced = self.whole
        self.sync()
        self._is_handed_over = True
        if self.blobs is not None:
            if self.blobs.has_lists:  # else they stay until the next start
                with contextlib.suppress(Unanswered, OSError):
                    self.save()
            self.blobs.close()
        return opening.Opened(
            self._lock_file, self._file, self._indexing.content, epoch)

    def close(self) -> None:
        """Let go of the file, unless it was handed over."""
        self._repacking.close()
        if not self._is_handed_over:
            if self.blobs is not None:
                self.blobs.close()
            self._file.close()
            self._lock_file.close()
