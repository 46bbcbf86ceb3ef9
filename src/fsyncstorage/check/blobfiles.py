"""Looks through a blob directory: which record does each file belong to?

A file without a record is an orphan: a crash can leave one.  But a file is not
an orphan

- if its transaction is later than all that were read: it is being written;
- if any record has its oid and its tid, even if this record is not known to be
  of a blob.  Behind a wrapper that encrypts, no class can be read, and random
  bytes can look like a class.  If an object has records, but none of them is
  known to have the file, the transactions are read once more to find out;
- if a pack is about to remove it.  The packed file gets its name before the
  blobs are removed, and they are listed in the directory until then.

If no file belongs to any record, the directory is probably that of another
database, and none of its files is called an orphan.

Only the contents of the directory itself are looked at.  Symbolic links to
other directories are not followed, but listed as not read.

Left to others: the records (verify, info.survey), and what is reported.
"""

import os
from collections import Counter

from ZODB.blob import LAYOUT_MARKER

# Most orphans that are listed, and most things that were not read; the others
# are only counted.
MOST_LISTED = 1000
#: A file in the blob directory, from the beginning of a pack until the pack
#: has removed the blobs that this file lists.
PACK_LIST = '.removed'
#: Kinds of files: blobs of current revisions, of older revisions, of none; and
#: files that are no blob, or belong to no transaction that was read.
NOW, OLD, ORPHAN, OTHER = KINDS = 'now', 'old', 'orphans', 'others'


class BlobFiles:
    """`read` looks through a directory, once; `helper` is of ZODB.

    `records` is what was read before, a `Verification` or a `Survey`.
    """

    def __init__(self, helper, records):
        #: Of each kind.
        self.files = Counter()
        self.bytes = Counter()
        #: Records that certainly have a blob, and have a file.
        self.with_file = 0
        self.orphans = []               # oid, tid, bytes, path
        self.later_count = 0            # of transactions that were not read
        self.unread = []                # path, reason
        self.unread_count = 0
        self.is_packed = False
        self._helper = helper
        self._records = records
        # oid and tid -> bytes, of files whose record must still be found.
        self._unclear = {}

    @property
    def some_belong(self):
        """Does any file belong to a record?"""
        return bool(self.files[NOW] or self.files[OLD])

    @property
    def orphans_are_known(self):
        return self.some_belong and not self.is_packed

    @property
    def of_records(self):
        """How many files belong to transactions that were read."""
        return self.files.total() - self.files[OTHER]

    # The search

    def read(self):
        base = self._helper.base_dir
        self.is_packed = os.path.lexists(os.path.join(base, PACK_LIST))
        for path, directories, names in os.walk(
                base, onerror=self._note_unread_directory):
            self._records.tell_of_blobs(self.files.total())
            directories.sort()
            for name in directories:
                if os.path.islink(os.path.join(path, name)):
                    self._note_unread(
                        os.path.join(path, name), 'it is a symbolic link')
            for name in sorted(names):
                if path != base or name not in (LAYOUT_MARKER, PACK_LIST):
                    self._note_file(os.path.join(path, name))
        if self._unclear:
            self._ask_the_records()

    def _note_file(self, path):
        try:
            size = os.stat(path).st_size
        except FileNotFoundError:
            return  # just removed
        except OSError as error:
            self._note_unread(path, error.strerror)
            return
        oid, tid = self._key(path)
        if tid is None or tid > self._records.newest_tid:
            self.later_count += tid is not None
            self._add(OTHER, size)
            return
        if tid < self._records.since:
            return
        match self._records.has_file(oid, tid):
            case True:
                self.with_file += 1
                self._add_of_record(oid, tid, size)
            case None:
                self._unclear[oid + tid] = size
            case False:
                self._add_orphan(oid, tid, size)

    def _add(self, kind, size):
        self.files[kind] += 1
        self.bytes[kind] += size

    def _add_of_record(self, oid, tid, size, newest=None):
        """`newest` is the tid of the last record of the object, if the object
        is not known to have blobs."""
        is_now = self._records.is_now(oid, tid, newest)
        self._add(NOW if is_now else OLD, size)

    def _add_orphan(self, oid, tid, size):
        self._add(ORPHAN, size)
        if len(self.orphans) < MOST_LISTED:
            self.orphans.append(
                (oid, tid, size, self._helper.getBlobFilename(oid, tid)))

    def _key(self, path):
        """The oid and the tid in the name of a blob file, or None, None."""
        helper = self._helper
        try:
            oid, tid = helper.splitBlobFilename(path)
            if tid is None or path != helper.getBlobFilename(oid, tid):
                return None, None
        except ValueError:
            return None, None
        return oid, tid

    def _ask_the_records(self):
        """Which files belong to a record that is not known to be of a blob?"""
        unclear = self._unclear
        newest = dict.fromkeys(key[:8] for key in unclear)
        found = set()
        for transaction in self._records.transactions_again():
            for record in transaction.records:
                if record.oid in newest:
                    newest[record.oid] = transaction.tid
                    key = record.oid + transaction.tid
                    if key in unclear:
                        found.add(key)
        for key, size in unclear.items():
            oid, tid = key[:8], key[8:]
            if key in found:
                self._add_of_record(oid, tid, size, newest[oid])
            else:
                self._add_orphan(oid, tid, size)

    def _note_unread_directory(self, error):
        if not isinstance(error, FileNotFoundError):    # just removed
            self._note_unread(error.filename, error.strerror)
        elif error.filename == self._helper.base_dir:
            raise error

    def _note_unread(self, path, reason):
        self.unread_count += 1
        if len(self.unread) < MOST_LISTED:
            self.unread.append((path, reason))
