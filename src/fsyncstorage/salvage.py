"""What can be saved of a Data.fs: a new index, or a copy of all that is sound.

Both go by what a `Verification` found.

A copy has every sound transaction, with its tid, status, user, description and
extension.  Each record has its data in it: where the damaged file has a back
pointer, the copy has what it led to.  What cannot be copied is left out and
listed.  Memory does not grow with the file.

Blob files are not copied: they belong to oids and tids, which stay.
"""

import os
import re
import typing

from ZODB.Connection import TransactionMetaData
from ZODB.utils import z64

from . import datafile
from . import index
from . import scan
from .source import Source
from .storage import FsyncStorage

# What is left out is listed up to this number, and counted.
MOST_LISTED = 10_000

# From the oid in the header of a record to the position of its transaction.
_OID_TO_POSITION = 24


def write_index(verification, file, path):
    """Put an index of the data in `file` in the place of the one at `path`."""
    temporary = path + '.index_tmp'
    file.sync()  # an index never knows more than the disk
    index.save_unchanging(
        temporary, verification.report.end, verification.index, file)
    datafile.disk.replace(temporary, path)
    datafile.disk.sync_directory(os.path.dirname(os.path.abspath(path)))


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


def salvage(verification, path, tell=lambda *_: None):
    """Copy what is sound into a new file at `path`: a `Salvaged`.

    If that fails, there is no such file.
    """
    storage = FsyncStorage(path, durability='none')
    try:
        copy = _Copy(verification, storage)
        copy.run(tell)
        storage.close()
    except BaseException:
        storage.close()
        for suffix in '', '.index', '.lock':
            datafile.remove_if_there(path + suffix)
        raise
    return copy.salvaged


class _Copy:

    def __init__(self, verification, storage):
        self.verification = verification
        self.source = Source(
            verification.source.pread, verification.report.end)
        self.storage = storage
        self.salvaged = Salvaged()
        self.tid = z64

    def run(self, tell):
        for found in scan.walk(self.source):
            tell('salvage', found.position)
            if not isinstance(found, scan.Damage):
                self.copy(found)
            elif found.position in self.verification.damaged:
                self.leave_out(found, self.oids_of(found), found.reason)
            else:
                # Only its header is wrong.
                self.copy(found.transaction)

    def leave_out(self, found, oids, reason):
        self.salvaged.transactions_left_out += 1
        self.salvaged.leave_out(found.position, found.tid, oids, reason)

    def copy(self, transaction):
        if transaction.status == b'u':
            return  # undone: no storage shows it
        if transaction.tid <= self.tid:
            self.leave_out(
                transaction, [record.oid for record in transaction.records],
                'its tid is not later than that of the one before')
            return
        self.tid = transaction.tid
        metadata = TransactionMetaData(
            transaction.user, transaction.description, transaction.extension)
        status = 'p' if transaction.status == b'p' else ' '
        self.storage.tpc_begin(metadata, transaction.tid, status)
        try:
            for record in transaction.records:
                self.copy_record(record, transaction, metadata)
            self.storage.tpc_vote(metadata)
            self.storage.tpc_finish(metadata)
        except BaseException:
            self.storage.tpc_abort(metadata)
            raise
        self.salvaged.transactions += 1

    def copy_record(self, record, transaction, metadata):
        try:
            holder = self.verification.holder(record)
        except (LookupError, ValueError) as reason:
            self.salvaged.records_left_out += 1
            self.salvaged.leave_out(
                record.position, transaction.tid, [record.oid], str(reason))
            return
        data = holder and self.source.read(
            holder.position + scan.RECORD_HEADER, holder.length)
        self.storage.restore(
            record.oid, record.tid, data, '', None, metadata)
        self.salvaged.records += 1

    def oids_of(self, damage):
        """Of all that still looks like a record of that transaction."""
        begin = damage.position.to_bytes(8, 'big') + b'\0\0'
        oids = []
        for at, _ in scan.matches(
                self.source, re.compile(re.escape(begin)),
                damage.position + scan.HEADER + _OID_TO_POSITION):
            if at >= damage.end:
                break
            record = scan.record_at(self.source, at - _OID_TO_POSITION)
            if record.previous < damage.position and record.end < damage.end:
                oids.append(record.oid)
        return oids
