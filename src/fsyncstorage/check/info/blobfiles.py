"""The files of a blob directory, and which record each belongs to.

A file without a record is an orphan: a crash can leave one.  What belongs to a
transaction that is not finished yet is none.
"""

import contextlib
import os
from collections import Counter

# Orphans that are listed; the others are counted.
MOST_LISTED = 1000

#: Kinds of figures.
NOW, OLD, ORPHAN = 'now', 'old', 'orphans'


class BlobFiles:
    """Files and bytes: of current revisions, of older ones, of none."""

    def __init__(self):
        self.files = Counter()
        self.bytes = Counter()
        #: Numbers of files and bytes of current blobs, by a class.
        self.by_class = {}
        self.orphans = []               # oid, tid, bytes, path

    def read(self, helper, survey, class_of_referrer):
        """Look through a directory.

        `class_of_referrer(number)` names the class of the object that refers
        to a blob.
        """
        for oid, directory in helper.listOIDs():
            self._tell(survey)
            found = dict(_files(helper, directory, survey))
            number = survey.objects.number(oid)
            current = None
            if number is not None and survey.objects.positions[number]:
                current = max(
                    (tid for tid in found if oid + tid in survey.blobs),
                    default=None)
            for tid, (path, size) in sorted(found.items()):
                if tid == current:
                    self._add(NOW, size)
                    row = self.by_class.setdefault(
                        class_of_referrer(number), [0, 0])
                    row[0] += 1
                    row[1] += size
                elif oid + tid in survey.blobs:
                    self._add(OLD, size)
                else:
                    self._add(ORPHAN, size)
                    if len(self.orphans) < MOST_LISTED:
                        self.orphans.append((oid, tid, size, path))

    def _tell(self, survey):
        """How far it is: there should be as many files as records."""
        done = sum(self.files.values())
        survey.tell(
            'blobs',
            survey.window.end * done // max(len(survey.blobs), done, 1))

    def _add(self, kind, size):
        self.files[kind] += 1
        self.bytes[kind] += size


def _files(helper, directory, survey):
    """Yield (tid, (path, bytes)) of the blobs that count."""
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        tid = _tid(helper, path)
        if tid is not None and survey.since <= tid <= survey.newest_tid:
            with contextlib.suppress(FileNotFoundError):    # just removed
                yield tid, (path, os.stat(path).st_size)


def _tid(helper, path):
    try:
        return helper.splitBlobFilename(path)[1]
    except ValueError:
        return None
