"""What was shipped is restored and verified: all of it, up to any point, or
not at all."""

import hashlib
import os
import random
import unittest
from datetime import datetime
from datetime import timezone

from ZODB.blob import LAYOUT_MARKER
from ZODB.FileStorage import FileStorage
from ZODB.TimeStamp import TimeStamp

from fsyncstorage.backup import ahead
from fsyncstorage.backup import bodies
from fsyncstorage.backup import content
from fsyncstorage.backup import head as heads
from fsyncstorage.backup import points
from fsyncstorage.backup import restore
from fsyncstorage.backup import timeline
from fsyncstorage.backup import verification
from fsyncstorage.backup.restore import NotRestored
from fsyncstorage.backup.store import StoreError
from fsyncstorage.backup.timeline import History

from ..support import TestCase
from ..support import commit
from ..support import oid
from .shipped import DATABASE
from .shipped import Shipped
from .shipped import operations


class Restored(Shipped):
    """With a history of some transactions and blobs, of which `tids` are."""

    def setUp(self):
        super().setUp()
        uploader = self.uploader()
        self.tids, self.ends = [], []
        for number in range(6):
            self.tids.append(
                self.commit_blob(number, b'blob %d' % number)
                if number % 2 else
                commit(self.storage, {number: b'data %d' % number}))
            self.ends.append(os.stat(self.path()).st_size)
            if number % 3 == 2:
                uploader.ship()
        self.shipped = dict(self.store.objects)

    def history(self, number=1):
        return History(self.store, DATABASE, number)

    def restore(self, target=None, name='Restored.fs', number=1, blobs=True):
        return restore.restore(
            self.history(number), self.path(name),
            self.path(f'{name}.blobs') if blobs else None, target)

    def verify(self, is_deep=False, number=1):
        return verification.verify(self.history(number), is_deep)

    def is_left(self, name='Restored.fs'):
        return [each for each in os.listdir(self.directory)
                if each.startswith(name)]

    def blobs_of(self, storage):
        """oid and tid -> content, of all blob files."""
        found = {}
        for directory, _, names in os.walk(storage.fshelper.base_dir):
            for name in names:
                if name != LAYOUT_MARKER:
                    path = os.path.join(directory, name)
                    with open(path, 'rb') as file:
                        found[storage.fshelper.splitBlobFilename(path)] = (
                            file.read())
        return found


class Newest(Restored):

    def test_the_same_bytes_and_blobs(self):
        found = self.restore()
        self.assertEqual(self.content_of_file('Restored.fs'),
                         self.content_of_file())
        self.assertEqual(
            (found.tid, found.size, found.blobs, found.missing),
            (self.tids[-1], self.ends[-1], 3, 0))
        self.assertEqual(sorted(self.is_left()), [
            'Restored.fs', 'Restored.fs.blobs'])

    def test_stock_opens_it(self):
        self.restore()
        storage = FileStorage(self.path('Restored.fs'),
                              blob_dir=self.path('Restored.fs.blobs'))
        self.addCleanup(storage.close)
        self.assertEqual(storage.lastTransaction(), self.tids[-1])
        self.assertEqual(self.blobs_of(storage), self.blobs_of(self.storage))
        with open(storage.loadBlob(oid(5), self.tids[5]), 'rb') as file:
            self.assertEqual(file.read(), b'blob 5')

    def test_many_segments_and_parts(self):
        self.patch(content, PART=500)
        self.patch(ahead, MOST_BYTES=2000)
        chance = random.Random(1)
        for number in range(20, 60):
            size = chance.choice([1, 10, 500, 501, 1001, 3000])
            if number % 4:
                commit(self.storage, {number: chance.randbytes(size)})
            else:
                self.commit_blob(number, chance.randbytes(size - 1))
        self.uploader().ship()
        self.restore()
        self.assertEqual(self.content_of_file('Restored.fs'),
                         self.content_of_file())
        self.assertEqual(self.verify(), self.verify(True))
        self.assertEqual(self.verify().problems, [])
        storage = FileStorage(self.path('Restored.fs'),
                              blob_dir=self.path('Restored.fs.blobs'))
        self.addCleanup(storage.close)
        self.assertEqual(self.blobs_of(storage), self.blobs_of(self.storage))

    def test_what_is_shipped_while_it_is_verified(self):
        uploader = self.uploader()

        def ship(method, key):
            if (method, key) == ('list', DATABASE.parts):
                self.store.before = lambda method, key: None
                self.commit_blob(9, b'new')
                uploader.ship()

        self.store.before = ship
        found = self.verify()
        self.assertEqual((found.blobs, found.problems), (4, []))

    def test_a_child_of_a_timeline(self):
        commit(self.storage, {10: b'more'})
        self.uploader(new_timeline='a test').ship()
        self.restore(number=2)
        self.assertEqual(self.content_of_file('Restored.fs'),
                         self.content_of_file())
        self.assertEqual(self.verify(True, 2).problems, [])

    def test_a_timeline_that_has_ended(self):
        self.history().end()
        self.restore()
        self.assertEqual(self.content_of_file('Restored.fs'),
                         self.content_of_file())
        self.assertTrue(self.verify().has_ended)

    def test_nothing_was_shipped(self):
        self.store.objects = {
            key: data for key, data in self.store.objects.items()
            if '/log/' not in key}
        with self.assertRaisesRegex(NotRestored, 'nothing was shipped'):
            self.restore()
        self.assertEqual(self.is_left(), [])

    def test_what_was_missing_is_missing(self):
        tid = self.commit_blob(9, b'lost')
        os.remove(self.storage.fshelper.getBlobFilename(oid(9), tid))
        with self.assertLogs('fsyncstorage', 'WARNING'):
            self.uploader().ship()
        self.assertEqual(self.restore().missing, 1)
        self.assertEqual((self.verify().missing, self.verify().problems),
                         (1, []))


class Points(Restored):

    def test_each_transaction(self):
        for number, (tid, end) in enumerate(zip(self.tids, self.ends)):
            with self.subTest(number):
                name = f'{number}.fs'
                found = self.restore(tid, name)
                self.assertEqual((found.tid, found.size, found.blobs),
                                 (tid, end, (number + 1) // 2))
                self.assertEqual(self.content_of_file(name),
                                 self.content_of_file()[:end])
                FileStorage(self.path(name),
                            blob_dir=self.path(f'{name}.blobs')).close()

    def test_between_transactions(self):
        for number, tid in enumerate(self.tids):
            later = (int.from_bytes(tid, 'big') + 1).to_bytes(8, 'big')
            self.assertEqual(self.restore(later, f'{number}.fs').tid, tid)

    def test_before_the_first(self):
        with self.assertRaisesRegex(NotRestored, 'so old'):
            self.restore(bytes(8))
        self.assertEqual(self.is_left(), [])


class NothingIsOverwritten(Restored):

    def test_what_is_there_is_named(self):
        for name in ('Restored.fs', 'Restored.fs.part', 'Restored.fs.index',
                     'Restored.fs.blobs.part'):
            with self.subTest(name):
                with open(self.path(name), 'x') as file:
                    file.write('precious')
                with self.assertRaisesRegex(
                        NotRestored, f'{name} is there, and'):
                    self.restore()
                with open(self.path(name)) as file:
                    self.assertEqual(file.read(), 'precious')
                self.assertEqual(self.is_left(), [name])
                os.remove(self.path(name))

    def test_a_directory_of_blobs(self):
        os.mkdir(self.path('Restored.fs.blobs'))
        self.restore()  # it is empty
        os.remove(self.path('Restored.fs'))
        with self.assertRaisesRegex(NotRestored, 'blobs is there'):
            self.restore()

    def test_a_file_that_comes_meanwhile(self):
        def come(method, key):
            if '/blobs/' not in key:
                return
            self.store.before = lambda method, key: None
            with open(self.path('Restored.fs'), 'x') as file:
                file.write('precious')

        self.store.before = come
        with self.assertRaisesRegex(NotRestored, 'is there now'):
            self.restore(blobs=True)
        with open(self.path('Restored.fs')) as file:
            self.assertEqual(file.read(), 'precious')

    def test_blobs_without_a_place(self):
        with self.assertRaisesRegex(NotRestored, 'name a directory'):
            self.restore(blobs=False)
        self.assertEqual(self.is_left(), [])
        self.restore(self.tids[0], blobs=False)

    def test_a_full_disk(self):
        """Nothing is left, and the next one works."""
        disk = self.controlled_disk()
        disk.fail_sync(OSError(28, 'No space left on device'))
        with self.assertRaises(OSError):
            self.restore()
        self.assertEqual(self.is_left(), [])
        self.restore()

    def test_all_is_durable_before_it_has_its_names(self):
        """First the blobs, then the Data.fs."""
        log = operations(self)
        self.restore()
        root = os.path.basename(self.directory)
        self.assertEqual(log[-4:], [
            'replace Restored.fs.blobs', f'names in {root}',
            'link Restored.fs', f'names in {root}'])
        self.assertEqual(sum(each.startswith('sync 0x')
                             for each in log[:-4]), 3)
        for each in ('sync Restored.fs.part', f'sync {LAYOUT_MARKER}',
                     'names in Restored.fs.blobs.part', 'names in 0x05'):
            self.assertIn(each, log[:-4])
        del log[:]
        self.restore(self.tids[0], 'Empty.fs')
        self.assertIn('names in Empty.fs.blobs.part', log)

    def test_a_store_that_goes_away(self):
        with self.store.failing(8), self.assertRaisesRegex(StoreError, 'away'):
            self.restore()
        self.assertEqual(self.is_left(), [])


class Damage(Restored):
    """Of each object, in each way: a restore and a verification find it."""

    def each_kind(self):
        """The last of each kind of object that counts."""
        kinds = {}
        for key in self.store.objects:
            if not key.endswith('heartbeat'):
                kinds[key.split('/')[1:3:1][0] + (
                    key.split('/')[2] if '/t0' in key else '')] = key
        return [*kinds.values()]

    def check(self, key, is_shallow=True):
        for is_deep in {True, not is_shallow}:
            found = self.problems(is_deep)
            self.assertTrue(found, key)
            self.assertIn(key, ' '.join(found))
        with self.assertRaises(heads.Damaged) as caught:
            self.restore()
        self.assertIn(key, str(caught.exception))
        self.assertNotIn('\n', str(caught.exception))
        self.assertEqual(self.is_left(), [])

    def problems(self, is_deep):
        try:
            return self.verify(is_deep).problems
        except heads.Damaged as error:  # of the begin
            return [str(error)]

    def test_it_is_sound_before(self):
        for is_deep in False, True:
            found = self.verify(is_deep)
            self.assertEqual(found.problems, [])
            self.assertEqual(
                (found.segments, found.size, found.blobs, found.last),
                (2, self.ends[-1], 3, self.tids[-1]))

    def test_a_flipped_bit(self):
        for key in self.each_kind():
            data = self.store.objects[key]
            for at in 9, 100, heads.SIZE, len(data) - 1:
                with self.subTest(key=key, at=at):
                    flipped = bytearray(data)
                    flipped[at] ^= 4
                    self.store.objects[key] = bytes(flipped)
                    self.check(key, is_shallow=False)
            self.store.objects[key] = data

    def test_one_that_is_cut_off(self):
        for key in self.each_kind():
            data = self.store.objects[key]
            for length in 0, 100, heads.SIZE, len(data) - 1:
                with self.subTest(key=key, length=length):
                    self.store.objects[key] = data[:length]
                    self.check(key)
            self.store.objects[key] = data

    def test_one_that_is_missing(self):
        for key in self.each_kind():
            if key.endswith('/log/000000000001'):
                continue  # nothing tells of the last one
            with self.subTest(key):
                data = self.store.objects.pop(key)
                self.check(key)
                self.store.objects[key] = data

    def test_a_part(self):
        self.patch(content, PART=1000)
        commit(self.storage, {10: bytes(1500)})
        self.commit_blob(11, bytes(range(256)) * 10)
        self.uploader().ship()
        self.assertEqual(self.verify().problems, [])
        self.assertGreater(len(self.keys('parts/')), 4)
        for key in self.keys('parts/'):
            data = self.store.objects[key]
            flipped = bytearray(data)
            flipped[-1] ^= 1
            self.store.objects[key] = bytes(flipped)
            self.check(key, is_shallow=False)
            self.store.objects[key] = data[:-1]
            self.check(key)
            del self.store.objects[key]
            self.check(key)
            self.store.objects[key] = data

    def test_a_gap(self):
        self.commit_blob(10, b'more')
        self.uploader().ship()
        key = DATABASE.timeline(1).segment(1)
        del self.store.objects[key]
        self.check(key)
        self.assertEqual(self.verify().segments, 2)

    def test_one_in_the_place_of_another(self):
        """Sound in itself."""
        names = DATABASE.timeline(1)
        one, two = (self.store.objects[names.segment(number)]
                    for number in (0, 1))
        self.store.objects[names.segment(1)] = one
        self.check(names.segment(1))
        self.store.objects[names.segment(1)] = two
        blobs = self.keys('blobs/')
        self.store.objects[blobs[0]] = self.store.objects[blobs[1]]
        self.check(blobs[0], is_shallow=False)

    def test_what_is_sound_before_the_damage_is_named(self):
        """Of a segment, and of a blob in it."""
        for key in DATABASE.timeline(1).segment(1), self.keys('blobs/')[-1]:
            with self.subTest(key):
                self.store.objects = {**self.shipped, key: b'x'}
                with self.assertRaisesRegex(
                        heads.Damaged, self.tids[2].hex()):
                    self.restore()
                name = os.path.basename(key)
                self.assertEqual(
                    self.restore(self.tids[2], name).tid, self.tids[2])

    # By a hostile store, whose sums are right

    def change_last(self, change=lambda body: body, **changes):
        key = DATABASE.timeline(1).segment(1)
        data = self.store.objects[key]
        body = change(data[heads.SIZE:])
        head = heads.unpack(data, (heads.SEGMENT,))._replace(
            plain=hashlib.sha256(body).digest(), **changes)
        self.store.objects[key] = head.pack() + body
        return head

    def test_a_transaction_that_is_damaged(self):
        self.change_last(lambda body: body.replace(b'data 4', b'DATA 4'))
        with self.assertRaisesRegex(heads.Damaged, 'checksum'):
            self.restore()

    def test_a_tid_that_is_not_the_last_one(self):
        self.change_last(tid=self.tids[4])
        with self.assertRaisesRegex(heads.Damaged, 'does not rise'):
            self.restore()

    def test_a_segment_that_is_longer_than_its_head_says(self):
        self.change_last(lambda body: body + b'x')
        for is_deep in False, True:
            self.assertTrue(self.verify(is_deep).problems)
        with self.assertRaisesRegex(heads.Damaged, 'its head'):
            self.restore()

    def test_a_list_that_is_not_its_segments(self):
        one, two = self.keys('t000001/lists/')
        self.store.objects[two] = self.store.objects[one]
        with self.assertRaisesRegex(heads.Damaged, 'another list'):
            self.restore()
        self.assertTrue(self.verify().problems)

    def test_a_segment_behind_the_end(self):
        names, tip = DATABASE.timeline(1), self.uploader().tip
        body = bodies.document({})
        end = timeline.head_of(heads.END, body, tip.sum)
        self.store.objects[names.segment(2)] = end.pack() + body
        commit(self.storage, {8: b'data'})
        data = self.content_of_file()[tip.position:]
        self.store.objects[names.segment(3)] = heads.Head(
            heads.SEGMENT, heads.WHOLE, tip.position,
            tip.position + len(data), hashlib.sha256(data).digest(),
            tid=self.storage.lastTransaction(), oid=oid(8),
            before=end.sum).pack() + data
        self.assertRegex(self.verify().problems[0], 'behind the end')
        with self.assertRaisesRegex(heads.Damaged, 'behind the end'):
            self.restore()


class Texts(unittest.TestCase):
    """Points that an operator names."""

    def test_times_are_utc(self):
        expected = TimeStamp(2027, 1, 31, 14, 30, 5).raw()
        for text in ('2027-01-31T14:30:05', '2027-01-31 14:30:05Z',
                     '2027-01-31T15:30:05+01:00'):
            self.assertEqual(points.tid_of(text), expected)
        self.assertEqual(points.tid_of('2027-01-31'),
                         TimeStamp(2027, 1, 31, 0, 0, 0).raw())
        self.assertEqual(points.time_of(expected), '2027-01-31T14:30:05.000Z')

    def test_tids(self):
        self.assertEqual(points.tid_of('03d2a5b6c7e8f901'),
                         bytes.fromhex('03d2a5b6c7e8f901'))

    def test_others(self):
        for text in ('', 'yesterday', '03d2', '2027-13-01', '1' * 17,
                     '1200-01-01', '0001-01-01T00:00:00+10:00'):
            with self.assertRaisesRegex(ValueError, 'neither a time'):
                points.tid_of(text)

    def test_each_tid_has_a_time(self):
        for tid in bytes(8), b'\xff' * 8:
            self.assertRegex(points.time_of(tid), '^....-..-..T.*Z$')

    def test_now(self):
        now = datetime.now(timezone.utc)
        self.assertEqual(points.time_of(points.tid_of(now.isoformat()))[:19],
                         now.isoformat()[:19])


class Ahead(TestCase):

    def test_the_order_is_kept(self):
        found = ahead.read_ahead(
            range(100), lambda item: 1, lambda item: item * 2)
        self.assertEqual([*found], [(item, item * 2) for item in range(100)])

    def test_no_more_than_allowed_is_in_memory(self):
        self.patch(ahead, MOST_BYTES=100)
        begun = []
        for item, _ in ahead.read_ahead(
                range(1, 50), lambda item: 30, begun.append):
            self.assertLessEqual(len(begun) - item + 1, 4)

    def test_one_that_is_larger_than_allowed(self):
        self.patch(ahead, MOST_BYTES=100)
        self.assertEqual(len([*ahead.read_ahead(
            range(5), lambda item: 1000, str)]), 5)

    def test_an_error_comes_in_its_turn(self):
        def read(item):
            if item == 3:
                raise StoreError('away')

        found = ahead.read_ahead(range(100), lambda item: 1, read)
        for _ in range(3):
            next(found)
        with self.assertRaises(StoreError):
            next(found)
