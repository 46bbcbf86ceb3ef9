"""Drives one storage, with a recorder and a ledger beside it.

Everything that a workload does goes through here, so that the log has its
marks and the ledger knows what is in each transaction.  Tids and data are the
same in each run.
"""

import base64
import contextlib
import os
import threading
from unittest import mock

from ZODB.blob import Blob
from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage.FileStorage import FileStorageQuotaError
from ZODB.POSException import POSKeyError
from ZODB.TimeStamp import TimeStamp
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

from fsyncstorage import AsyncFinish
from fsyncstorage import datafile
from fsyncstorage.commit import asking
from fsyncstorage.commit import sequencer
from fsyncstorage.errors import Occupied
from fsyncstorage.errors import OutcomeUnknown
from fsyncstorage.storage import outcome
from fsyncstorage.storage.journal import Journal

from ...support import PATIENCE
from ...support import Thread
from ...support import until
from . import events
from . import past_seam
from .contents import commit_id_of
from .contents import content_of
from .contents import record
from .contents import record_of
from .contents import references_of
from .ledger import UNDECIDED_PACK
from .ledger import Ledger
from .ledger import Pack
from .ledger import Standing
from .ledger import Transaction
from .recorder import Recorder
from .recorder import RecordingDisk

FIRST_TID = TimeStamp(2024, 1, 1).raw()
NEXT_TID = 1 << 20  # a bit more than 10 ms


def _nothing():
    pass


class Attempt:
    """A transaction that is under way."""

    def __init__(self, tid, metadata):
        self.metadata = metadata
        self.content = Transaction(tid, {}, {})

    @property
    def tid(self):
        return self.content.tid

    def stores(self, number):
        return p64(number) in self.content.records


class Site(contextlib.ExitStack):
    """A context: while it lasts, its storage is recorded."""

    #: Seconds of its clock from one transaction to the next.
    PACE = 0.3

    def __init__(self, directory, make, blobs=False, disk=RecordingDisk,
                 ledger=None, standing=None):
        """`make` is called with a path and options of FileStorage.

        The ledger and the standing are those of what the directory has
        already.
        """
        super().__init__()
        self.path = os.path.join(directory, 'Data.fs')
        self.storage = None
        self.recorder = Recorder(directory)
        self.clock = self.recorder.clock
        self.ledger = Ledger() if ledger is None else ledger.copy()
        self.standing = Standing()
        self.make = make
        self.disk = disk(self.recorder)
        self._options = (
            {'blob_dir': os.path.join(directory, 'blobs')} if blobs else {})
        self.last_tid = max(self.ledger.transactions, default=FIRST_TID)
        self._serials = {}
        self._tids = {}  # by the id of the metadata
        for event in standing.marks() if standing is not None else ():
            self.mark(event)
        self.clock.now = self.standing.now

    def mark(self, event):
        if not self.recorder.is_dead:
            self.recorder.mark(event)
            self.standing.after(event)

    def __enter__(self):
        super().__enter__()
        self.enter_context(mock.patch.object(datafile, 'disk', self.disk))
        self.enter_context(mock.patch.object(sequencer, 'time', self.clock))
        # The flusher has no clock of its own: see `time_passed`.
        self._until_background_sync = (
            sequencer.Sequencer._until_background_sync)
        self.enter_context(mock.patch.object(
            sequencer.Sequencer, '_until_background_sync',
            lambda sequencer: None))
        self.enter_context(past_seam.recorded(self.recorder))
        self.enter_context(self._attempts_get_their_tids())
        self.callback(self._release)
        return self

    @contextlib.contextmanager
    def _attempts_get_their_tids(self):
        """A storage gives the tid when it is about to write; here it is known
        from the begin, for the data have it in them."""
        new_tid = Journal.new_tid

        def known_tid(journal, under_way):
            under_way.given_tid = self._tids.pop(
                id(under_way.metadata), under_way.given_tid)
            return new_tid(journal, under_way)

        with mock.patch.object(Journal, 'new_tid', known_tid):
            yield

    def _release(self):
        if self.storage is not None:
            self.storage.close()

    # The storage as a whole

    def open(self, **options):
        failed, self.recorder.sync_error = self.recorder.sync_error, None
        self.storage = self.make(self.path, **self._options, **options)
        self._settle(failed)
        # A blob that was there when the power went is on the disk, but one of
        # a process that died may not be.
        self._kept(self.standing.acknowledged, with_blobs=False)

    def close(self):
        storage, self.storage = self.storage, None
        storage.close()
        if self.recorder.sync_error is None:
            self._kept(self.standing.acknowledged)

    def die(self):
        """As by `kill -9`: the files stay as they are, unsynced."""
        self.recorder.operations_left = 0
        self.recorder.look_around()
        storage, self.storage = self.storage, None
        if storage is not None:
            storage._release()

    def resurrect(self, **options):
        """Another process opens it: nothing that was acknowledged is gone."""
        self.recorder.operations_left = None
        acknowledged = set(self.standing.acknowledged)
        self.open(**options)
        lost = acknowledged - self.standing.acknowledged.keys()
        assert not lost, f'{lost} are gone, though only the process died'

    def time_passed(self, seconds=0.0):
        """The background sync begins when it is due.

        The thread that should begin it would wait for it in real time.
        """
        end = self.clock.now + seconds
        while True:
            due = self._seconds_until_background_sync()
            if due is None or self.clock.now + due > end:
                break
            self.clock.now += due
            self.mark(events.Passed(self.clock.now))
            self._sync_in_the_background()
        if seconds:
            self.clock.now = max(self.clock.now, end)
            self.mark(events.Passed(self.clock.now))

    def settle(self):
        """Return when nothing that was appended waits for a sync."""
        while self.storage._sequencer.pipeline.queue:
            self.storage._sequencer.drain()

    def _seconds_until_background_sync(self):
        """None: it is not due for now, or something is synced already."""
        of_storage = self.storage._sequencer
        if not of_storage._one_sync.locked():
            return self._until_background_sync(of_storage)

    def _sync_in_the_background(self):
        of_storage = self.storage._sequencer
        with of_storage.mutex:
            if of_storage._leader is not None:
                return
            of_storage._leader = threading.get_ident()
        of_storage._lead_a_batch()

    def _settle(self, failed):
        """What the storage shows when it is opened, is promised from now."""
        shown = [(transaction.tid, {record.oid: record.data
                                    for record in transaction})
                 for transaction in self.storage.iterator()]
        for history in self.standing.histories(self.ledger):
            kept = history.transactions[:len(shown)]
            if shown == [item[:2] for item in kept]:
                if history.state is UNDECIDED_PACK:
                    self.mark(events.PackDone(history.pack))
                self._settle_for(kept)
                self._settle_for_blobs(kept, failed)
                break

    def _settle_for(self, history):
        for number in self.standing.packs_begun[:]:
            if number not in self.standing.packs_done:
                self.mark(events.PackRevoked(number))
        self._serials = {oid: transaction.tid for transaction in history
                         for oid in transaction.records}
        last = history[-1].tid if history else FIRST_TID
        for tid in list(self.standing.finishing):
            if tid <= last:
                self.acknowledged(tid)
            else:
                self.mark(events.Revoked(tid))

    def _settle_for_blobs(self, history, failed):
        """What blobs there are that nobody promised (`none`), is seen now.

        After a sync that failed nobody knows what that is.
        """
        if self.storage.durability.policy.name != 'none':
            return
        keys = {(oid, transaction.tid): content
                for transaction in history
                if transaction.tid not in self.standing.kept_blobs
                for oid, content in transaction.blobs.items()}
        self.mark(events.BlobsGone(frozenset(
            key for key, content in keys.items()
            if failed or self._blob(*key) != content)))

    def _blob(self, oid, tid):
        try:
            with open(self.storage.loadBlob(oid, tid), 'rb') as file:
                return file.read()
        except POSKeyError:
            return None

    def pack(self, before_copying=_nothing, while_syncing=_nothing,
             after_swapping=_nothing):
        """Pack to the last transaction; the calls are made on the way."""
        pack = Pack(self.last_tid)
        number = len(self.ledger.packs)
        self.ledger.packs.append(pack)
        acknowledged = list(self.standing.acknowledged)
        calls = iter([before_copying])

        def references(data):
            for call in calls:
                call()
            return references_of(data)

        self.mark(events.PackBegun(number))
        try:
            with self._at_syncs((_of_packed_file, while_syncing),
                                (_after_swap, after_swapping)):
                self.storage.pack(
                    TimeStamp(pack.limit).timeTime() + 0.005, references)
        finally:  # it may have failed after it was done
            pack.kept = [
                self._as_packed(transaction)
                for transaction in self.storage.iterator(stop=pack.limit)]
        self._kept(acknowledged)
        self.mark(events.PackDone(number))

    def checkpoint(self, while_syncing=_nothing):
        """Write an index now."""
        acknowledged = list(self.standing.acknowledged)
        with self._at_syncs((_of_anything, while_syncing)):
            if self.storage.journal.checkpoints.write():
                self._kept(acknowledged)

    @contextlib.contextmanager
    def _at_syncs(self, *calls):
        """Make each call, once, when a file is synced for which its condition
        is true."""
        calls = list(calls)
        begun = len(self.recorder.log)
        others = self.recorder.on_sync

        def on_sync(file):
            others(file)
            since = self.recorder.log[begun:]
            for condition, call in calls[:]:
                if file is not None and condition(file, since):
                    calls.remove((condition, call))
                    call()

        self.recorder.on_sync = on_sync
        try:
            yield
        finally:
            self.recorder.on_sync = others

    def _as_packed(self, transaction):
        """What a pack kept of it."""
        before = self.ledger.transactions[transaction.tid]
        records = {record.oid: record.data for record in transaction}
        blobs = {oid: blob for oid, blob in before.blobs.items()
                 if oid in records}
        return Transaction(before.tid, records, blobs)

    # One transaction

    def next_tid(self):
        """Of a transaction that begins: a moment has passed."""
        self.clock.now += self.PACE
        self.last_tid = p64(u64(self.last_tid) + NEXT_TID)
        return self.last_tid

    def begin(self, tid=None, extension=b'', asks=None):
        """`asks`: the policy that the transaction asks for."""
        self.time_passed()  # first: others may commit meanwhile
        if asks is not None:
            extension = {asking.KEY: asks}
        attempt = Attempt(
            tid or self.next_tid(), TransactionMetaData(extension=extension))
        if asks is not None:
            self.ledger.asking.add(attempt.tid)
        if tid is None:
            self.give_tid(attempt.metadata, attempt.tid)
            self._name(attempt, can_be_sealed=len(extension) < 65400)
            self.storage.tpc_begin(attempt.metadata)
        else:
            self._tids.pop(id(attempt.metadata), None)  # of one that is gone
            # It has none, though one of this tid may have been aborted before.
            self.ledger.named.discard(attempt.tid)
            self.storage.tpc_begin(attempt.metadata, attempt.tid)
        return attempt

    def _begin_at_once(self):
        """Raises Occupied when another transaction is under way: that has its
        tid already."""
        if self.storage.tpc_transaction() is not None:
            raise Occupied
        attempt = Attempt(self.next_tid(), TransactionMetaData())
        self.give_tid(attempt.metadata, attempt.tid)
        self._name(attempt)
        self.storage.tpc_begin(attempt.metadata)
        return attempt

    def give_tid(self, metadata, tid):
        """The transaction gets that tid when it is written."""
        self._tids[id(metadata)] = tid

    def _name(self, attempt, can_be_sealed=True):
        """One can ask what became of it."""
        outcome.name(attempt.metadata, commit_id_of(attempt.tid))
        if can_be_sealed:
            self.ledger.named.add(attempt.tid)

    def store(self, attempt, number, size, references=()):
        """Store an object with so many bytes of data."""
        oid = p64(number)
        data = record_of(content_of(attempt.tid, oid, size), references)
        attempt.content.records[oid] = data
        self.storage.store(
            oid, self._serials.get(oid, z64), data, '', attempt.metadata)

    def store_blob(self, attempt, number, size):
        oid = p64(number)
        data = record(Blob, None)
        content = content_of(attempt.tid, oid, size)
        attempt.content.records[oid] = data
        attempt.content.blobs[oid] = content
        path = os.path.join(
            self.storage.temporaryDirectory(), f'{u64(attempt.tid)}-{number}')
        with datafile.open_new(path) as file:
            file.write(content)
        self.storage.storeBlob(oid, self._serials.get(oid, z64), data, path,
                               '', attempt.metadata)

    def undo(self, attempt, tid):
        self.storage.undo(base64.encodebytes(tid).rstrip(), attempt.metadata)
        for oid in self.ledger.transactions[tid].records:
            self._store_again(attempt, oid, self._before(oid, tid))

    def _before(self, oid, tid):
        """The last transaction before that tid that stored the object."""
        for other in reversed(self.standing.finishing):
            transaction = self.ledger.transactions[other]
            if other < tid and oid in transaction.records:
                return transaction

    def _store_again(self, attempt, oid, transaction):
        records, blobs = attempt.content.records, attempt.content.blobs
        records[oid] = transaction.records[oid] if transaction else None
        if (transaction and oid in transaction.blobs
                and (oid, transaction.tid) not in self.standing.gone_blobs):
            blobs[oid] = transaction.blobs[oid]

    def vote(self, attempt):
        """Others go on while it syncs its blobs."""
        others = self.recorder.on_sync

        def on_sync(file):
            others(file)
            self.time_passed()

        self.recorder.on_sync = on_sync
        try:
            self.storage.tpc_vote(attempt.metadata)
        finally:
            self.recorder.on_sync = others

    def abort(self, attempt):
        self.storage.tpc_abort(attempt.metadata)

    def finish(self, attempt):
        self.finishing(attempt.content)
        try:
            self.storage.tpc_finish(attempt.metadata, self.published)
        except OutcomeUnknown:
            raise  # it may be kept, or not
        except Exception:
            self.mark(events.Revoked(attempt.tid))
            raise
        self.acknowledged(attempt.tid)

    def commit_later(self, sizes, **of_begin):
        """Return when it is appended."""
        self._finish_later(self.voted(sizes, **of_begin))

    def _finish_later(self, attempt):
        self.finishing(attempt.content)

        def done(tid, error):
            if error is None:
                self.acknowledged(tid)

        self.storage.tpc_finish(
            attempt.metadata, AsyncFinish(done, self.published))

    def finishing(self, content):
        self.ledger.transactions[content.tid] = content
        self._serials.update(dict.fromkeys(content.records, content.tid))
        self.mark(events.Finishing(content.tid, self.clock.now))

    def published(self, tid):
        self.mark(events.Published(tid))
        if tid in self.ledger.asking:
            self._kept(
                each for each in self.standing.finishing if each <= tid)

    def _kept(self, tids, with_blobs=True):
        self.mark(events.Kept(frozenset(tids), with_blobs))

    def acknowledged(self, tid):
        self.mark(events.Acknowledged(tid, self.clock.now))

    # Whole transactions

    @contextlib.contextmanager
    def committing_at_syncs(self, sizes, most=200):
        """While this lasts, a commit of these is appended at the beginning of
        each sync, unless another transaction is under way.

        At most so many: each may need a sync, which begins another one.
        """
        others, left = self.recorder.on_sync, iter(range(most))

        def on_sync(file):
            others(file)
            if next(left, None) is None:
                return
            with contextlib.suppress(Occupied):
                attempt = self._begin_at_once()
                self._store_all(attempt, sizes)
                self._finish_later(attempt)

        self.recorder.on_sync = on_sync
        try:
            yield
        finally:
            self.recorder.on_sync = others

    def commit_if_it_fits(self, sizes, blobs=()):
        """Return its tid; None if it was refused, and aborted."""
        attempt = self.begin()
        try:
            for number in blobs:
                self.store_blob(attempt, number, sizes[number])
            self._store_all(attempt, {
                number: size for number, size in sizes.items()
                if number not in blobs})
        except (OSError, FileStorageQuotaError):
            self.abort(attempt)
            return None
        self.finish(attempt)
        return attempt.tid

    def commit(self, sizes, references=(), **of_begin):
        """Store objects, {number: size}; return the tid.

        Object 0 gets the references."""
        attempt = self.voted(sizes, references, **of_begin)
        self.finish(attempt)
        return attempt.tid

    def voted(self, sizes, references=(), **of_begin):
        attempt = self.begin(**of_begin)
        self._store_all(attempt, sizes, references)
        return attempt

    def _store_all(self, attempt, sizes, references=()):
        for number, size in sizes.items():
            self.store(attempt, number, size, () if number else references)
        self.vote(attempt)

    def commit_blobs(self, sizes, **of_begin):
        attempt = self.begin(**of_begin)
        for number, size in sizes.items():
            self.store_blob(attempt, number, size)
        self.vote(attempt)
        self.finish(attempt)
        return attempt.tid

    def commit_undo(self, tid):
        attempt = self.begin()
        self.undo(attempt, tid)
        self.vote(attempt)
        self.finish(attempt)
        return attempt.tid

    def commit_together(self, batch, held_up):
        """Commit these at once, each in a thread of its own.

        With `held_up`, the first sync ends only when all are appended.
        """
        all_appended = threading.Event()
        if held_up:
            self.recorder.on_sync = lambda file: all_appended.wait(PATIENCE)
        threads = []
        for sizes in batch:
            voted = threading.Event()
            threads.append(Thread(self._commit_and_tell, sizes, voted))
            voted.wait(PATIENCE)
            until(lambda tid=self.last_tid: (
                self.storage.stats()['last_appended'] >= tid), 'appended')
        all_appended.set()
        for thread in threads:
            thread.result()
        self.recorder.on_sync = lambda file: None

    def _commit_and_tell(self, sizes, voted):
        attempt = self.voted(sizes)
        voted.set()
        self.finish(attempt)


# What is synced?  (The number of the file, and the log since the beginning.)

def _of_anything(file, log):
    return True


def _of_packed_file(file, log):
    return any(isinstance(event, events.Created) and event.file == file
               and event.path == 'Data.fs.pack' for event in log)


def _after_swap(file, log):
    return any(isinstance(event, events.Renamed)
               and event.target == 'Data.fs' for event in log)
