"""What `fsync-info` adds up, and the paths: as the tools of ZODB find them."""

import collections
import contextlib
import os
import random

import transaction
import ZODB
from ZODB.FileStorage import FileStorage
from ZODB.scripts import analyze
from ZODB.serialize import referencesf
from ZODB.tests.MinPO import MinPO
from ZODB.utils import z64

from fsyncstorage.format import scan

from ..format.sealing import read
from ..format.sealing import window_of
from ..support import commit
from ..support import oid
from .infocase import LARGE
from .infocase import InfoCase
from .infocase import record


class StockTests(InfoCase):
    """As the tools of ZODB find it, in random histories."""

    def history(self, seed):
        """Objects of several classes, that refer to each other."""
        other = random.Random(seed)
        with contextlib.closing(FileStorage(self.path())) as storage:
            serials = {}
            for _ in range(60):
                keys = other.sample(range(40), 3) if serials else range(40)
                made = {key: record(
                    f'Class{key % 5}',
                    *other.sample(range(50), other.choice([0, 0, 1, 2])),
                    more=b'C' + bytes([size]) + bytes(size))
                    for key in keys for size in [other.randrange(200)]}
                last = commit(storage, made, serials)
                serials.update(dict.fromkeys(made, last))

    def stock(self):
        found = analyze.Report()
        with contextlib.closing(
                FileStorage(self.path(), read_only=True)) as storage:
            for each in storage.iterator():
                analyze.analyze_trans(found, each)
        return found

    def test_totals(self):
        for seed in range(5):
            self.history(seed)
            report = self.report('--top', '100')
            stock = self.stock()
            self.assertEqual(
                [report['transactions'], report['records'],
                 report['objects'], report['bytes']['current'],
                 report['bytes']['old']],
                [stock.TIDS, stock.OIDS, stock.COIDS, stock.CBYTES,
                 stock.FBYTES])
            rows = report['classes']['listed']
            self.assertEqual(
                {row['class']: row['records'] for row in rows},
                stock.TYPEMAP)
            self.assertEqual(
                {row['class']: row['all'] for row in rows}, stock.TYPESIZE)
            os.remove(self.path())

    def test_totals_after_undos(self):
        """Stock counts the data that an undo points to once more."""
        db = ZODB.DB(self.open())
        other = random.Random(1)
        first = db.undoLog(0, 1)
        for _ in range(40):
            log = [each for each in db.undoLog(0, 10) if each not in first]
            if log and other.random() < .4:
                with contextlib.suppress(ZODB.POSException.UndoError):
                    db.undo(other.choice(log)['id'])
                    transaction.commit()
                transaction.abort()
            else:
                with db.transaction() as connection:
                    connection.root()[other.randrange(5)] = MinPO(
                        'x' * other.randrange(99))
        db.close()
        stock = self.stock()
        report = self.report()
        self.assertEqual(
            [report['transactions'], report['records']],
            [stock.TIDS, stock.OIDS])
        data = scan_data(read(self.path()))
        self.assertEqual(
            report['bytes']['current'] + report['bytes']['old'], data)
        self.assertLess(data, stock.DBYTES)

    def test_paths_and_what_is_not_reached(self):
        found_lost = found_long = 0
        for seed in range(20):
            self.history(seed)
            with contextlib.closing(
                    FileStorage(self.path(), read_only=True)) as storage:
                refers = {key: set(referencesf(storage.load(key)[0]))
                          for key in map(oid, range(40))}
            distances = {z64: 0}
            row = collections.deque([z64])
            while row:
                key = row.popleft()
                for target in refers[key]:
                    if target in refers and target not in distances:
                        distances[target] = distances[key] + 1
                        row.append(target)
            report = self.report('--by', 'oid', '--top', '100')
            self.assertEqual(len(report['largest']), 40)
            for each in report['largest']:
                key = bytes.fromhex(each['oid'])
                if key not in distances:
                    self.assertIsNone(each['path'])
                    continue
                path = [bytes.fromhex(step['oid']) for step in each['path']]
                self.assertEqual((path[0], path[-1]), (z64, key))
                self.assertEqual(len(path) - 1, distances[key])
                for before, after in zip(path, path[1:]):
                    self.assertIn(after, refers[before])
                found_long = max(found_long, len(path))
            self.assertEqual(
                report['unreachable']['objects'], 40 - len(distances))
            found_lost += 40 - len(distances)
            os.remove(self.path())
        self.assertGreater(found_lost, 0)
        self.assertGreater(found_long, 4)

    def test_a_long_path_is_shortened(self):
        with contextlib.closing(FileStorage(self.path())) as storage:
            commit(storage, {
                **{key: record('Step', key + 1) for key in range(99)},
                99: LARGE})
        row = self.report('--by', 'oid', '--top', '1')['largest'][0]
        numbers = [int(step['oid'], 16) for step in row['path']]
        self.assertEqual(numbers, [*range(10), *range(90, 100)])
        self.assertEqual(row['path_left_out'], 80)
        _, out, _ = self.run_info('--by', 'oid')
        self.assertIn('(80 more)', ' '.join(out.split()))


def scan_data(data):
    return sum(each.length for found in scan.transactions(window_of(data))
               for each in found.records)
