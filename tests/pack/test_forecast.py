"""A forecast says what a pack then does: to the byte, and by class."""

import collections
import random
from unittest import mock

from hypothesis import strategies

from fsyncstorage import datafile
from fsyncstorage.pack import counting
from fsyncstorage.pack import work

from ..generated import given
from ..generated import settings
from ..often import often
from ..support import TestCase
from ..support import commit
from . import oracle
from . import test_oracle
from .histories import OBJECTS
from .histories import History
from .histories import Options
from .histories import tid
from .test_oracle import data_at
from .test_oracle import transactions

COUNTS = 'objects', 'records', 'bytes'


def class_of(data):
    if not data:
        return counting.NO_DATA
    module, name, _ = data.removeprefix(b'\x80\x03c').split(b'\n', 2)
    return f'{module.decode()}.{name.decode()}'


def current_at(content, stop):
    """{oid: (tid, class)} of the objects that there are."""
    found = {}
    for transaction in transactions(content):
        if transaction.tid <= stop:
            for record in transaction.records:
                if record.length or record.back:
                    found[record.oid] = record.tid, class_of(
                        data_at(content, record))
                else:
                    found.pop(record.oid, None)
    return found


def freed(before, after, stop):
    """{class: its row}, found in the files before and after a pack."""
    rows = collections.defaultdict(lambda: [0, 0, 0])
    left = set()
    for content, sign in (before, 1), (after, -1):
        for transaction in transactions(content):
            for record in transaction.records:
                row = rows[class_of(data_at(content, record))]
                row[1] += sign
                row[2] += sign * (record.end - record.position)
                if sign < 0:
                    left.add((record.oid, record.tid))
    for oid, (number, name) in current_at(before, stop).items():
        rows[name][0] += (oid, number) not in left
    return {name: {'class': name, **dict(zip(COUNTS, row))}
            for name, row in rows.items() if any(row)}


class Forecasts(TestCase):

    level = 2
    packed = test_oracle.Oracle.ours

    def forecast(self, content, stop, gc, tell=lambda *progress: None):
        """The forecast, and the lines of the blobs that would go."""
        with open(self.path(), 'wb') as file:
            file.write(content)
        removed = datafile.open_new(self.path('removed'))
        with datafile.open_existing(self.path()) as old, removed:
            found = work.foreseen(
                work.Job(stop, len(content), gc), work.Files(old, removed),
                tell)
            with open(self.path('removed'), 'rb') as file:
                return found, file.read().split()

    def compare(self, content, stop, gc, has_duplicates=False):
        """Return what the pack has made of it."""
        packed = self.packed(content, stop, gc)
        if packed == oracle.MISSING:
            return packed
        found, lines = self.forecast(content, stop, gc)
        self.assertEqual(found['old_size'], len(content))
        foreseen = found['rows']
        self.assertEqual(
            [found['freed'] - found['transactions'], found['objects'],
             found['records']],
            [sum(row[name] for row in foreseen)
             for name in ('bytes', 'objects', 'records')])
        if packed == oracle.NOTHING:
            self.assertEqual(
                (found['freed'], found['needed'], foreseen), (0, 0, []))
            return packed
        self.assertEqual(found['new_size'], len(packed.content))
        self.assertEqual(sorted(lines), sorted(packed.removed))
        rows = {row['class']: row for row in foreseen}
        really = freed(content, packed.content, stop)
        if has_duplicates:
            # Which of two records is left, oid and tid do not tell.
            for row in *rows.values(), *really.values():
                del row['objects']
        self.assertEqual(rows, really)
        return packed

    @settings(max_examples=often(20, 500))
    @given(strategies.randoms(use_true_random=False), strategies.booleans(),
           strategies.booleans(), strategies.sampled_from([0, .35, .7]),
           strategies.booleans())
    def test_what_the_pack_then_does(self, rng, gc, sealed, undos, twice):
        history = History(rng, Options(
            rng.randrange(1, 20), sealed=sealed, undos=undos, twice=twice,
            dangling=rng.random() < .1, classes=3))
        content = bytes(history)
        for _ in range(2):
            packed = self.compare(
                content, tid(rng.randrange(-1, history.last + 2)), gc,
                history.has_duplicates)
            if isinstance(packed, str):
                break
            content = packed.content

    def test_many_classes(self):
        """The report has a bound, and its sums are right."""
        history = History(random.Random(1), Options(
            30, undos=0, classes=OBJECTS))
        content = bytes(history)
        whole, _ = self.forecast(content, tid(25), True)
        rows = whole['rows']
        self.assertGreater(len(rows), 3)
        with mock.patch.object(counting, 'MOST_LISTED', 2):
            found, _ = self.forecast(content, tid(25), True)
        self.assertEqual(found['rows'], [*rows[:2], {
            'class': f'({len(rows) - 2} more)',
            **{name: sum(row[name] for row in rows[2:]) for name in COUNTS}}])
        for name in 'new_size', 'freed', 'transactions', 'objects':
            self.assertEqual(found[name], whole[name])

    def test_one_record_that_is_wrapped(self):
        """What it refers to is not known, though it stays."""
        storage = self.open()
        commit(storage, {0: b'.z' + bytes(20), 1: b'x'})
        storage.close()
        with open(self.path(), 'rb') as file:
            content = file.read()
        with self.assertRaisesRegex(ValueError, 'wrapped by another storage'):
            self.forecast(content, b'\xff' * 8, True)

    def test_what_points_back_to_what_goes(self):
        """Without garbage collection its data come in the place of the
        pointer."""
        longer = 0
        for number in range(often(20, 60)):
            history = History(random.Random(number), Options(14, undos=.7))
            content = bytes(history)
            stop = tid(number % 14)
            self.compare(content, stop, False)
            found, _ = self.forecast(content, stop, False)
            longer += any(row['bytes'] < 0 for row in found['rows'])
        self.assertGreater(longer, 0)
