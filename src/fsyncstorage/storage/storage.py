"""FsyncStorage: a FileStorage whose commits go through the pipeline.

A sibling of FileStorage: it has the same base classes of ZODB, and the same
files.  This module has what is called from outside: opening and closing,
reading blobs, and maintenance.

Left to others: the methods for readers (readers), commits (commits, records),
what is found at open (opening, recovery), what a crash left (leftovers), the
index file (checkpoints, format.index), packs (pack.packing, pack.swap), the
scrub (scrub.scrubbing), and inner names that other programs use (ecosystem).

The internals of stock that are used here are those of ZODB 6.4;
tests/upstream/test_stock_hooks.py fails when they change.
"""

import collections
import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import zc.lockfile
from ZODB import interfaces
from ZODB.BaseStorage import BaseStorage
from ZODB.blob import BlobStorageMixin
from ZODB.ConflictResolution import ConflictResolvingStorage
from ZODB.FileStorage.FileStorage import FileStorageError
from ZODB.FileStorage.format import FileStorageFormatter
from ZODB.fsIndex import fsIndex
from ZODB.POSException import POSKeyError
from zope.interface import alsoProvides
from zope.interface import implementer

from .. import datafile
from .. import forks
from ..commit import blobs
from ..commit import policies
from ..commit.contention import Contention
from ..commit.replica import Replica
from ..commit.reserve import Reserve
from ..commit.sequencer import Sequencer
from ..commit.turns import Turns
from ..errors import WritingStopped
from ..format.objectmap import INSTANCE_SIZE
from ..format.scan import FIRST
from ..format.view import View
from ..pack import packing
from ..pack import swap
from ..pack.agreed import Hooks
from ..pack.packs import Packs
from ..pack.progress import Watch
from ..positions import Positions
from ..scrub.scrubbing import Scrub
from . import leftovers
from . import objectmap
from . import opening
from . import outcome
from .checkpoints import Checkpoints
from .commits import Commits
from .crashmark import Mark
from .ecosystem import Ecosystem
from .place import Place
from .readers import Readers
from .statistics import Counts
from .tids import Tids
from .transaction import Transaction

logger = logging.getLogger(__name__)


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
    Readers,
    Commits,
    FileStorageFormatter,
    BlobStorageMixin,
    ConflictResolvingStorage,
    BaseStorage,
):

    # None as long as the storage is not open.
    _file: datafile.DataFile = None  # type: ignore[assignment]  # see above
    _sequencer: Sequencer = None     # type: ignore[assignment]  # see above
    _lock_file: zc.lockfile.LockFile | None = None
    # A read-only storage has none of these.
    _checkpoints: Checkpoints = None  # type: ignore[assignment]  # see above
    _scrub: Scrub | None = None
    #: Commits that were acknowledged may be missing, after a crash under a
    #: policy that does not promise them.
    may_have_lost = False
    #: The progress of a pack, its cancel, and what a pack would free.  (A
    #: server looks at the class: wrappers pass on attributes of an object.)
    packs: Packs = None               # type: ignore[assignment]  # see above
    #: The object that shows the figures; it is closed with the storage.
    metrics: Any = None
    #: The progress of the pack that is under way, and how to cancel it.
    pack_watch: Watch | None = None
    #: Through these a pack agrees with the other nodes that have this file;
    #: None: there are none.
    pack_hooks: Hooks | None = None

    def __init__(
        self,
        file_name: str | os.PathLike[str],
        create: bool = False,
        read_only: bool = False,
        stop: bytes | None = None,
        quota: int | None = None,
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
        index_checkpoint = policies.index_checkpoint(index_checkpoint)
        self.reader_threads = policies.reader_threads(reader_threads)
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
            self.packer = packer
        file_name = opening.checked(file_name, read_only, create, stop)
        self._is_read_only = bool(read_only)
        self._quota = quota
        self._pack_gc = pack_gc
        self.pack_keep_old = pack_keep_old
        self.pack_process = bool(pack_process)
        self.pack_rate = policies.pack_rate(pack_rate)
        self.packs = Packs(self)
        self.blob_dir = os.path.abspath(blob_dir) if blob_dir else None
        self._durable_directories: set[str] = set()
        #: The transactions that were begun, by the id of the caller's object.
        self._begun: dict[int, Transaction] = {}
        #: References to callers' objects that are gone.
        self._dropped: collections.deque[weakref.ref[Any]]
        self._dropped = collections.deque()
        self._ending_dropped = threading.Lock()
        self._counts = Counts()
        self._contention = Contention()
        self._tids = Tids()
        self._swapping = threading.Lock()
        self._place = Place()
        #: Drawn for each opening: the maps of this one have it.
        self.instance = os.urandom(INSTANCE_SIZE)
        self._making_map = threading.Lock()
        #: What holds the append lock for a pack.
        self._still: contextlib.ExitStack | None = None
        #: Held to check that the data file is open, and to write or cut it.
        self._writing = threading.RLock()
        self._closed = False
        #: There may be a tail: bytes that were written and not appended.
        self._has_tail = False
        #: Bytes from here on were cut back.  Until something behind this
        #: position is durable, a power cut can bring parts of them back.
        self._cut_back_to = -1
        self.replica = replica
        self.pack_hooks = None if replica is None else replica.pack_hooks
        try:
            opening.refuse_past_a_log(file_name, replica, read_only)
            opening.prepare(file_name, create, read_only, self.blob_dir)
            self._open(file_name, create, stop, opened)
            self._begin_service(index_checkpoint)
            if rate is not None and not read_only:
                self._scrub = Scrub(self, rate)
                self._scrub.start()
        except BaseException:
            self._release()
            raise

    # Opening and closing

    def _open(self, file_name: str, create: bool, stop: bytes | None,
              opened: opening.Opened | None) -> None:
        """Take the lock, and read the file."""
        read_only = self._is_read_only
        if not read_only:
            self._lock_file = (
                opened.lock_file if opened is not None
                else opening.lock_name(file_name))
        BaseStorage.__init__(self, file_name)
        self._file_name = os.path.abspath(file_name)
        self._home = os.path.dirname(self._file_name)
        self._file, found = opened[1:3] if opened is not None else (
            opening.open_and_read(
                file_name, create, read_only, stop,
                self._checksums or self.durability.policy.promises))
        self._positions, self._pos = Positions(found.index), found.end
        self._oid = opening.given_before(found, opened)
        self._last_given = found.tid
        self._index_position = found.known_to
        opening.warn_of_the_future(file_name, found.tid)
        if directory := self.blob_dir:
            self.fshelper = opening.blob_helper(directory, create, read_only)
            alsoProvides(self, interfaces.IBlobStorageRestoreable)
        else:
            self._blob_init_no_blobs()

    def _begin_service(self, index_checkpoint: int) -> None:
        """The file is read: make it durable, then serve."""
        opened = View(
            self._file, self._positions, self._pos, self._last_given)
        self._sequencer = self._new_sequencer(opened)
        self._turns = Turns(self._sequencer.stop_after_interrupt)
        self._show(opened)
        self._unsynced = Mark(self._file_name, opened.tid)
        self.may_have_lost = self._unsynced.found
        if self._is_read_only:
            return
        self._reserve = Reserve(self._file, lambda: self._pos)
        self._file.sync()
        if self.replica is not None:
            self.replica.begin(self._file_name, self._pos, self._bytes)
        leftovers.remove(self)
        datafile.disk.sync_directory(self._home)
        if self.blob_dir:
            #: Blobs that are not durable, of acknowledged transactions (under
            #: `none`): they are synced before the next sync of the data.
            self._unsynced_blobs = blobs.Placed(
                self.fshelper, self._durable_directories, removable=True)
            if self._unsynced.found:  # the data was synced just now
                opening.sync_unsynced_blobs(
                    self._unsynced_blobs, self._view, self._index_position)
        if not self.durability.policy.promises:
            self._unsynced.make()
        self._checkpoints = Checkpoints(self, index_checkpoint)
        self._sequencer.flusher.start()
        if self._index_position == FIRST:
            self._checkpoints.write_or_warn()
        self._checkpoints.start(self._index_position)
        forks.in_child(self)

    def _new_sequencer(self, start: View) -> Sequencer:
        return Sequencer(
            self._file_name, start, self.durability,
            self._sync_batch, self._show, self._end_dropped)

    def close(self) -> None:
        """Settle all commits, sync, save the index, release everything."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self.metrics is not None:
            self.metrics.hide()
        try:
            self.about_to_close()
            self._close()
        finally:
            if self.metrics is not None:
                self.metrics.close()  # last: its thread may take a while

    def _close(self) -> None:
        self.packs.wake()
        self._turns.end()
        with self._writing:
            pass  # now none is being written; a later one finds it closed
        try:
            if self._scrub is not None:
                self._scrub.end()
            if not self._is_read_only:
                self._sequencer.owned_by(None)
                self._sequencer.offer()
                self._sequencer.drain()
                self._sequencer.sync_to(self._pos)
                if self.replica is not None:
                    self.replica.close()  # another node may lead from here on
                self._unsynced.remove(self._sequencer.appended.tid)
                self._checkpoints.write_or_warn()
                # Only if no thread writes; else the next opening does it.
                if self._commit_lock.acquire(blocking=False):
                    try:
                        self._reserve.give_back()
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
        if self._checkpoints is not None:
            self._checkpoints.close()
        if self._sequencer is not None:
            self._sequencer.flusher.close()
        for under_way in list(self._begun.values()):
            under_way.close()
        if self._file is not None:
            self._file.unlock()
        for resource in self._file, self._lock_file:
            if resource is not None:
                resource.close()

    def forked(self) -> None:
        """Called in the child of a fork: everything belongs to the parent.

        Threads of the parent that do not exist in the child may have held the
        locks: so each lock is made anew.  Descriptors are closed, and nothing
        is written, unlocked or removed.
        """
        self._closed = True
        self._closed_because = (
            'was opened by another process, before a fork: open it in this'
            ' one, after the other has closed it')
        self._lock = threading.RLock()
        self._making_map = threading.Lock()
        self._place = Place()
        self._commit_lock = threading.Lock()
        self._writing = threading.RLock()
        self._sequencer = self._new_sequencer(self._appended)
        # As in a storage that only reads.
        self._checkpoints = None  # type: ignore[assignment]
        self._scrub = self.replica = self._resolver = None
        for under_way in self._begun.values():
            under_way.abandon()
        self._begun = {}  # aborts would remove the parent's blobs
        self._map = None  # not retired: the parent goes on with it
        self._file.abandon(self._closed_because)
        opening.close_without_unlocking(self._lock_file)

    # Blobs that are read

    def loadBlob(self, oid: bytes, serial: bytes) -> str:
        if serial > self._view.tid and serial > self._current().tid:
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

    # What became of a commit

    def fence(self, id: bytes) -> None:
        """Let no transaction with this commit id be appended any more; wait
        until those that were are published, or have failed.

        Whoever calls this must not begin one with the id again.  An event loop
        that publishes must leave the call to another thread.
        """
        outcome.fence(self, id)

    def outcome(self, id: bytes, since: bytes,
                most: int | None = None) -> outcome.Outcome:
        """Fence the commit id, and say what became of its transaction.

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

    packer = staticmethod(packing.copy_what_is_needed)

    def nobody_has_the_place(self) -> contextlib.AbstractContextManager[None]:
        """For a pack; the wait for that ends if the pack must end.

        A transaction keeps its place for as long as its client likes."""
        watch = self.pack_watch
        return self._place.closed_off(self._refuse_when_stopped
                                      if watch is None else watch.go_on)

    def hold_still(self) -> None:
        """Hold the append lock until `move_on`, with nothing on its way to the
        disk (for a pack).

        A transaction that is voted then has no place in the file yet."""
        with contextlib.ExitStack() as held:
            held.enter_context(self.nobody_has_the_place())
            held.enter_context(self._commit_lock)
            self._sequencer.drain()
            self._still = held.pop_all()

    def move_on(self) -> None:
        """Free the append lock, if `hold_still` has taken it."""
        if self._still is not None:
            self._still.close()
            self._still = None

    @contextlib.contextmanager
    def votes_held_back(self, seconds: float) -> Iterator[bool]:
        """A context in which no transaction is voted and not appended, so that
        another node can take over.

        New votes wait, and do not fail; voted transactions go on to their
        ends.  It gives False if that takes longer: then all goes on."""
        me = object()
        try:
            is_still = (self._turns.ask_alone(me)
                        or self._turns.wait(me, seconds))
            if not is_still:
                self._turns.let_go(me)
            yield is_still
        finally:
            self._turns.let_go(me)

    def replace_file(self, file: datafile.DataFile, index: fsIndex,
                     end: int) -> None:
        """Serve from another file with the same current state, and make its
        name durable.

        The append lock is held, and everything is settled and synced.
        Readers that are under way go on with the old file, which is closed
        after the last of them.
        """
        if self._scrub is not None:
            # First: no process may read the old file up to the end of the new
            # one.  (`reopened` waits for the end of the swap.)
            self._scrub.begin_anew()
        self._reserve.give_back()
        with self._lock:
            # Before anything is appended to the new file.
            old_map = self.replace_map(None)
            old, self._file = self._file, file
            self._positions = Positions(index)
            self._pos = end
            self._cut_back_to = -1  # it was a position in the old file
            view = View(file, self._positions, end, self._view.tid)
            self._sequencer.rebase(view)
            self._show(view)
        del old_map  # only now: to free its memory takes a while
        old.unlock()
        self._reserve.move(file)
        blobs.sync_directory(self._home)

    def reopened(self) -> datafile.DataFile:
        """The data file, opened once more, for reading only: for a reader that
        changes settings of its open file."""
        with swap.nobody_else_has_the_file(self):
            file = datafile.open_existing(self._file_name, read_only=True)
            if os.path.samestat(os.fstat(file.fileno()),
                                os.fstat(self._file.fileno())):
                return file
            file.close()
            raise FileStorageError(
                f'{self._file_name} is another file than the one that this'
                ' storage has open; nothing was changed')

    def object_map(self) -> objectmap.ObjectMap:
        """The map by which other processes read the file themselves; it is
        built if there is none.  Raises objectmap.NoMap."""
        with self._making_map:
            current = self._map
            if current is None or current.is_retired:
                current = objectmap.build(self)
            return current

    # What its base classes lack

    def __len__(self) -> int:
        return len(self._positions)

    def supportsUndo(self) -> bool:
        return True

    def copyTransactionsFrom(self, other: Any) -> None:
        base = BlobStorageMixin if self.blob_dir else BaseStorage
        base.copyTransactionsFrom(self, other)
