"""What is wrong with a Data.fs: the checks behind `fsync-check`.

`verify` reads the file twice: transaction by transaction, with their seals and
pointers; then the current record of each object, whose pickles are walked
without importing a class.  It can also compare blob files and an index with
the data.

It takes no lock and changes nothing.  The file may be written at the same
time: it is checked up to the size that it had at the beginning, and an
unfinished transaction at its end is not damage.

Damage, or not:

- *Damage* is data that was written and cannot be read any more, or that
  contradicts itself.
- A *warning* is something that a program should not have written.
- The *tail* is what a power cut leaves, or what is being written right now.
  If something behind it proves that it was on disk already, it is damage.

For any file, the time is proportional to its size, because the same bytes are
not read again and again.  Unpacking pickles has a budget (a record can be
compressed, and many records can point to the same data).  The ends of long
chains of back pointers are remembered.  The seals behind damage are searched
once.  Memory: an index, one record, and notes about records that are damaged,
or that have a blob or a back pointer.

Left to others: whether it is a Data.fs at all, and what is a tail (tails), the
results (findings), which objects were lost (lost), words and exit codes
(commandline), the references (references) and wrappers (wrapped) of pickles,
repairs (salvage).
"""

import bisect
import contextlib
import itertools
import operator
import os
import zlib
from collections import Counter

from BTrees.QQBTree import QQTreeSet
from ZODB.fsIndex import fsIndex
from ZODB.utils import z64

from ..format import scan
from ..format.classes import FRONT_OF_BLOB
from ..format.classes import is_of_blob
from ..format.references import TooMuch
from ..format.references import references
from ..format.window import Window
from . import findings
from .blobfiles import ORPHAN
from .blobfiles import BlobFiles
from .lost import Lost
from .tails import Tails
from .wrapped import MOST_VALUES
from .wrapped import Budget
from .wrapped import unwrap

# Most characters of an error message, which may quote the whole pickle.
LONGEST_REASON = 200


class Ranges:
    """Parts of the file, added in rising order."""

    def __init__(self):
        self._ranges = []

    def add(self, start, end):
        self._ranges.append((start, end))

    def __contains__(self, position):
        at = bisect.bisect(self._ranges, position, key=operator.itemgetter(0))
        return at > 0 and position < self._ranges[at - 1][1]

    def __bool__(self):
        return bool(self._ranges)


def verify(window, blob_files=None, stored=None, tell=lambda *_: None):
    """The `Verification` of a file: its report, its index, what is damaged.

    `blob_files` is a FilesystemHelper, `stored` an index with `position` and
    `index`; `tell(stage, position)` is called often.
    """
    verification = Verification(window, blob_files, stored, tell)
    verification.read_transactions()
    verification.walk_pickles()
    verification.find_orphans()
    return verification


class Verification:

    def __init__(self, window, blob_files, stored, tell):
        self.window = window
        self.report = findings.Report(window.end)
        self.index = fsIndex()
        self.damaged = Ranges()
        self.lost = Lost()
        self.without_data = set()
        self.tails = Tails(window)
        self.budget = Budget(window.end)
        self.chains = scan.Chains(window, self.damaged)
        self.shared = set()             # positions of data pointed to
        self.blob_files = blob_files
        self.blobs = set()              # oid and tid of blob records
        self.blob_data = set()          # positions of those with data
        if blob_files is not None:
            self.report.blobs = Counter()
        self.stored = stored
        self.tell = tell

    # Transactions

    def read_transactions(self):
        for found in self.tails.walk():
            self.compare_index(found.position)
            self.tell('transactions', found.position)
            if isinstance(found, scan.Damage):
                self.note_damage(found)
            else:
                self.report.seals[found.seal] += 1
                self.note_transaction(found)
            self.report.end = found.end
        if self.tails.tail:
            self.note_tail(self.tails.tail)
        self.compare_index(self.report.end)
        self.refuse_other_index()
        self.report.objects = len(self.index)
        self.report.objects_without_data = len(self.without_data)

    def note_tail(self, damage):
        length = self.window.end - damage.position
        reason = damage.reason
        if self.tails.is_without_header(damage):
            written = any(map(any, self.window.pieces(
                damage.position, self.window.end)))
            reason = ('its header is not written' if written
                      else f'{length} zero bytes')
        self.report.tail = findings.Tail(
            damage.position, length, damage.tid, reason)

    def note_damage(self, damage):
        reason = damage.reason
        if damage.position < scan.FIRST:
            self.report.add(findings.MAGIC, reason, damage.position)
            return
        if damage.kind == scan.UNFINISHED:
            reason += ', and finished ones are behind it'
        if damage.end == self.window.end and damage.transaction is None:
            reason += (
                '; behind it, up to the end of the file, no transaction can be'
                ' read. After a crash, this may be its torn tail')
        self.report.add(
            findings.TRANSACTION, reason, damage.position, damage.tid)
        whole = damage.sound_records
        if whole is None:
            self.damaged.add(damage.position, damage.end)
            self.lost.note_damage(self.window, damage)
        else:
            self.note_transaction(whole)

    def note_transaction(self, transaction):
        report, get = self.report, self.index.get
        report.transactions += 1
        report.records += len(transaction.records)
        report.last_tid = transaction.tid
        if report.first_tid is None:
            report.first_tid = transaction.tid
        positions = {}
        for record in transaction.records:
            oid, tid, previous, position, length, _ = record
            if previous != get(oid, 0):
                self.note_previous(transaction, record)
            if tid != transaction.tid:
                self.report.add(
                    findings.ODD,
                    'a record has the tid of another transaction'
                    f' ({tid.hex()})', position, transaction.tid, oid)
            if self.without_data:
                self.without_data.discard(oid)
            if not length:
                self.follow_back(transaction, record)
            if self.blob_files is not None:
                self.check_blob(record)
            positions[oid] = position
        self.index.update(positions)

    # Pointers

    def note_previous(self, transaction, record):
        """The previous pointer does not lead to the previous record."""
        if record.previous in self.damaged:
            kind, reason = findings.LOST, (
                f'its previous revision, at {record.previous}, is in a damaged'
                ' transaction')
        elif record.previous:
            kind, reason = findings.POINTER, (
                f'its previous pointer leads to {record.previous}, and the'
                f' previous record is at {self.index.get(record.oid, 0)}')
        elif transaction.status == b'p':
            return  # a pack keeps revisions that back pointers need
        else:
            kind = findings.ODD
            reason = 'it does not point to its previous record'
        self.report.add(
            kind, reason, record.position, transaction.tid, record.oid)

    def follow_back(self, transaction, record):
        try:
            holder = self.holder(record)
        except scan.Damage as damage:
            self.report.add(
                findings.LOST if damage.kind == scan.LOST
                else findings.POINTER,
                damage.reason, record.position, transaction.tid, record.oid)
        else:
            if holder is None:
                self.without_data.add(record.oid)
            else:
                self.shared.add(holder.position)

    def holder(self, record):
        """The record that has the data of this one, or None.

        scan.Damage if the data are lost, or if a pointer is wrong.
        """
        source = self.chains.source(record)
        return source if source.length else None

    # Pickles

    def walk_pickles(self):
        # In the order of the file, so that a disk is read in one direction.
        # (In a set of Python numbers, each would take 60 bytes, and not 12.)
        for position in QQTreeSet(self.index.itervalues()):
            self.tell('objects', position)
            record = scan.record_at(self.window, position)
            try:
                holder = self.holder(record)
            except scan.Damage:     # noted with its transaction
                self.lost.note_unreadable(record.oid)
                continue
            if holder is not None:
                self.walk_pickle(record, holder)

    def walk_pickle(self, record, holder):
        try:
            self.budget.spend(holder.length)
            data = self.window.read(
                holder.position + scan.RECORD_HEADER, holder.length)
            if data[:1] == b'.' != data:
                self.report.wrapped[data[:2].decode('latin-1')] += 1
            pickles = unwrap(data, self.budget)
            if pickles is None:
                self.report.opaque += 1
                return
            oids = references(pickles, MOST_VALUES)
        except TooMuch as reason:
            self.report.add(
                findings.UNREAD, f'its pickle was not walked: {reason}',
                record.position, record.tid, record.oid)
            return
        except (ValueError, zlib.error) as error:
            said = f'{error}'[:LONGEST_REASON]
            self.lost.note_unreadable(record.oid)
            self.report.add(
                findings.PICKLE, f'its pickle cannot be read ({said})',
                record.position, record.tid, record.oid)
            return
        self.report.pickles_walked += 1
        for oid in oids:
            if oid not in self.index or oid in self.without_data:
                self.report.add(
                    findings.DANGLING,
                    f'it refers to an object that is not there: {oid.hex()}',
                    record.position, record.tid, record.oid)

    # Blobs

    def check_blob(self, record):
        if self.has_blob(record):
            self.blobs.add(record.oid + record.tid)
            self.report.blobs['records'] += 1
            path = self.blob_files.getBlobFilename(record.oid, record.tid)
            if not os.path.exists(path):
                self.report.add(
                    findings.BLOB, f'its blob file is missing: {path}',
                    record.position, record.tid, record.oid)

    def has_blob(self, record):
        """Is it the record of a blob?

        False if its pickles cannot be read: `walk_pickle` notes that for a
        current record.
        """
        if not record.length:  # its back pointer was followed before
            with contextlib.suppress(scan.Damage):
                holder = self.holder(record)
                return holder and holder.position in self.blob_data
            return False
        if is_of_blob(self.window.read(
                record.position + scan.RECORD_HEADER,
                min(record.length, FRONT_OF_BLOB))):
            self.blob_data.add(record.position)
            return True
        return False

    def find_orphans(self):
        """Find blob files without a record."""
        if self.blob_files is None:
            return
        if self.damaged:
            self.report.no_orphans = 'the data is damaged'
            return
        found = BlobFiles(self.blob_files, self)
        found.read()
        report = self.report
        report.blobs['files'] = found.of_records
        if found.later_count:
            report.blobs['later'] = found.later_count
        report.no_orphans = self.why_no_orphans(found)
        if report.no_orphans is None:
            for oid, tid, _, path in found.orphans:
                report.add(
                    findings.ORPHAN, f'a blob file without a record: {path}',
                    tid=tid, oid=oid)
            report.add_unlisted(
                findings.ORPHAN, found.files[ORPHAN] - len(found.orphans))
        for path, reason in found.unread:
            report.add(findings.UNREAD,
                       f'its blob files were not looked at: {path} ({reason})')
        report.add_unlisted(
            findings.UNREAD, found.unread_count - len(found.unread))

    @staticmethod
    def why_no_orphans(found):
        """Why no file is called an orphan, or None."""
        if found.is_packed:
            return 'a pack is under way, or was killed, and removes some'
        if found.files[ORPHAN] and not found.some_belong:
            return ('none belongs to a record: is this the blob directory of'
                    ' another database?')
        return None

    # What is known of the records, for `BlobFiles`

    since = z64     # all files count

    @property
    def newest_tid(self):
        return self.report.last_tid or z64

    def has_file(self, oid, tid):
        """Is a record known to have this file?

        None: the object has records, and one of them may have the file.
        """
        if oid + tid in self.blobs:
            return True
        return None if oid in self.index else False

    def is_now(self, oid, tid, newest):
        return True     # the report makes no difference

    def tell_of_blobs(self, done):
        """There should be as many files as records."""
        self.tell('blobs', self.window.end * done // max(
            len(self.blobs), done, 1))

    def transactions_again(self):
        """Yield all transactions whose records were noted.

        scan.Damage if they have changed.
        """
        again = Window(self.window.pread, self.report.end)
        for found in scan.walk(again):
            if isinstance(found, scan.Damage):
                if found.sound_records is None:
                    raise found
                found = found.sound_records
            yield found

    # The index

    def compare_index(self, position):
        """If the stored index ends here, compare it with ours."""
        if (self.stored is None or self.report.index is not None
                or self.stored.position != position):
            return
        if self.damaged:
            self.report.index = 'not compared: the data is damaged'
            return
        ours, theirs = self.index, self.stored.index
        first, count = None, 0
        for oid in itertools.chain(
                (oid for oid, at in theirs.iteritems() if ours.get(oid) != at),
                (oid for oid in ours if oid not in theirs)):
            first = first or oid
            count += 1
        if count:
            self.wrong_index(
                f'{count:,} entries are not as in the data', first)
        else:
            self.report.index = (
                f'{len(theirs):,} entries as in the data before {position}')

    def refuse_other_index(self):
        if self.stored is not None and self.report.index is None:
            self.wrong_index(
                f'it ends at {self.stored.position}, where no transaction'
                ' ends')

    def wrong_index(self, reason, oid=None):
        self.report.index = reason
        self.report.add(
            findings.INDEX, f'the index does not belong to the data: {reason}',
            self.stored.position, oid=oid)
