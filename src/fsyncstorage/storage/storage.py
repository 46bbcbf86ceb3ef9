"""FsyncStorage: a FileStorage whose commits go through the pipeline.

A sibling of FileStorage: it has the same base classes of ZODB, and the same
files.  This module has what is called from outside: opening and closing,
reading, and maintenance.

A reader takes the current view, and needs no lock.  One that asks for the
current state waits while a transaction is being published.

Left to others: looking things up (format.view), commits (commits), the file
(journal), what is found at open (opening, recovery), what a crash left
(leftovers), the index file (checkpoints, format.index), packs (pack.packing),
the scrub (scrub.scrubbing), and inner names that other programs use
(ecosystem).

The internals of stock that are used here are those of ZODB 6.4;
tests/upstream/test_stock_hooks.py fails when they change.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import zc.lockfile
from ZODB import interfaces
from ZODB.BaseStorage import BaseStorage
from ZODB.blob import BlobStorageMixin
from ZODB.ConflictResolution import ConflictResolvingStorage
from ZODB.FileStorage.FileStorage import FileStorageError
from ZODB.fsIndex import fsIndex
from ZODB.POSException import POSKeyError
from ZODB.utils import z64
from zope.interface import alsoProvides
from zope.interface import implementer

from .. import datafile
from .. import forks
from ..commit import blobs
from ..commit import policies
from ..commit.replica import Replica
from ..commit.reserve import Reserve
from ..commit.turns import Turns
from ..errors import WritingStopped
from ..format.objectmap import INSTANCE_SIZE
from ..format.scan import FIRST
from ..format.view import CachedView
from ..format.view import Entry
from ..format.view import Filter
from ..format.view import Revision
from ..format.view import ViewIterator
from ..histogram import Histogram
from ..pack import packing
from ..pack.agreed import Hooks
from ..pack.packs import Packs
from ..pack.progress import PackWatch
from ..scrub.scrubbing import File
from ..scrub.scrubbing import Scrub
from . import leftovers
from . import objectmap
from . import opening
from . import outcome
from . import statistics
from .checkpoints import Checkpoints
from .checks import Checks
from .commits import THE_FILE
from .commits import Commits
from .conflicts import Conflicts
from .conflicts import UnpublishedView
from .crashmark import Mark
from .ecosystem import Ecosystem
from .journal import Journal
from .statistics import Counts

logger = logging.getLogger(__name__)

#: Seconds between two looks of a pack that waits, whether it must end.
LOOK_EVERY = 0.1


@implementer(
    interfaces.IStorage,
    interfaces.IStorageRestoreable,
    interfaces.IStorageIteration,
    interfaces.IStorageUndoable,
    interfaces.IStorageCurrentRecordIteration,
    interfaces.IExternalGC,
)
class FsyncStorage(
    Ecosystem,
    Commits,
    BlobStorageMixin,
    ConflictResolvingStorage,
    BaseStorage,
):
    """A Data.fs: a drop-in for ZODB's FileStorage, with tunable durability.

    A commit is acknowledged when its policy (`durability`) says so, and
    several commits share a sync; no reader waits for one.  The files are those
    of FileStorage.  It is used as any storage, `ZODB.DB(FsyncStorage(path))`;
    and `stats()` says what it has done.
    """

    _file_name = ''  # until it is open
    # None as long as the storage is not open.
    journal: Journal = None  # type: ignore[assignment]  # see above
    _lock_file: zc.lockfile.LockFile | None = None
    _scrub: Scrub | None = None
    #: Commits that were acknowledged may be missing, after a crash under a
    #: policy that does not promise them.
    may_have_lost = False
    #: The progress of a pack, its cancel, and what a pack would free.  (A
    #: server looks at the class: wrappers pass on attributes of an object.)
    packs: Packs = None  # type: ignore[assignment]  # see above
    #: The object that shows the figures; it is closed with the storage.
    metrics: Any = None
    #: The progress of the pack that is under way, and how to cancel it.
    pack_watch: PackWatch | None = None
    #: Through these a pack agrees with the other nodes that have this file;
    #: None: there are none.
    pack_hooks: Hooks | None = None

    def __init__(
        self,
        file_name: str | os.PathLike[str],
        create: bool = False,
        read_only: bool = False,
        stop: bytes | None = None,
        quota: str | int | None = None,
        pack_gc: bool = True,
        pack_keep_old: bool = True,
        packer: Callable[..., Any] | None = None,
        blob_dir: str | os.PathLike[str] | None = None,
        durability: str = 'group-commit',
        sync_interval: str | float = '1s',
        group_commit_delay: str | float = 'auto',
        checksums: bool = True,
        index_checkpoint: str | int = policies.DEFAULT_INDEX_CHECKPOINT,
        reader_threads: int | str = policies.DEFAULT_READER_THREADS,
        readers: int | str = 'auto',
        pack_process: bool = True,
        pack_rate: str | int = 'none',
        local_reads: bool = False,
        local_reads_mode: int = policies.DEFAULT_LOCAL_READS_MODE,
        scrub_rate: str | int = 'off',
        slow_commit_log: str | float = policies.DEFAULT_SLOW_COMMIT_LOG,
        replica: Replica | None = None,
        opened: opening.Opened | None = None,
    ) -> None:
        """The arguments of FileStorage, and the keys of <fsyncstorage>.

        docs/configure.rst explains them.  Times are seconds, or text like
        ``200ms``; sizes are bytes, or text like ``64MB``.  The policy `quorum`
        needs a `replica` (quorum.leading).  From now on it belongs to the
        storage, and so does a file that was `opened` and read before.
        """
        policies.refuse_texts(
            create=create, read_only=read_only, pack_gc=pack_gc,
            pack_keep_old=pack_keep_old, checksums=checksums,
            pack_process=pack_process, local_reads=local_reads)
        index_checkpoint = policies.index_checkpoint(index_checkpoint)
        self.reader_threads = policies.reader_threads(reader_threads)
        #: For a server: how many processes read for its clients; None: as many
        #: as it likes.
        self.readers = policies.readers(readers)
        #: For a server: may clients on this machine read the file themselves,
        #: and which clients (the mode of a socket)?
        self.local_reads = bool(local_reads)
        self.local_reads_mode = policies.local_reads_mode(local_reads_mode)
        rate = policies.scrub_rate(scrub_rate)
        #: For a server: a commit that takes this many seconds gets a line in
        #: the log.
        self.slow_commit_log = policies.slow_commit_log(slow_commit_log)
        self._checksums = bool(checksums)
        self.durability = policies.Durability(
            policies.policy_named(durability),
            policies.sync_interval(sync_interval),
            policies.group_commit_delay(group_commit_delay))
        opening.check_replica(
            self.durability.policy, replica, read_only, create,
            self._checksums)
        if packer is not None:
            raise ValueError(
                'a packer of your own is not used: a pack here runs in a'
                ' process of its own already, and survives a power cut')
        file_name = opening.checked(file_name, read_only, create, stop)
        self._is_read_only = bool(read_only)
        self._quota = (
            None if quota is None else policies.number_of_bytes(
                quota, 'quota'))
        self._pack_gc = pack_gc
        self.pack_keep_old = pack_keep_old
        self.pack_process = bool(pack_process)
        self.pack_rate = policies.pack_rate(pack_rate)
        self.packs = Packs(self)
        self.blob_dir = os.path.abspath(blob_dir) if blob_dir else None
        self._durable_directories: set[str] = set()
        self._begin_commits()
        self._counts = Counts()
        self._swapping = threading.Lock()
        #: Drawn for each opening: the maps of this one have it.
        self.instance = os.urandom(INSTANCE_SIZE)
        #: The last tid that a server has told its clients of.
        self.announced = z64
        self._making_map = threading.Lock()
        #: What holds the append lock for a pack.
        self._still: contextlib.ExitStack | None = None
        self.replica = replica
        self.pack_hooks = None if replica is None else replica.pack_hooks
        try:
            opening.refuse_past_a_log(file_name, replica, read_only)
            opening.prepare(file_name, create, read_only, self.blob_dir)
            self._open(file_name, create, stop, opened)
            self._begin_service(index_checkpoint)
            if rate is not None and not read_only:
                self._scrub = Scrub(File(
                    self._file_name, self.reopened,
                    lambda: self._sequencer.durable.end,
                    lambda: self.journal.closed_because), rate)
                self._scrub.start()
        except BaseException:
            self._release()
            raise

    def __repr__(self) -> str:
        return (f'<{type(self).__name__} {self._file_name!r}'
                f' {self.durability.policy.name}>')

    # Opening and closing

    def _open(self, file_name: str, create: bool, stop: bytes | None,
              opened: opening.Opened | None) -> None:
        """Take the lock, and read the file."""
        read_only = self._is_read_only
        if not read_only:
            self._lock_file = (
                opened.lock_file if opened is not None
                else opening.lock_name(file_name))
        self._file_name = os.path.abspath(file_name)
        self._home = os.path.dirname(self._file_name)
        file, found = opened[1:3] if opened is not None else (
            opening.open_and_read(
                file_name, create, read_only, stop,
                self._checksums or self.durability.policy.promises))
        self.journal = Journal(
            self._file_name, file, found.index, found.end, found.tid,
            self.durability, self._checksums, self._end_dropped)
        BaseStorage.__init__(self, file_name)
        self.journal.last_tid = found.tid  # not the one that it has made
        self._use_journal()
        self._oid = opening.given_before(found, opened)
        self._index_position = found.known_to
        opening.warn_of_the_future(file_name, found.tid)
        if directory := self.blob_dir:
            self.fshelper = opening.blob_helper(directory, create, read_only)
            alsoProvides(self, interfaces.IBlobStorageRestoreable)
        else:
            self._blob_init_no_blobs()

    def _begin_service(self, index_checkpoint: int) -> None:
        """The file is read: make it durable, then serve."""
        journal = self.journal
        self._turns = Turns(self._sequencer.stop_after_interrupt)
        self._conflicts = Conflicts(self._file_name)
        self._checks = Checks(
            self, journal, self._conflicts, self._counts, self._let_go)
        self._unsynced = Mark(self._file_name, journal.last_tid)
        self.may_have_lost = self._unsynced.found
        if self._is_read_only:
            return
        journal.reserve = Reserve(journal.file, lambda: journal.end)
        journal.file.sync()
        if self.replica is not None:
            journal.replica = self.replica
            self.replica.begin(self._file_name, journal.end, journal.read)
        leftovers.remove(self)
        datafile.disk.sync_directory(self._home)
        if self.blob_dir:
            journal.unsynced_blobs = blobs.Placed(
                self.fshelper, self._durable_directories, removable=True)
            if self._unsynced.found:  # the data was synced just now
                opening.sync_unsynced_blobs(
                    journal.unsynced_blobs, journal.view,
                    self._index_position)
        if not self.durability.policy.promises:
            self._unsynced.make()
        journal.checkpoints = Checkpoints(journal, index_checkpoint)
        self._sequencer.flusher.start()
        if self._index_position == FIRST:
            journal.checkpoints.write_or_warn()
        journal.checkpoints.start(self._index_position)
        forks.in_child(self)

    def _use_journal(self) -> None:
        """The locks have the names that they have in a FileStorage."""
        journal = self.journal
        self._lock = journal.lock
        self._commit_lock = journal.append_lock
        self._sequencer = journal.sequencer
        self._refuse_when_stopped = journal.refuse_when_stopped

    def close(self) -> None:
        """Settle all commits, sync, save the index, release everything."""
        self.about_to_close()  # first: a pack may have the lock meanwhile
        with self._lock:
            if self.journal.closed_because:
                return
            self.journal.is_to_close()
        if self.metrics is not None:
            self.metrics.hide()
        try:
            self._close()
        finally:
            if self.metrics is not None:
                self.metrics.close()  # last: its thread may take a while

    def _close(self) -> None:
        self.packs.wake()
        self._turns.end()
        # (First: a pack may have the append lock until these are published.)
        self._sequencer.owned_by(None)
        self._sequencer.offer()
        if self._still is None:  # else a pack has the lock, and writes nothing
            with self._commit_lock:
                pass  # nothing is being written; what comes finds it closed
        try:
            if self._scrub is not None:
                self._scrub.end()
            if not self._is_read_only:
                self._sequencer.offer()
                self._sequencer.drain()
                self._sequencer.sync_to(self.journal.end)
                if self.replica is not None:
                    self.replica.close()  # another node may lead from here on
                self._unsynced.remove(self._sequencer.appended.tid)
                self.journal.checkpoints.write_or_warn()
                # Only if no thread writes; else the next opening does it.
                if self._commit_lock.acquire(blocking=False):
                    try:
                        self.journal.reserve.give_back()
                    finally:
                        self._commit_lock.release()
        except WritingStopped as error:
            logger.error('%s is closed, but %s', self._file_name, error)
        finally:
            if self._scrub is not None:  # may wait: commits are settled now
                self._scrub.close()
            with self._swapping:  # a pack may be about to rename
                self._release()

    def _release(self) -> None:
        """Free all threads, files and locks, also after a failed opening."""
        if self.replica is not None:
            self.replica.close()  # threads may wait for it
        journal = self.journal
        if journal is not None:
            journal.end_threads()
        for under_way in list(self._begun.values()):
            under_way.close()
        if journal is not None:
            journal.close()
        if self._lock_file is not None:
            self._lock_file.close()

    def forked(self) -> None:
        """Called in the child of a fork: everything belongs to the parent.

        Threads of the parent that do not exist in the child may have held the
        locks: so each lock is made anew.  Descriptors are closed, and nothing
        is written, unlocked or removed.
        """
        self.journal.forked(
            'was opened by another process, before a fork: open it in this'
            ' one, after the other has closed it')
        self._use_journal()
        self._making_map = threading.Lock()
        self._swapping = threading.Lock()
        self._turns = Turns(self._sequencer.stop_after_interrupt)
        self._counts = Counts()
        # As in a storage that only reads.
        self._scrub = self.replica = None
        self._conflicts = Conflicts(self._file_name)
        for under_way in self._begun.values():
            under_way.abandon()
        self._begin_commits()  # (aborts would remove the parent's blobs)
        opening.close_without_unlocking(self._lock_file)

    # Readers

    def lastTransaction(self) -> bytes:
        return self.journal.current().tid

    def getSize(self) -> int:
        return self.journal.view.end

    def load(self, oid: bytes, version: str = '') -> tuple[bytes, bytes]:
        assert not version
        return self.journal.current().load(oid)

    def loadBefore(self, oid: bytes, tid: bytes) -> Revision | None:
        journal = self.journal
        if (journal.sequencer.publishing
                and not journal.view.shows_all_before(tid)):
            journal.sequencer.pass_gate()
        return journal.view.load_before(oid, tid)

    def load_before_cached(self, oid: bytes, tid: bytes) -> Revision | None:
        """loadBefore, but only from the page cache; else BlockingIOError."""
        view = self.journal.current()
        return CachedView(view.file, view.index, view.end, view.tid
                          ).load_before(oid, tid)

    def loadSerial(self, oid: bytes, serial: bytes) -> bytes:
        view = self.journal.view
        if serial > view.tid:
            view = self.journal.current()
        return view.load_serial(oid, serial)

    def getTid(self, oid: bytes) -> bytes:
        return self.journal.current().get_tid(oid)

    def history(self, oid: bytes, size: int = 1,
                filter: Filter | None = None) -> list[Entry]:
        return self.journal.current().history(oid, size, filter)

    def undoLog(self, first: int = 0, last: int = -20,
                filter: Filter | None = None) -> list[Entry]:
        if last < 0:
            last = first - last  # a number of transactions
        return self.journal.current().undo_log(first, last, filter)

    def iterator(self, start: bytes | None = None,
                 stop: bytes | None = None) -> ViewIterator:
        return ViewIterator(self.journal.current(), start, stop)

    def lastInvalidations(self, count: int) -> list[tuple[bytes, list[bytes]]]:
        return self.journal.current().last_invalidations(count)

    def record_iternext(self, next: bytes | None = None
                        ) -> tuple[bytes, bytes, bytes, bytes | None]:
        return self.journal.current().next_record(next)

    def loadBlob(self, oid: bytes, serial: bytes) -> str:
        journal = self.journal
        if serial > journal.view.tid and serial > journal.current().tid:
            raise POSKeyError(oid)  # its transaction is not published
        return super().loadBlob(oid, serial)

    def leaseBlob(self, oid: bytes, serial: bytes,
                  seconds: float = 60) -> str | None:
        """The path of a blob file, for another program to open, or None.

        The file stays until it is packed away, so it needs no lease.  (The
        file of a client, fsyncstorage.client, does.)
        """
        try:
            return self.loadBlob(oid, serial)
        except POSKeyError:
            return None

    # Conflicts

    def about_to_close(self) -> None:
        """Let votes fail that wait for a log, or resolve a conflict.

        For a server, which ends its threads before it closes the storage."""
        self._conflicts.close()
        if self.replica is not None:
            self.replica.closing()

    def distrust_records(self, resolve: bool = True) -> None:
        """Called by a server: from now on, records come from clients.

        Without `resolve`, the clients resolve the conflicts themselves.
        """
        self._conflicts.distrust_records(resolve)

    def tryToResolveConflict(self, oid: bytes, committedSerial: bytes,
                             oldSerial: bytes, newpickle: bytes,
                             committedData: bytes = b'') -> bytes:
        if not committedData:
            # Stock would use loadSerial, which shows only what is published.
            # The committed record may even be in the index, and not appended
            # yet.  If its creation was undone, stock raises the error.
            all_of_it = UnpublishedView(self.journal.view)
            with contextlib.suppress(POSKeyError):
                committedData = all_of_it.load_serial(oid, committedSerial)
        if self._conflicts.of_clients:
            return self._conflicts.resolved(
                self, oid, committedSerial, oldSerial, newpickle,
                committedData)
        resolved: bytes = super().tryToResolveConflict(
            oid, committedSerial, oldSerial, newpickle, committedData)
        return resolved

    # What became of a commit

    def bar(self, id: bytes) -> None:
        """Let no transaction with this commit id be appended any more; wait
        until those that were are published, or have failed.

        Whoever calls this must not begin one with the id again.  An event loop
        that publishes must leave the call to another thread.
        """
        outcome.bar(self, id)

    def outcome(self, id: bytes, since: bytes,
                most: int | None = None) -> outcome.Outcome:
        """Bar the commit id, and say what became of its transaction.

        `since` is the last tid that its client knew when it began; `most` is
        how many transactions are looked at.  storage.outcome has the possible
        answers, and what they mean.
        """
        return outcome.of(self, id, since, most)

    # Maintenance

    def pack(self, t: float, referencesf: Callable[..., Any],
             gc: bool | None = None) -> None:
        self._refuse_when_stopped()
        packing.pack(self, t, referencesf, self._pack_gc if gc is None else gc)

    @contextlib.contextmanager
    def nobody_holds_the_file(self) -> Iterator[None]:
        """For a pack; the wait for that ends if the pack must end.

        A transaction holds the file for as long as its client likes."""
        me, watch = object(), self.pack_watch
        go_on = self._refuse_when_stopped if watch is None else watch.go_on
        try:
            is_mine = self._turns.ask(me, {THE_FILE})
            while not is_mine:
                go_on()
                is_mine = self._turns.wait(me, LOOK_EVERY)
            yield
        finally:
            self._turns.let_go(me)

    def hold_still(self) -> None:
        """Hold the append lock until `move_on`, with nothing on its way to the
        disk (for a pack).

        A transaction that is voted then has no position in the file yet."""
        with contextlib.ExitStack() as held:
            held.enter_context(self.nobody_holds_the_file())
            held.enter_context(self._commit_lock)
            self._sequencer.drain()
            self._still = held.pop_all()

    def move_on(self) -> None:
        """Free the append lock, if `hold_still` has taken it."""
        still, self._still = self._still, None  # first: a close looks at it
        if still is not None:
            still.close()

    @contextlib.contextmanager
    def close_waits(self) -> Iterator[None]:
        """A context in which the storage cannot be closed.

        A pack goes on for a short time after its storage is closed.  By then,
        another process may have the file open, and pack it under the same
        names.
        """
        with self._swapping:
            self._refuse_when_stopped()
            yield

    def replace_file(self, file: datafile.DataFile, index: fsIndex,
                     end: int) -> None:
        """Serve from another file with the same current state, and make its
        name durable.

        The append lock is held, and everything is settled and synced.
        """
        if self._scrub is not None:
            # First: no process may read the old file up to the end of the new
            # one.  (`reopened` waits for the end of the swap.)
            self._scrub.begin_anew()
        self.journal.replace_file(file, index, end)
        blobs.sync_directory(self._home)

    def reopened(self) -> datafile.DataFile:
        """The data file, opened once more, for reading only: for a reader that
        changes settings of its open file."""
        with self.close_waits():
            file = datafile.open_existing(self._file_name, read_only=True)
            if os.path.samestat(os.fstat(file.fileno()),
                                os.fstat(self.journal.file.fileno())):
                return file
            file.close()
            raise FileStorageError(
                f'{self._file_name} is another file than the one that this'
                ' storage has open; nothing was changed')

    def object_map(self) -> objectmap.ObjectMap:
        """The map by which other processes read the file themselves; it is
        built if there is none.  Raises objectmap.NoMap."""
        with self._making_map:
            current = self.journal.map
            if current is None or current.is_retired:
                current = objectmap.build(self)
            return current

    def make_durable(self) -> None:
        """All that is published, whatever the policy is."""
        self._sequencer.sync_to(self.journal.view.end)

    def announce(self, tid: bytes) -> None:
        """A server is about to tell its clients of all up to this tid."""
        self.announced = tid
        if (object_map := self.journal.map) is not None:
            object_map.announce(tid)

    def retire_map(self) -> None:
        """From now on, clients do not read the file themselves, but ask the
        server."""
        self.journal.retire_map()

    # Figures

    @property
    def damage(self) -> str | None:
        """What the scrub has found in the file, in words."""
        return None if self._scrub is None else self._scrub.damage

    def stats(self) -> dict[str, object]:
        """Figures for monitoring, as a dictionary."""
        return statistics.stats(self)

    def histograms(self) -> dict[str, Histogram]:
        """All durations that `stats` summarizes."""
        return statistics.histograms(self)

    # What its base classes lack

    def __len__(self) -> int:
        return len(self.journal.positions)

    def supportsUndo(self) -> bool:
        return True

    def copyTransactionsFrom(self, other: Any) -> None:
        base = BlobStorageMixin if self.blob_dir else BaseStorage
        base.copyTransactionsFrom(self, other)
