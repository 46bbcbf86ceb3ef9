"""The files of a blob directory, and which record each belongs to.

A file without a record is an orphan: a crash can leave one.  It is none

- if its transaction is later than all that were read: that is being written;
- if a record has its oid and its tid, and a class that cannot be read: behind
  a wrapper that encrypts, every record is such a one.  Where there are any,
  and files without a record, the transactions are read once more for them;
- if a pack is about to remove it.  The packed file has its name before the
  blobs go, and these are listed in the directory until then.

Where no file belongs to any record, the directory is probably that of another
database, and none of its files is called an orphan.

Only what the directory itself contains is looked at: symbolic links to other
directories are not followed, and are listed among what was not read.
"""

import bisect
import os
from collections import Counter

from ZODB.blob import LAYOUT_MARKER

# Orphans that are listed, and things that were not read; the others are
# counted.
MOST_LISTED = 1000
#: In the blob directory, from the begin of a pack until it has removed what
#: this file lists.
PACK_LIST = '.removed'

#: Kinds of figures: blobs of current revisions, of older ones, of none; and
#: what is no blob, or none of a transaction that was read.
NOW, OLD, ORPHAN, OTHER = KINDS = 'now', 'old', 'orphans', 'others'


class BlobFiles:
    """Files and bytes of each kind; `read` looks through a directory."""

    def __init__(self, helper, survey, class_of_referrer):
        """`class_of_referrer(number)` names the class of the object that
        refers to a blob."""
        self.files = Counter()
        self.bytes = Counter()
        #: Numbers of files and bytes of current blobs, by a class.
        self.by_class = {}
        self.orphans = []               # oid, tid, bytes, path
        self.unread = []                # path, reason
        self.unread_count = 0
        #: Records that certainly have a blob, and have a file.
        self.with_file = 0
        self.is_packed = False
        self._helper = helper
        self._survey = survey
        self._class_of_referrer = class_of_referrer
        # oid and tid -> bytes, of files whose record is looked for.
        self._unclear = {}

    def read(self):
        base = self._helper.base_dir
        self.is_packed = os.path.lexists(os.path.join(base, PACK_LIST))
        for path, directories, names in os.walk(
                base, onerror=self._note_unread_directory):
            self._tell()
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

    @property
    def some_belong(self):
        return bool(self.files[NOW] or self.files[OLD])

    @property
    def orphans_are_known(self):
        return self.some_belong and not self.is_packed

    # What is found

    def _note_file(self, path):
        try:
            size = os.stat(path).st_size
        except FileNotFoundError:
            return  # just removed
        except OSError as error:
            self._note_unread(path, error.strerror)
            return
        survey = self._survey
        oid, tid = self._key(path)
        if tid is None or tid > survey.newest_tid:
            self._add(OTHER, size)
        elif tid >= survey.since:
            self._note_blob(oid, tid, size)

    def _key(self, path):
        """The oid and the tid in the name of a blob file; None, None."""
        helper = self._helper
        try:
            oid, tid = helper.splitBlobFilename(path)
            if tid is None or path != helper.getBlobFilename(oid, tid):
                return None, None
        except ValueError:
            return None, None
        return oid, tid

    def _note_blob(self, oid, tid, size):
        survey = self._survey
        number = survey.objects.number(oid)
        tids = survey.blobs.get(number, ())
        at = bisect.bisect_left(tids, tid)
        if at < len(tids) and tids[at] == tid:
            self.with_file += 1
            self._add_of_record(number, at == len(tids) - 1, size)
        elif number is not None and survey.unsure_blobs:
            self._unclear[oid + tid] = size
        else:
            self._add_orphan(oid, tid, size)

    def _ask_the_records(self):
        """Which files belong to a record whose class cannot be read?"""
        survey, unclear = self._survey, self._unclear
        newest = dict.fromkeys(key[:8] for key in unclear)
        found = set()
        for transaction in survey.transactions_again():
            for record in transaction.records:
                if record.oid in newest:
                    newest[record.oid] = transaction.tid
                    key = record.oid + transaction.tid
                    if key in unclear and survey.may_have_blob(record):
                        found.add(key)
        for key, size in unclear.items():
            oid, tid = key[:8], key[8:]
            if key in found:
                self._add_of_record(
                    survey.objects.number(oid), tid == newest[oid], size)
            else:
                self._add_orphan(oid, tid, size)

    # Figures

    def _add(self, kind, size):
        self.files[kind] += 1
        self.bytes[kind] += size

    def _add_of_record(self, number, is_newest, size):
        if not (is_newest and self._survey.objects.positions[number]):
            self._add(OLD, size)
            return
        self._add(NOW, size)
        row = self.by_class.setdefault(
            self._class_of_referrer(number), [0, 0])
        row[0] += 1
        row[1] += size

    def _add_orphan(self, oid, tid, size):
        self._add(ORPHAN, size)
        if len(self.orphans) < MOST_LISTED:
            self.orphans.append(
                (oid, tid, size, self._helper.getBlobFilename(oid, tid)))

    def _note_unread_directory(self, error):
        if not isinstance(error, FileNotFoundError):    # just removed
            self._note_unread(error.filename, error.strerror)
        elif error.filename == self._helper.base_dir:
            raise error

    def _note_unread(self, path, reason):
        self.unread_count += 1
        if len(self.unread) < MOST_LISTED:
            self.unread.append((path, reason))

    def _tell(self):
        """How far it is: there should be as many files as records."""
        survey, done = self._survey, sum(self.files.values())
        survey.tell(
            'blobs',
            survey.window.end * done // max(survey.blob_records, done, 1))
