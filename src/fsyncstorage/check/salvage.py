"""What can be saved of a Data.fs: a copy of all that is sound.

It uses the results of a `Verification`.

A copy has every sound transaction, with its tid, status, user, description and
extension.  A record that points back to the data of an earlier one does so in
the copy, too: otherwise a small malicious file could fill the disk.  What
cannot be copied is left out and listed.  Memory does not grow with the file,
except for records that others point back to.

The copy is always a new file.  It has its name from the beginning, and is
removed if it cannot be finished.

Blob files are not copied: they belong to oids and tids, which stay the same.
"""

import contextlib
import itertools
import os
import typing

from ZODB.Connection import TransactionMetaData
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

from .. import datafile
from ..format import scan
from ..format import seal
from ..format.window import Window
from ..storage import FsyncStorage
from .lost import records_in

# Most parts left out that are listed; all are counted.
MOST_LISTED = 10_000
# Most oids that are listed in all: a malicious file can seem to have one in
# every ten bytes.
MOST_OIDS = 1_000_000


class LeftOut(typing.NamedTuple):
    """A transaction that is not in the copy, or some of its records."""
    position: int
    tid: bytes | None
    oids: list
    reason: str


class Salvaged:

    def __init__(self):
        self.transactions = 0
        self.records = 0
        self.left_out = []
        self.transactions_left_out = 0
        self.records_left_out = 0       # of transactions that are in the copy

    def leave_out(self, position, tid, oids, reason):
        if len(self.left_out) < MOST_LISTED:
            self.left_out.append(LeftOut(position, tid, oids, reason))


# Files that a storage makes beside its data file.
_BESIDE = '', '.index', '.index.index_tmp', '.lock', '.unsynced'


class NotWritten(Exception):
    """The copy could not be written, and was removed."""


def salvage(verification, path, tell=lambda *_: None):
    """Copy what is sound into a new file at `path`; return a `Salvaged`.

    FileExistsError if the name is taken.  If the copy fails, it is removed.
    """
    new = [path + suffix for suffix in _BESIDE
           if not os.path.lexists(path + suffix)]
    # A file of another program is not overwritten, even if it is created now.
    os.close(os.open(
        path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    try:
        with contextlib.closing(_Target(path, durability='none')) as storage:
            copy = _Copy(verification, storage)
            copy.run(tell)
            storage.make_durable()
    except BaseException as error:
        for each in new:
            datafile.remove_if_there(each)
        if isinstance(error, OSError):
            raise NotWritten(
                f'{path}: {error.strerror or error}; no copy was made'
            ) from error
        raise
    return copy.salvaged


class _Target(FsyncStorage):
    """A storage whose `restore` takes the position of the data, as 8 bytes, as
    `prev_txn`.

    To search for this position would read all transactions in between, each
    time.
    """

    _refuses_last_oids = False  # the oids in the file were accepted once

    def position_of_same(self, position, oid, data):
        return u64(position)

    def positions_of(self, transaction):
        """Where the records of a transaction are, which was voted."""
        return {oid: record.position for oid, record
                in self._known(transaction, 'positions_of').last.items()}

    def make_durable(self):
        """Sync.  A close syncs, too, but does not report a failure."""
        self._sequencer.drain()
        self._sequencer.sync_to(self.journal.end)


class _Copy:

    def __init__(self, verification, storage):
        self.verification = verification
        self.window = Window(
            verification.window.pread, verification.report.end)
        self.storage = storage
        self.salvaged = Salvaged()
        self.tid = z64
        # Positions in the copy of data that other records point to.
        self.places = {}
        # The same of the transaction that is being copied, by oid.
        self.new_records = {}
        # How many bytes of data may still be copied for pointers whose target
        # is not in the copy.  Data of different records are different parts of
        # the file, so in a sound file they cannot be more than its size.
        self.room = verification.window.end
        self.oids_to_list = MOST_OIDS
        self.doubtful = None

    def run(self, tell):
        for found in scan.walk(self.window):
            tell('salvage', found.position)
            if not isinstance(found, scan.Damage):
                self.copy_in_order(found)
            elif found.sound_records is None:
                oids = (each.oid for each in records_in(self.window, found))
                self.leave_out(found, oids, found.reason)
            else:
                self.copy_in_order(found.sound_records)
        if self.doubtful:
            self.copy(self.doubtful)

    def copy_in_order(self, transaction):
        """Copy a transaction; if its tid is doubtful, wait for the next one.

        A wrong tid that is too late would keep out all later transactions.
        """
        doubtful, self.doubtful = self.doubtful, None
        if doubtful and self.tid < transaction.tid <= doubtful.tid:
            self.leave_out(
                doubtful, [record.oid for record in doubtful.records],
                'no record has its tid, which is later than the next one')
        elif doubtful:
            self.copy(doubtful)
        if self.is_doubtful(transaction):
            self.doubtful = transaction
        else:
            self.copy(transaction)

    @staticmethod
    def is_doubtful(transaction):
        """Does nothing in the transaction confirm its tid?"""
        return (transaction.seal != seal.SOUND and bool(transaction.records)
                and all(record.tid != transaction.tid
                        for record in transaction.records))

    def leave_out(self, found, oids, reason):
        self.salvaged.transactions_left_out += 1
        oids = list(itertools.islice(oids, self.oids_to_list))
        self.oids_to_list -= len(oids)
        self.salvaged.leave_out(found.position, found.tid, oids, reason)

    def copy(self, transaction):
        if transaction.status == b'u':
            return  # undone by an old release: no storage shows it
        if transaction.tid <= self.tid:
            self.leave_out(
                transaction, [record.oid for record in transaction.records],
                'its tid is not later than that of the one before')
            return
        self.tid = transaction.tid
        self.new_records = {}
        metadata = TransactionMetaData(
            transaction.user, transaction.description, transaction.extension)
        status = 'p' if transaction.status == b'p' else ' '
        self.storage.tpc_begin(metadata, transaction.tid, status)
        try:
            for record in transaction.records:
                self.copy_record(record, transaction, metadata)
            self.storage.tpc_vote(metadata)
            positions = self.storage.positions_of(metadata)
            self.storage.tpc_finish(metadata)
        except BaseException:
            self.storage.tpc_abort(metadata)
            raise
        # Only now: a record must not point back into its own transaction.
        self.places.update((position, positions[oid])
                           for oid, position in self.new_records.items())
        self.salvaged.transactions += 1

    def copy_record(self, record, transaction, metadata):
        try:
            holder = self.verification.holder(record)
            place = holder and self.places.get(holder.position)
            data = None if place else self.data(record, holder)
        except scan.Damage as damage:
            self.salvaged.records_left_out += 1
            self.salvaged.leave_out(
                record.position, transaction.tid, [record.oid], damage.reason)
            return
        self.new_records.pop(record.oid, None)
        self.storage.restore(
            record.oid, record.tid, data, '', place and p64(place), metadata)
        self.salvaged.records += 1
        if data and holder.position in self.verification.shared:
            self.new_records[record.oid] = holder.position

    def data(self, record, holder):
        """The data; Damage if there are more than can have been written.
        """
        if holder is None:
            return None
        if holder is not record:
            self.room -= holder.length
            if self.room < 0:
                raise scan.Damage(
                    record.position, record.tid, scan.DAMAGED,
                    'its back pointer leads to the data of others')
        return self.window.read(
            holder.position + scan.RECORD_HEADER, holder.length)
