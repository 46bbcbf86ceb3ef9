"""What is removed: afterwards, every kept point is restored, and nothing else
is left.
"""

import hashlib
import os
import random
import shutil
import threading
import time
from unittest import mock

from ZODB.utils import z64

from fsyncstorage.backup import bodies
from fsyncstorage.backup import commandline
from fsyncstorage.backup import content
from fsyncstorage.backup import head as heads
from fsyncstorage.backup import points
from fsyncstorage.backup import restore
from fsyncstorage.backup import timeline
from fsyncstorage.backup import verification
from fsyncstorage.backup.prune import prune
from fsyncstorage.backup.restore import NotRestored
from fsyncstorage.backup.store import StoreError
from fsyncstorage.backup.timeline import History
from fsyncstorage.backup.uploader import Stopped

from ..often import often
from ..support import PATIENCE
from ..support import commit
from ..support import oid
from ..support import run_command
from .shipped import DATABASE
from .shipped import Shipped

RUNS = often(1, 20)
DAY = 86_400
KEPT = 30 * DAY


class Clock(Shipped):
    """Days pass at once."""

    def setUp(self):
        self.now = 1_800_000_000.0
        self.patch(time, time=lambda: self.now)
        super().setUp()
        self.name, self.number = 'Data.fs', 1

    def pass_time(self, seconds):
        self.now += seconds

    def change(self, number, data=b'data'):
        self.pass_time(60)
        found = self.storage._index.get(oid(number))
        serial = self.storage.load(oid(number))[1] if found else z64
        if data is None:
            return self.commit_blob(
                number, b'%f' % self.now, self.storage, serial)
        return commit(self.storage, {number: data}, {number: serial})

    def pack(self, days=0):
        self.storage.pack(self.now - days * DAY, None, gc=False)

    def ship(self, uploader, with_base=True):
        uploader.ship()
        while with_base and uploader.put_more_of_base():
            pass
        uploader.beat()

    def history(self, number=1):
        return History(self.store, DATABASE, number)

    def prune(self, kept=KEPT, **options):
        since = self.now - kept
        return prune(self.store, DATABASE, points.tid_of_time(since), since,
                     **options)

    def sum_at(self, target, number=1):
        """Of the Data.fs that a restore makes."""
        paths = self.path('R.fs'), self.path('R.fs.blobs')
        restore.restore(self.history(number), *paths, target)
        data = self.content_of_file('R.fs')
        os.remove(paths[0])
        shutil.rmtree(paths[1])
        return hashlib.sha256(data).digest()

    def sum_of_file(self):
        return hashlib.sha256(self.content_of_file(self.name)).digest()


class Pruned(Clock):

    def setUp(self):
        super().setUp()
        self.up = self.uploader()
        self.old = self.change(1, None)
        self.change(1, None)
        self.ship(self.up)
        self.pass_time(DAY)
        self.pack()
        self.between = self.change(2)
        self.ship(self.up)

    def test_nothing_goes_while_it_is_needed(self):
        before = dict(self.store.objects)
        self.assertEqual(self.prune().objects, 0)
        self.assertEqual(self.store.objects, before)

    def test_a_generation_goes_with_its_blobs(self):
        self.pass_time(KEPT)
        self.change(3)
        self.ship(self.up)
        foretold = self.prune(is_dry=True)
        self.assertEqual(len(self.keys('blobs/')), 2)
        found = self.prune()
        self.assertEqual(found, foretold)
        self.assertGreater(found.size, 0)
        self.assertEqual(len(self.keys('blobs/')), 1)
        self.assertEqual(len(self.keys('t000001/log/')), 3)
        self.assertEqual(self.sum_at(None), self.sum_of_file())
        self.assertEqual(verification.verify(self.history()).problems, [])
        with self.assertRaisesRegex(NotRestored, 'was removed'):
            self.sum_at(self.old)
        self.assertEqual(self.prune().objects, 0)

    def test_the_writer_goes_on(self):
        self.pass_time(KEPT)
        self.prune()
        self.change(3)
        self.ship(self.up)
        self.change(4)
        self.ship(self.uploader())
        self.assertEqual(self.sum_at(None), self.sum_of_file())

    def test_a_late_writer_stops(self):
        """It has slept since before the pack, and its number is free now."""
        self.pass_time(KEPT)
        late = self.uploader()
        late.tip = timeline.START
        self.prune()
        with self.assertRaisesRegex(Stopped, 'lost some'):
            late.beat()

    def test_no_base_is_there_yet(self):
        self.pass_time(DAY)
        self.change(2)
        self.pack()
        self.ship(self.up, with_base=False)
        self.pass_time(KEPT)
        self.prune()
        self.assertEqual(self.sum_at(None), self.sum_of_file())

    def test_nothing_goes_if_what_stays_is_damaged(self):
        self.pass_time(KEPT)
        key, = self.keys('t000001/bases/')
        self.store.objects[key] = self.store.objects[key][:-1]
        before = dict(self.store.objects)
        with self.assertRaisesRegex(heads.Damaged, 'nothing is removed'):
            self.prune()
        self.assertEqual(self.store.objects, before)

    def test_the_end_of_an_old_timeline_stays(self):
        """So its writer does not go on when it wakes up."""
        late, tip = self.uploader(), self.up.tip
        self.history().end()
        self.uploader(new_timeline='a test')
        self.pass_time(KEPT)
        self.change(1)
        self.pack()
        self.uploader(new_timeline='another').ship()
        self.prune()
        self.assertEqual(len(self.keys('t000001/')), 3)
        self.assertEqual(self.history().last()[0], tip.sequence)
        with self.assertRaisesRegex(Stopped, 'taken over'):
            late.ship()

    def test_a_store_that_answers_slowly(self):
        """Several objects go at a time, and none costs a list."""
        for number in range(20):
            self.change(4)
            self.ship(self.up)
        self.pack()
        self.ship(self.up)
        self.pass_time(KEPT)
        self.change(4)
        self.ship(self.up)
        delete, several, lists = self.store.delete, threading.Event(), []
        met = []

        def wait_for_another(key):
            if '/log/' in key:
                met.append(key)
                if len(met) > 1:
                    several.set()
                self.assertTrue(several.wait(PATIENCE))
            delete(key)

        def count(method, key):
            if method == 'list':
                lists.append(key)

        self.store.delete, self.store.before = wait_for_another, count
        self.assertGreater(self.prune().objects, 20)
        self.assertLess(len(lists), 20)

    def test_one_that_dies_is_finished_by_the_next(self):
        self.patch(content, PART=500)
        self.change(6, bytes(2000))
        self.change(6, bytes(1000))
        self.ship(self.up)
        self.pack()
        self.ship(self.up)
        self.pass_time(KEPT)
        self.change(3)
        self.ship(self.up)
        parts = len(self.keys('parts/'))
        whole = dict(self.store.objects)
        self.prune()
        self.assertLess(len(self.keys('parts/')), parts)
        pruned, self.store.objects = self.store.objects, dict(whole)
        delete = self.store.delete
        for count in range(len(whole) - len(pruned)):
            self.store.objects = dict(whole)
            left = [None] * count

            def die(key):
                if not left:
                    raise StoreError('away')
                left.pop()
                delete(key)

            self.store.delete = die
            with self.assertRaises(StoreError):
                self.prune()
            self.store.delete = delete
            self.assertEqual(self.sum_at(None), self.sum_of_file())
            self.uploader()
            self.prune()
            self.assertEqual(self.store.objects, pruned)

    def test_parts_of_a_base_that_was_never_complete(self):
        self.patch(content, PART=500)
        for _ in range(3):
            self.change(6)
            self.change(6, os.urandom(2000))
            self.pack()
            self.ship(self.up, with_base=False)
            before = self.keys('parts/')
            while self.keys('parts/') == before:
                self.assertTrue(self.up.put_more_of_base())
        self.change(6)
        self.pack()
        self.ship(self.up)
        self.pass_time(KEPT)
        self.change(7)
        self.ship(self.up)
        self.assertGreater(len(self.keys('parts/')), 3)
        self.prune(0)
        self.assertEqual(self.keys('parts/'), [])
        self.assertEqual(self.sum_at(None), self.sum_of_file())

    def test_a_list_meanwhile(self):
        """Something goes before each of its requests."""
        self.history().end()
        for _ in range(2):
            self.up = self.uploader(new_timeline='a test')
            self.pass_time(KEPT)
            for _ in range(3):
                self.change(1, None)
                self.ship(self.up)
            self.pack()
            self.ship(self.up)
        self.patch(commandline, opened=lambda name: self.store)
        whole, deletions = dict(self.store.objects), self.deletions()
        for count in range(len(deletions)):
            self.store.objects, left = dict(whole), deletions[:]

            def remove_one(method='', key=''):
                if left:
                    self.store.objects.pop(left.pop(0))

            for _ in range(count):
                remove_one()
            self.store.before = remove_one
            status, out, err = run_command(commandline.main, 'list', 'store')
            self.store.before = lambda method, key: None
            self.assertEqual((status, out.count('\n'), err), (0, 3, ''))
        self.assertGreater(count, 10)

    def deletions(self):
        """The keys that a prune removes, in its order."""
        with mock.patch.object(self.store, 'delete') as deleted:
            self.prune()
        return [key for (key,), _ in deleted.call_args_list]

    def test_others_meanwhile(self):
        """Whatever is removed already, a backup starts, goes on over a pack,
        and says how it stands."""
        for number in range(12):
            self.pass_time(DAY)
            self.change(4)
            self.ship(self.up)
            if number % 4 == 1:
                self.pack()
        self.pass_time(KEPT)
        self.change(4)
        self.ship(self.up)
        for number, key in enumerate(self.deletions()):
            self.store.delete(key)
            self.assertEqual(self.history().packs()[-1][1].generation,
                             self.up.tip.generation)
            self.change(5)
            self.ship(self.uploader())
            if not number % 4:
                self.pack()
            self.ship(self.up)
            self.assertEqual(self.sum_at(None), self.sum_of_file())
        self.assertGreater(number, 12)
        self.assertEqual(self.prune().objects, 0)


class AYear(Clock):

    def test_every_kept_point_and_nothing_else(self):
        for seed in range(RUNS):
            with self.subTest(seed):
                self.live(random.Random(seed))

    def live(self, chance):
        self.store.objects.clear()
        self.name, self.number = f'Y{self.now}.fs', 1
        self.storage = self.handed_out(self.name)
        #: For each timeline: each point, with the sum of the file then.
        self.points = {1: {}}
        uploader = self.uploader(self.name)
        for day in range(365):
            for _ in range(chance.randrange(3)):
                tid = self.change(chance.randrange(8), chance.choice([
                    None, b'%f' % self.now, bytes(500)]))
                self.points[self.number][tid] = self.sum_of_file()
            uploader.ship()
            if not chance.randrange(9):
                self.pack(chance.choice([0, 1, 5]))
            self.ship(uploader, with_base=chance.randrange(3))
            if not chance.randrange(60):
                uploader = self.go_back(chance)
            if not chance.randrange(8):
                self.prune()
            if not chance.randrange(100):
                self.check()
            self.pass_time(DAY - self.now % DAY)
        self.ship(uploader)
        self.prune()
        self.check()

    def live_histories(self):
        """Those with a point that is kept; and where each begins."""
        for number in self.points:
            log = [*self.store.list(DATABASE.timeline(number).log)]
            if number == self.number or log and (
                    log[-1].time >= self.now - KEPT):
                yield number, self.history(number)

    def go_back(self, chance):
        """Go on with what is restored of some kept point, on a timeline of
        its own."""
        kept = [tid for tid in self.points[self.number]
                if tid >= points.tid_of_time(self.now - KEPT)]
        if not kept:
            return self.uploader(self.name)
        target = chance.choice(kept)
        name = f'Y{self.now}.fs'
        restore.restore(self.history(self.number), self.path(name),
                        self.path(f'{name}.blobs'), target)
        self.storage.close()
        self.storage, self.name = self.handed_out(name), name
        self.points[self.number + 1] = {
            tid: sum for tid, sum in self.points[self.number].items()
            if tid <= target}
        self.number += 1
        return self.uploader(name, new_timeline='restored')

    def check(self):
        """All that is kept is there; and what is there is needed, or behind
        something in its timeline that is needed."""
        self.prune()
        kept = points.tid_of_time(self.now - KEPT)
        needed = set()
        for number, history in self.live_histories():
            for tid, sum in self.points[number].items():
                if tid >= kept:
                    self.assertEqual(self.sum_at(tid, number), sum)
            start = history.start(kept)
            self.assertEqual(verification.verify(
                history, first=start).problems, [])
            needed |= {entry.key for _, entry in history.entries(start)}
        for number in self.points:
            log = self.keys(f't{number:06d}/log/')
            if log:
                first = min(needed & {*log}, default='none')[-12:]
                for kind in 'log', 'lists', 'bases':
                    for key in self.keys(f't{number:06d}/{kind}/'):
                        self.assertGreaterEqual(key.split('/')[3][:12], first)
        self.assertEqual(set(self.keys('blobs/')), self.blobs_of_lists())

    def blobs_of_lists(self):
        return {
            DATABASE.blob(blob.oid, blob.tid, blob.sum)
            for key in self.keys('') if '/lists/' in key
            for blob in bodies.read_blob_list(
                self.store.objects[key][heads.SIZE:])}
