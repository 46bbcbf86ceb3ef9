"""The command line of `fsync-check`.

Exit codes: 0 no damage, 1 damage, 2 the check or another requested action
could not be done, 130 interrupted, 141 nobody reads the output.  Errors are
one line.

Left to others: the checks (verify), the copy of what is sound (salvage), the
report for people (words), what the commands of this room have in common
(terminal).
"""

import contextlib
import json
import os
import sys

import zc.lockfile

from ..format import index
from ..format import scan
from ..format.window import Window
from ..storage import leftovers
from ..storage import recovery
from . import findings
from . import salvage
from . import verify
from .tails import NoDataFile
from .terminal import CannotRun
from .terminal import CommandParser
from .terminal import exit_code
from .terminal import opened
from .terminal import opened_blobs
from .terminal import output
from .terminal import printable
from .terminal import progress_bar
from .terminal import refuse_if_replaced
from .words import Words

DESCRIPTION = """\
Check a Data.fs: structure, seals, pointers, and the pickle of every current
record.  It may be open elsewhere, and be written meanwhile; nothing is locked
and nothing is changed, unless you ask for it.
"""

EPILOG = """\
exit status: 0 no damage; 1 damage; 2 the check could not be made.
"""
STAGES = {
    'transactions': 'reading transactions',
    'objects': 'walking pickles',
    'blobs': 'looking through the blob files',
    'salvage': 'copying what is sound',
}


def main(argv=None):
    arguments = parser()
    return exit_code(run, arguments.parse_args(argv), arguments.prog)


def parser():
    made = CommandParser(
        prog='fsync-check', description=DESCRIPTION, epilog=EPILOG)
    made.add_argument('path', metavar='DATA.FS', help='the file to check')
    made.add_argument(
        '--blobs', metavar='DIR',
        help='check that each blob record has its file in this blob'
             ' directory, and look for files without a record')
    made.add_argument(
        '--index', action='store_true',
        help='compare the index file with the data')
    made.add_argument(
        '--refs', action='store_true',
        help='references to objects that do not exist count as damage')
    made.add_argument(
        '--verbose', action='store_true',
        help='list each problem, and what a salvage leaves out, and do not'
             ' only count them')
    made.add_argument(
        '--json', action='store_true',
        help='write the report as JSON to standard output')
    made.add_argument(
        '--salvage', metavar='OUT',
        help='copy all that is sound into this new file, and list what is'
             ' left out')
    return made


def run(options):
    with contextlib.closing(opened(options.path)) as file:
        check = Check(options, file)
        with progress_bar(check.window.end, STAGES) as tell:
            check.verify(tell)
            if options.salvage:
                check.salvage(tell)
    with output():
        if options.json:
            print(json.dumps(check.as_dict(), indent=1))
        else:
            for line in Words(check).lines():
                print(printable(line))
    return 1 if check.is_damaged() else 0


def refuse_taken_names(target, source):
    """Refuse if the new file of a salvage is there, or if an opening would
    remove it."""
    if os.path.lexists(target):
        raise CannotRun(
            f'{target} is there already; --salvage writes a new file')
    for suffix in leftovers.GONE_AFTER_OPEN:
        if os.path.lexists(target + suffix):
            raise CannotRun(
                f'{target}{suffix} is there already; it would be removed when'
                f' {target} is opened')
        if os.path.abspath(target) == os.path.abspath(source + suffix):
            raise CannotRun(
                f'{target} would be removed when {source} is opened; give it'
                ' another name')


class Check:
    """One run: its options and its results."""

    def __init__(self, options, file):
        self.options = options
        self.file = file
        self.index_path = options.path + '.index'
        # Load the index before the data are read: an index never has more
        # than the data that were written before it.
        self.stored, self.index_words, self.index_problem = self.load_index()
        self.window = Window.of_file(file.fileno())
        self.salvaged = None
        if options.salvage:
            refuse_taken_names(options.salvage, options.path)

    def is_damaged(self):
        return any(map(self.counts_as_damage, self.report.problem_counts))

    # The parts of a run

    def verify(self, tell):
        blob_files = compared = None
        if self.options.blobs is not None:
            blob_files = opened_blobs(self.options.blobs)
        if self.options.index and self.index_problem is None:
            compared = self.stored
        try:
            self.verification = verify.verify(
                self.window, blob_files, compared, tell)
        except NoDataFile as error:
            raise CannotRun(f'{self.options.path}: {error}') from None
        except scan.Damage:     # in a part that was sound before
            refuse_if_replaced(self.options.path, self.file)
            raise CannotRun(
                f'{self.options.path} was changed while it was read, and not'
                ' by a commit') from None
        self.report = self.verification.report
        self.note_lost_end()
        if self.options.index:
            self.report.index = (
                self.index_words or self.index_problem or self.report.index)
            if self.index_problem:
                self.report.add(findings.INDEX, self.index_problem)
        self.lost = self.verification.lost.by_class(self.verification)
        if blob_files or self.stored or self.options.index:
            refuse_if_replaced(self.options.path, self.file)

    def load_index(self):
        """The index, a text for the report, a problem: each may be None."""
        try:
            stored = index.load(self.index_path)
        except FileNotFoundError:
            return None, 'there is none', None
        except index.Damaged as error:
            return None, None, str(error)
        if stored.fingerprint not in (
                None, index.fingerprint(self.file, stored.position)):
            return stored, None, 'the index belongs to another data file'
        return stored, None, None

    def note_lost_end(self):
        """An index of ours says what was on the disk.  If some of this is
        not in the file, the storage refuses it."""
        stored, report = self.stored, self.report
        if stored is None or stored.fingerprint is None:
            return
        if not (recovery.is_shortened(self.file, stored)
                or report.tail and recovery.proof_by_index(
                    self.file, report.end, stored)):
            return
        reason = report.tail.reason if report.tail else 'the file ends'
        report.add(
            findings.TRANSACTION,
            f'{reason}, but its index has {len(stored.index)} objects in'
            f' {stored.durable} bytes, and all of them were on disk when it'
            ' was written. If this is an older file, put here on purpose,'
            ' remove the index', report.end)
        for oid, position in stored.index.iteritems():
            if position >= report.end:
                self.verification.lost.note(oid, position)
        report.tail = self.index_problem = None
        self.index_words = 'it has more than the data'

    def salvage(self, tell):
        try:
            self.salvaged = salvage.salvage(
                self.verification, self.options.salvage, tell)
        except (recovery.DamagedFile, zc.lockfile.LockError,
                salvage.NotWritten) as error:
            # Of the new file, or of one beside it.
            raise CannotRun(str(error)) from None

    # The results

    def as_dict(self):
        return plain({
            'file': self.options.path,
            'damaged': self.is_damaged(),
            **vars(self.report),
            'lost': self.lost,
            'problems': [problem._asdict() | {
                'damage': self.counts_as_damage(problem.kind)}
                for problem in self.report.problems],
            'salvage': self.salvaged and {
                'file': self.options.salvage, **vars(self.salvaged)},
        })

    def counts_as_damage(self, kind):
        return kind not in findings.WARNINGS or (
            self.options.refs and kind == findings.DANGLING)


def plain(value):
    """The same value, as JSON can have it: bytes become hex, and named tuples
    become dictionaries."""
    if isinstance(value, tuple):
        value = value._asdict()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.hex() if isinstance(value, bytes) else value


if __name__ == '__main__':
    sys.exit(main())
