"""The search of `fsync-check` for blob files without a record.

Left to others: the search itself, and what an orphan is (blobfiles); what is
known of the records (verify).
"""

from ZODB.utils import z64

from . import findings
from .blobfiles import BlobFiles


class Orphans(BlobFiles):
    """`search` adds them to the report of a `Verification`."""

    def __init__(self, verification):
        report = verification.report
        super().__init__(verification.blob_files, report.last_tid or z64)
        self.transactions_again = verification.transactions_again
        self._verification = verification
        self._report = report

    def has_record(self, oid, tid):
        known = self._verification
        if oid + tid in known.blobs:
            return True
        return None if oid in known.index else False

    def note_of_record(self, *file):
        super().note_of_record(*file)
        self._report.blobs['files'] += 1

    def note_orphan(self, *file):
        super().note_orphan(*file)
        self._report.blobs['files'] += 1

    def tell(self):
        """Show the progress: there should be as many files as records."""
        known, done = self._verification, self._report.blobs['files']
        known.tell('blobs', known.window.end * done // max(
            len(known.blobs), done, 1))

    def search(self):
        self.read()
        report = self._report
        if self.later_count:
            report.blobs['later'] = self.later_count
        report.no_orphans = self._why_not()
        if report.no_orphans is None:
            for oid, tid, _, path in self.orphans:
                report.add(
                    findings.ORPHAN, f'a blob file without a record: {path}',
                    tid=tid, oid=oid)
            report.add_unlisted(
                findings.ORPHAN, self.orphan_count - len(self.orphans))
        for path, reason in self.unread:
            report.add(findings.UNREAD,
                       f'its blob files were not looked at: {path} ({reason})')
        report.add_unlisted(
            findings.UNREAD, self.unread_count - len(self.unread))

    def _why_not(self):
        """Why no file is called an orphan, or None."""
        if self.is_packed:
            return 'a pack is under way, or was killed, and removes some'
        if self.orphan_count and not self.some_belong:
            return ('none belongs to a record: is this the blob directory of'
                    ' another database?')
        return None
