"""The report as plain data: what `--json` writes, and what the tables show.

Its shape is described in docs/info.rst.  Names are text, oids and tids are in
hex, sizes are bytes; a part that was not asked for is None.

Which objects are not reached from the root is known only if every reached
record could be read: a record that could not be read may refer to any object.
"""

import heapq
from array import array

from ZODB.utils import z64

from ...format import scan
from ...format.classes import OTHERS
from . import moments
from .blobfiles import KINDS

# In place of the class of a referrer.
NOT_REACHED = '(not reached from the root)'
UNKNOWN = '(unknown)'

#: What `--by` may name: parts of the document.
PARTS = {
    'class': ('classes',),
    'oid': ('largest', 'most_revised', 'unreachable'),
    'day': ('days',),
}
ALL_PARTS = sum(PARTS.values(), ())


class Document:
    """Made from a survey that was read; `blob_files` can be added."""

    def __init__(self, survey, top, by=None):
        self.survey = survey
        self.objects = survey.objects
        self.names = survey.classes.names
        self.top = top
        self.parts = PARTS[by] if by else ALL_PARTS
        self.blob_files = None
        self.reached = root_paths(survey)
        self.all_are_known = self.reached is not None and not (
            survey.damage or any(
                number in self.reached for number in survey.unread))
        #: The numbers of objects that exist, and were written since `since`.
        self.numbers = array('I', (
            number for number, (position, revisions) in enumerate(zip(
                self.objects.positions, self.objects.revisions))
            if position and revisions))

    def as_dict(self):
        made = {**self.totals(), 'blobs': self.blobs()}
        for name in ALL_PARTS:
            made[name] = (
                getattr(self, name)() if name in self.parts else None)
        return made

    # The whole

    def totals(self):
        survey, sizes = self.survey, self.objects.sizes
        data = sum(survey.classes.bytes)
        headers = (scan.RECORD_HEADER * survey.records
                   + scan.POINTER * survey.records_without_data)
        return {
            'size': survey.window.end,
            'end': survey.end,
            'damage': survey.damage and {
                'position': survey.damage.position,
                'tid': in_hex(survey.damage.tid),
                'reason': survey.damage.reason},
            'first': moment(survey.first_tid),
            'last': moment(survey.last_tid),
            'transactions': survey.transactions,
            'records': survey.records,
            'objects': len(self.numbers),
            'bytes': {
                'all': survey.transaction_bytes,
                'current': sum(sizes),
                'old': data - sum(sizes),
                'record_headers': headers,
                'transactions': survey.transaction_bytes - data - headers,
            },
            'unread': len(survey.unread) if survey.graph else None,
        }

    # By class

    def classes(self):
        classes, objects = self.survey.classes, self.objects
        current = [[0, 0] for _ in classes.names]
        for number in self.numbers:
            row = current[objects.classes[number]]
            row[0] += 1
            row[1] += objects.sizes[number]
        rows = [
            {'class': name, 'objects': count, 'current': size,
             'records': records, 'all': all_bytes}
            for name, (count, size), records, all_bytes in zip(
                classes.names, current, classes.records, classes.bytes)
            if count or records]
        return {
            **most(rows, self.top, lambda row: (row['all'], row['records'])),
            'without_name': classes.records[classes.named(OTHERS)]}

    # By object

    def largest(self):
        """The largest objects, by the bytes of all their revisions."""
        history, sizes = self.objects.history, self.objects.sizes
        return self.object_rows(heapq.nlargest(
            self.top, self.numbers,
            lambda number: (history[number], sizes[number])))

    def most_revised(self):
        """The objects with the most revisions, if they have more than one."""
        revisions, history = self.objects.revisions, self.objects.history
        return self.object_rows(heapq.nlargest(
            self.top, (each for each in self.numbers if revisions[each] > 1),
            lambda number: (revisions[number], history[number])))

    def object_rows(self, numbers):
        objects = self.objects
        paths = {number: self.reached and self.reached.path(number)
                 for number in numbers}
        oids = objects.oids({*numbers, *(
            each for path in paths.values() if path for each in path.steps)})
        return [{
            'oid': oids[number].hex(),
            'class': self.class_of(number),
            'current': objects.sizes[number],
            'revisions': objects.revisions[number],
            'all': objects.history[number],
            'reached': self.is_reached(number),
            'path': [
                {'oid': oids[each].hex(), 'class': self.class_of(each)}
                for each in path.steps] if path and path.steps else None,
            'path_left_out': path and path.left_out,
        } for number, path in paths.items()]

    def is_reached(self, number):
        """Is the object reached from the root?  None if it is not known."""
        if self.reached is not None and number in self.reached:
            return True
        return False if self.all_are_known else None

    def class_of(self, number):
        return self.names[self.objects.classes[number]]

    def class_of_referrer(self, number):
        """The class of the object that refers to this one."""
        parent = self.reached and self.reached.parent(number)
        if parent is None:
            return (NOT_REACHED if self.all_are_known
                    else UNKNOWN)
        return self.class_of(parent)

    def unreachable(self):
        if not self.all_are_known:
            return None
        lost = array('I', (number for number in self.numbers
                           if number not in self.reached))
        by_class = {}
        for number in lost:
            row = by_class.setdefault(self.class_of(number), [0, 0])
            row[0] += 1
            row[1] += self.objects.sizes[number]
        return {
            'objects': len(lost),
            'current': sum(size for _, size in by_class.values()),
            'all': sum(map(self.objects.history.__getitem__, lost)),
            'classes': most(
                [{'class': name, 'objects': count, 'current': size}
                 for name, (count, size) in by_class.items()],
                self.top, lambda row: (row['current'], row['objects'])),
        }

    # By day

    def days(self):
        """The last days, in their order."""
        rows = self.survey.days.rows
        last = sorted(day for day in rows if day != OTHERS)[-self.top:]
        if OTHERS in rows:
            last.append(OTHERS)
        return {
            'count': len(rows),
            'listed': [
                {'day': (day if day == OTHERS
                         else moments.day_name(day)), **figures(rows[day])}
                for day in last]}

    # Blobs

    def blobs(self):
        found = self.blob_files
        if found is None:
            return None
        return {
            **{kind: {'files': found.files[kind], 'bytes': found.bytes[kind]}
               for kind in KINDS},
            'without_file': self.survey.blob_records - found.with_file,
            'some_belong': found.some_belong,
            'packed': found.is_packed,
            'unread': {
                'count': found.unread_count,
                'listed': [{'file': path, 'reason': reason}
                           for path, reason in found.unread[:self.top]]},
            'classes': most(
                [{'class': name, 'files': files, 'bytes': size}
                 for name, (files, size) in found.by_class.items()],
                self.top, lambda row: (row['bytes'], row['files'])),
            'orphans_listed': [
                {'oid': oid.hex(), 'tid': tid.hex(), 'bytes': size,
                 'file': path}
                for oid, tid, size, path in found.orphans[:self.top]
                if found.orphans_are_known],
        }


def root_paths(survey):
    """The `Paths` from the root; None if they are unknown."""
    root = survey.objects.number(z64)
    if survey.graph is None or root is None:
        return None
    return survey.graph.reached_from(root)


def most(rows, top, key):
    """The largest rows, and the sums of the others."""
    listed = heapq.nlargest(top, rows, key)
    return {'count': len(rows), 'listed': listed,
            'others': {
                name: sum(row[name] for row in rows)
                      - sum(row[name] for row in listed)
                for name, value in (rows[0] if rows else {}).items()
                if isinstance(value, int)}}


def figures(row):
    transactions, records, size = row
    return {'transactions': transactions, 'records': records, 'all': size}


def in_hex(tid):
    return None if tid is None else tid.hex()


def moment(tid):
    return None if tid is None else {
        'tid': tid.hex(), 'time': moments.second_name(tid)}
