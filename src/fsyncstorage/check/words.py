"""The report of `fsync-check` for people, line by line.

What is wrong comes in this order: which objects were lost, what to do, and how
many problems of each kind there are.  A damaged byte can have hundreds of
consequences, so only a few of a kind are shown, unless all are asked for.

Left to others: what was found (verify, findings, lost).
"""

import textwrap

from persistent.TimeStamp import TimeStamp

from ..format import seal
from . import findings
from . import lost
from .terminal import size_in_words

STATES = {
    lost.GONE: 'gone',
    lost.OLDER: 'back at an older revision',
    lost.UNREADABLE: 'unreadable',
}

# Without --verbose, so many of each kind are shown, and so many classes.
FEW = 3
MOST_CLASSES = 20


class Words:
    """What a `Check` has found."""

    def __init__(self, check):
        self.check = check
        self.options = check.options
        self.report = check.report

    def lines(self):
        """The report for people."""
        yield from self.summary()
        if self.damages(findings.OF_DATA):
            yield from self.lost_lines()
        yield from self.next_lines()
        yield from self.problem_lines('Damage', True)
        yield from self.problem_lines('Warnings', False)
        if self.check.salvaged:
            yield from self.salvage_lines()
        if not self.check.is_damaged():
            yield from self.unsealed_lines()
            yield 'No damage found.'
        elif self.check.salvaged:
            yield ('The file is as it was, and damaged; all of it that is'
                   f' sound is in {self.options.salvage}.')
        else:
            yield 'DAMAGED.'

    def damages(self, kinds):
        return any(self.report.problem_counts[kind] for kind in kinds)

    def lost_lines(self):
        """Which objects were lost."""
        found = self.check.verification.lost
        rows = sorted(self.check.lost.items(),
                      key=lambda row: (-row[1].total(), row[0]))
        total = sum(states.total() for _, states in rows)
        yield (f'Lost: {total:,} objects'
               + (', and more' if found.has_more else '')
               if total else 'Lost: no object, as far as can be told')
        shown = rows if self.options.verbose else rows[:MOST_CLASSES]
        for name, states in shown:
            yield f'  {name}: ' + ', '.join(
                f'{states[state]:,} {words}'
                for state, words in STATES.items() if states[state])
        left = [states.total() for _, states in rows[len(shown):]]
        if left:
            yield (f'  and {sum(left):,} objects of {len(left):,} classes'
                   ' (--verbose lists them)')
        if found.untold:
            yield (f'  and what was in {found.untold:,} damaged places, of'
                   ' which nothing can be told')

    def next_lines(self):
        """What to do."""
        options = self.options
        if self.check.salvaged and self.check.is_damaged():
            yield (f'Next: fsync-check {options.salvage}. Then stop what has'
                   f' {options.path} open, put the copy in its place, and'
                   ' remove the index')
        elif self.damages(findings.OF_DATA):
            yield ('Next: copy the file away before anything else. Restore a'
                   ' backup that is sound; or save what is sound:'
                   f' fsync-check {options.path} --salvage OUT')
        elif self.damages([findings.INDEX]):
            yield (f'Next: remove {self.check.index_path}; the next opening'
                   ' makes a new one')
        if self.damages([findings.BLOB]):
            yield ('Next: copy the missing blob files from a backup into'
                   f' {options.blobs}')

    def unsealed_lines(self):
        """What a verdict without damage does not cover."""
        seals = self.report.seals
        if unsealed := seals[seal.ABSENT] + seals[seal.MOVED]:
            yield (f'{unsealed:,} transactions have no seal that covers their'
                   ' bytes: only their structure was checked. --salvage OUT'
                   ' makes a copy in which all have one')

    def problem_lines(self, title, damage):
        """How many there are of each kind, and what they are."""
        report, shown = self.report, None if self.options.verbose else FEW
        kinds = [kind for kind in findings.WORDS if report.problem_counts[kind]
                 and self.check.counts_as_damage(kind) is damage]
        if kinds:
            yield f'{title}:'
        for kind in kinds:
            count = report.problem_counts[kind]
            yield f'  {findings.WORDS[kind]}: {count:,}'
            listed = [each for each in report.problems if each.kind == kind]
            yield from map(described, listed[:shown])
            if len(listed) > len(listed[:shown]):
                yield (f'    and {count - FEW:,} more'
                       ' (--verbose lists them)')
            elif count > len(listed):
                yield f'    and {count - len(listed):,} more, not listed'

    def summary(self):
        report = self.report
        yield f'{self.options.path}: {size_in_words(report.size)}'
        rows = {
            'transactions': f'{report.transactions:,}; {self.seal_words()}',
            'first': moment(report.first_tid),
            'last': moment(report.last_tid),
            'records': f'{report.records:,} of {report.objects:,} objects,'
                       f' {report.objects_without_data:,} of them deleted',
            'pickles': self.pickle_words(),
            'blobs': self.blob_words(),
            'index': report.index,
            'tail': self.tail_words(),
        }
        for name, words in rows.items():
            if words:
                yield f'  {name:13}{words}'

    def seal_words(self):
        seals = self.report.seals
        return (f'seals: {seals[seal.SOUND]:,} sound,'
                f' {seals[seal.ABSENT]:,} absent, {seals[seal.MOVED]:,} moved')

    def pickle_words(self):
        report = self.report
        words = f'{report.pickles_walked:,} current records walked'
        if report.opaque:
            words += (f', {report.opaque:,} not: only their storage wrapper'
                      ' can read them')
        if report.wrapped:
            words += '; wrapped: ' + ', '.join(
                f'{count:,} as {marks}'
                for marks, count in report.wrapped.items())
        return words

    def blob_words(self):
        blobs = self.report.blobs
        if blobs is None:
            return None
        counts = self.report.problem_counts
        words = (f'{blobs["records"]:,} records,'
                 f' {counts[findings.BLOB]:,} without a file; ')
        if self.report.no_orphans:
            return (words + 'no search for files without a record:'
                    f' {self.report.no_orphans}')
        words += (f'{blobs["files"]:,} files,'
                  f' {counts[findings.ORPHAN]:,} without a record')
        if blobs['later']:
            words += f'; {blobs["later"]:,} of later transactions'
        return words

    def tail_words(self):
        tail = self.report.tail
        if tail is None:
            return None
        return (f'{tail.length:,} bytes from {tail.position} on are not part'
                f' of the database ({tail.reason}{named(tail.tid)}): they are'
                ' being written, or the torn tail of a crash')

    def salvage_lines(self):
        salvaged = self.check.salvaged
        yield (f'Salvaged into {self.options.salvage}:'
               f' {salvaged.transactions:,} transactions,'
               f' {salvaged.records:,} records. Left out:'
               f' {salvaged.transactions_left_out:,} transactions, and'
               f' {salvaged.records_left_out:,} records of others')
        if not self.options.verbose:
            return
        for left_out in salvaged.left_out:
            yield (f'  at {left_out.position}{named(left_out.tid)}:'
                   f' {left_out.reason}; oids:')
            oids = ' '.join(oid.hex() for oid in left_out.oids) or 'unknown'
            yield from textwrap.wrap(oids, 76, initial_indent='    ',
                                     subsequent_indent='    ')


def described(problem):
    places = []
    if problem.position is not None:
        places.append(f'at {problem.position}')
    if problem.tid is not None:
        places.append(f'tid {problem.tid.hex()}')
    if problem.oid is not None:
        places.append(f'oid {problem.oid.hex()}')
    words = f'{", ".join(places)}: ' if places else ''
    return f'    {words}{problem.reason}'


def named(tid):
    return '' if tid is None else f', tid {tid.hex()}'


def moment(tid):
    return tid and f'{TimeStamp(tid)}{named(tid)}'
