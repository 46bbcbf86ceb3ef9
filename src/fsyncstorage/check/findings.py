"""What a check found: figures and problems, for people and programs to read.

Left to others: finding it (verify), words and exit codes (commandline).
"""

import typing
from collections import Counter

from ..format import scan
from ..format import seal

# Kinds of damage.
MAGIC = 'magic'
TRANSACTION = 'transaction'
POINTER = 'pointer'
LOST = 'lost'           # a record needs data from a damaged transaction
PICKLE = 'pickle'
BLOB = 'blob'
INDEX = 'index'
# Kinds of warnings.
DANGLING = 'dangling'
ORPHAN = 'orphan'
ODD = 'odd'
UNREAD = 'unread'       # a pickle beyond a bound; a part of the blob directory
WARNINGS = frozenset([DANGLING, ORPHAN, ODD, UNREAD])
#: Damage to the data file itself.
OF_DATA = frozenset([MAGIC, TRANSACTION, POINTER, LOST, PICKLE])

#: What each kind counts, in the order of the report for people.
WORDS = {
    MAGIC: 'first bytes of the file that are wrong',
    TRANSACTION: 'damaged transactions',
    POINTER: 'records with a wrong pointer',
    LOST: 'records that need what is in a damaged transaction',
    PICKLE: 'current records that cannot be read',
    BLOB: 'blob files that are missing',
    INDEX: 'wrong index files',
    DANGLING: 'references to objects that are not there',
    ORPHAN: 'blob files without a record',
    ODD: 'odd records, which some tools write',
    UNREAD: 'records or directories that were not read',
}

# Most problems of one kind that are listed; the others are only counted.
MOST_LISTED = 1000


class Problem(typing.NamedTuple):
    kind: str
    reason: str
    position: int | None = None
    tid: bytes | None = None
    oid: bytes | None = None


class Tail(typing.NamedTuple):
    """The end of the file that is not, or not yet, part of the database."""
    position: int
    length: int
    tid: bytes | None
    reason: str


class Report:
    """Everything that was found, for people and programs to read."""

    def __init__(self, size):
        self.size = size
        self.end = scan.FIRST           # where the database ends
        self.tail = None
        self.transactions = 0
        self.records = 0
        self.objects = 0
        self.objects_without_data = 0   # deleted, or never created
        self.first_tid = self.last_tid = None
        self.seals = Counter(dict.fromkeys(
            (seal.SOUND, seal.ABSENT, seal.MOVED), 0))
        self.wrapped = Counter()        # current records, by their marks
        self.opaque = 0                 # wrapped ones that cannot be read
        self.pickles_walked = 0
        self.blobs = None               # Counter, if they were checked
        self.no_orphans = None          # words: why no file is called one
        self.index = None               # words, if it was checked
        self.problems = []
        self.problem_counts = Counter()         # problems, by kind

    def add(self, kind, reason, position=None, tid=None, oid=None):
        self.problem_counts[kind] += 1
        if self.problem_counts[kind] <= MOST_LISTED:
            self.problems.append(Problem(kind, reason, position, tid, oid))

    def add_unlisted(self, kind, count):
        if count:
            self.problem_counts[kind] += count

    @property
    def damages(self):
        return sum(count for kind, count in self.problem_counts.items()
                   if kind not in WARNINGS)
