"""The files of a blob directory, in figures, by kind of record.

Left to others: the search itself, and what an orphan is (check.blobfiles).
"""

import bisect
from collections import Counter

from .. import blobfiles

#: Kinds of files: blobs of current revisions, of older revisions, of none; and
#: files that are no blob, or belong to no transaction that was read.
NOW, OLD, ORPHAN, OTHER = KINDS = 'now', 'old', 'orphans', 'others'


class BlobFiles(blobfiles.BlobFiles):
    """Files and bytes of each kind, after `read`."""

    def __init__(self, helper, survey):
        super().__init__(helper, survey.newest_tid, survey.since)
        self.files = Counter()
        self.bytes = Counter()
        #: Records that certainly have a blob, and have a file.
        self.with_file = 0
        self.transactions_again = survey.transactions_again
        self._survey = survey

    def has_record(self, oid, tid):
        survey = self._survey
        number = survey.objects.number(oid)
        if self._is_among(survey.blobs.get(number, ()), tid):
            return True
        return False if number is None else None

    @staticmethod
    def _is_among(tids, tid):
        at = bisect.bisect_left(tids, tid)
        return at < len(tids) and tids[at] == tid

    def note_of_record(self, oid, tid, size, newest=None):
        super().note_of_record(oid, tid, size, newest)
        survey = self._survey
        number = survey.objects.number(oid)
        if newest is None:
            self.with_file += 1
            newest = survey.blobs[number][-1]
        is_now = tid == newest and survey.objects.positions[number]
        self._add(NOW if is_now else OLD, size)

    def note_orphan(self, oid, tid, size):
        super().note_orphan(oid, tid, size)
        self._add(ORPHAN, size)

    def note_other(self, size):
        self._add(OTHER, size)

    def _add(self, kind, size):
        self.files[kind] += 1
        self.bytes[kind] += size

    def tell(self):
        """Show the progress: there should be as many files as records."""
        survey, done = self._survey, sum(self.files.values())
        survey.tell(
            'blobs',
            survey.window.end * done // max(survey.blob_records, done, 1))
