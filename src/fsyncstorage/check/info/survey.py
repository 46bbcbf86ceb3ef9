"""Reads a Data.fs, and adds up what takes the space.

It reads all transactions, with the walk and the seals of `fsync-check`, and
the beginning of each record, which has its class.

A survey takes no lock and changes nothing.  The file may be written at the
same time: it is read up to the size that it had at the beginning, and what is
unfinished there is left out.  The survey stops at damage, and what is before
the damage counts.  `Changed` is raised if something is different when it is
read again: no program that writes a Data.fs does that.

With `since`, what was written earlier is read, but does not count: no
transaction, no record, and no object whose current revision is older.

The size of a record is that of its data in the file.  A record that an undo
made has no data of its own, but points back to others: the record counts with
its header, and its object with the data that the record points to.

Memory: see `Objects`; the records of one transaction, 300 bytes each; and, for
objects that have a blob, the tids of their records, about 300 bytes each.
"""

import bisect
from array import array

from BTrees.QQBTree import QQBTree
from ZODB.utils import z64

from ...format import scan
from ...format.classes import Classes
from ...format.window import Window
from ..tails import Tails


class Objects:
    """What is known of each object: arrays, indexed by its number.

    Objects are numbered in the order in which they first appear in the file.
    A B-tree leads from oids to numbers, so oids may be anywhere in 64 bits.
    An object takes 21 bytes in the arrays, and about 30 in the tree.  With the
    spare room of arrays that grow, this is 60 bytes: 10 million objects take
    600 MB.
    """

    def __init__(self):
        self._numbers = QQBTree()
        self._get = self._numbers.get
        #: Where the data of the current revision are; 0 if there are none.
        self.positions = array('Q')
        #: Bytes of these data; 0 if they are older than `since` (survey).
        self.sizes = array('Q')
        #: The number of their class.
        self.classes = array('I')
        #: 1 if one of their revisions counts.
        self.is_counted = bytearray()

    def number(self, oid):
        """The number of an object; None if there is no such object."""
        return self._get(int.from_bytes(oid, 'big'))

    def numbered(self, oid):
        """The number of an object, which gets one if it is new."""
        key = int.from_bytes(oid, 'big')
        number = self._get(key)
        if number is None:
            number = self._numbers[key] = len(self.positions)
            self.positions.append(0)
            self.sizes.append(0)
            self.classes.append(0)
            self.is_counted.append(0)
        return number


class Changed(Exception):
    """The file has other bytes than at the first reading."""


class Survey:
    """What was found, after `read_transactions`."""

    def __init__(self, window, since=z64, with_blobs=False,
                 tell=lambda *_: None):
        self.window = window
        self.since = since
        self.tell = tell
        self.end = scan.FIRST       # of what was read
        self.damage = None          # the Damage at which the survey stopped
        self.objects = Objects()
        self.classes = Classes()
        self.first_tid = self.last_tid = None   # of those that count
        self.newest_tid = z64                   # of all
        self.transactions = self.records = self.records_without_data = 0
        self.transaction_bytes = 0      # with all that is in them
        #: Records that certainly have a blob: their tids, rising, by the
        #: number of the object; and how many such records there are.
        self.blobs = {}
        self.blob_records = 0
        self._kind_of_blobs = self.classes.blob if with_blobs else None
        self._chains = scan.Chains(window)

    def read_transactions(self):
        """Read all transactions up to the tail, or up to damage."""
        for found in Tails(self.window).walk():
            self.tell('transactions', found.position)
            if isinstance(found, scan.Damage):
                self.damage = found
                return
            self._note(found)
            self.end = found.end

    def _note(self, transaction):
        """Note the records of a transaction.

        Avoids all calls that it can: a survey spends half of its time here.
        """
        self.newest_tid = transaction.tid
        counts = transaction.tid >= self.since
        if counts:
            self._count(transaction)
        objects, classes = self.objects, self.classes
        numbered, class_of = objects.numbered, classes.of_record
        positions, sizes, kinds = (
            objects.positions, objects.sizes, objects.classes)
        is_counted = objects.is_counted
        for record in transaction.records:
            oid, _, _, position, length, _ = record
            number = numbered(oid)
            if length:
                kinds[number] = kind = class_of(
                    self.window, position, length)
                positions[number] = position
                sizes[number] = length if counts else 0
            else:
                self._note_without_data(number, record, counts)
                kind = kinds[number]
            if counts:
                classes.records[kind] += 1
                classes.bytes[kind] += length
                is_counted[number] = True
                if kind == self._kind_of_blobs and positions[number]:
                    self._note_blob(number, transaction.tid)

    def _note_without_data(self, number, record, counts):
        """Note a record that points to data, as an undo does, or that deletes
        its object."""
        if counts:
            self.records_without_data += 1
        objects = self.objects
        try:
            holder = self._chains.source(record)
        except scan.Damage:     # a wrong pointer
            holder = record
        if not holder.length:
            objects.positions[number] = objects.sizes[number] = 0
            return
        objects.positions[number] = holder.position
        objects.sizes[number] = (
            holder.length if holder.tid >= self.since else 0)
        objects.classes[number] = self.classes.of_record(
            self.window, holder.position, holder.length)

    def _count(self, transaction):
        if self.first_tid is None:
            self.first_tid = transaction.tid
        self.last_tid = transaction.tid
        self.transactions += 1
        self.records += len(transaction.records)
        self.transaction_bytes += transaction.end - transaction.position

    def _note_blob(self, number, tid):
        tids = self.blobs.setdefault(number, [])
        if not tids or tids[-1] != tid:
            tids.append(tid)
            self.blob_records += 1

    # What is known of the records, for `BlobFiles`

    def has_file(self, oid, tid):
        """Is a record known to have this file?

        None: the object has records, and one of them may have the file.
        """
        number = self.objects.number(oid)
        tids = self.blobs.get(number, ())
        at = bisect.bisect_left(tids, tid)
        if at < len(tids) and tids[at] == tid:
            return True
        return False if number is None else None

    def is_now(self, oid, tid, newest):
        """Is this the file of the current revision?"""
        number = self.objects.number(oid)
        if newest is None:
            newest = self.blobs[number][-1]
        return tid == newest and self.objects.positions[number]

    def tell_of_blobs(self, done):
        """There should be as many files as records."""
        self.tell('blobs', self.window.end * done // max(
            self.blob_records, done, 1))

    def transactions_again(self):
        """Yield all transactions that were read."""
        again = Window(self.window.pread, self.end)
        try:
            for found in scan.transactions(again):
                self.tell('transactions', found.position)
                yield found
        except scan.Damage:
            raise Changed from None
