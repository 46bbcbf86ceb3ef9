"""A pack begins a generation: every point before it and behind it is restored,
at every moment, whatever dies meanwhile.
"""

import contextlib
import hashlib
import itertools
import os
import random
import shutil
import time

import transaction
from persistent.mapping import PersistentMapping
from ZODB import DB
from ZODB.blob import Blob
from ZODB.FileStorage import FileStorage
from ZODB.serialize import referencesf
from ZODB.utils import z64

from fsyncstorage.backup import content
from fsyncstorage.backup import head as heads
from fsyncstorage.backup import restore
from fsyncstorage.backup import segment
from fsyncstorage.backup import verification
from fsyncstorage.backup.prefix import Unreachable
from fsyncstorage.backup.restore import NotRestored
from fsyncstorage.backup.store import StoreError
from fsyncstorage.backup.timeline import History
from fsyncstorage.backup.uploader import Stopped
from fsyncstorage.format import scan
from fsyncstorage.pack import agreed

from ..often import often
from ..support import begin
from ..support import commit
from ..support import oid
from .shipped import DATABASE
from .shipped import Shipped

RUNS = often(3, 300, 1)


class Packed(Shipped):

    def setUp(self):
        super().setUp()
        #: Each Data.fs that was packed, when it was, and the one that is.
        self.files = []
        self._restored = 0

    def change(self, number, data=b'data'):
        found = self.storage._index.get(oid(number))
        serial = self.storage.load(oid(number))[1] if found else z64
        return commit(self.storage, {number: data}, {number: serial})

    def change_blob(self, number, data=b'blob'):
        found = self.storage._index.get(oid(number))
        serial = self.storage.load(oid(number))[1] if found else z64
        return self.commit_blob(number, data, serial=serial)

    def pack(self, when=None, gc=False):
        before = self.content_of_file()
        self.storage.pack(when or time.time(), referencesf, gc=gc)
        self.assertNotEqual(before, self.content_of_file())
        self.files.append(before)

    def put_base(self, uploader):
        while uploader.put_more_of_base():
            pass

    def history(self, number=1):
        return History(self.store, DATABASE, number)

    def restored(self, target=None, number=1):
        """The bytes of a Data.fs, and the names of its blobs."""
        self._restored += 1
        name = f'R{self._restored}.fs'
        found = restore.restore(
            self.history(number), self.path(name), self.path(f'{name}.blobs'),
            target)
        data = self.content_of_file(name)
        self.assertEqual(len(data), found.size)
        blobs = self.names_of_blobs(self.path(f'{name}.blobs'))
        self.assertEqual(len(blobs), found.blobs)
        os.remove(self.path(name))
        shutil.rmtree(self.path(f'{name}.blobs'))
        return data, blobs

    def names_of_blobs(self, directory):
        return {os.path.relpath(os.path.join(path, name), directory)
                for path, _, names in os.walk(directory) for name in names
                if name.endswith('.blob')}

    def check_newest(self, number=1):
        self.assertEqual(self.restored(number=number), (
            self.content_of_file(),
            self.names_of_blobs(self.storage.fshelper.base_dir)))

    def verified(self, number=1):
        found = verification.verify(self.history(number), True)
        self.assertEqual(found.problems, [])
        self.assertEqual(found, verification.verify(self.history(number)))
        return found

    def check_points(self):
        """Each point of each file that was packed, and of the last one, is the
        beginning of it."""
        before = z64
        for data in [*self.files, self.content_of_file()]:
            for found in scan.transactions(segment.Window(
                    lambda length, at: data[at:at + length], len(data))):
                if found.tid > before:
                    self.assertEqual(
                        self.restored(found.tid)[0], data[:found.end])
                    before = found.tid


class Generations(Packed):

    def write(self):
        for number in range(3):
            self.change(number)
            self.change_blob(number + 10)
        self.change(0, b'again')
        self.change_blob(10, b'again')

    def test_it_is_restored_before_its_base_is_there_and_afterwards(self):
        for number in range(3):
            self.write()
            uploader = self.uploader()
            uploader.ship()
            self.write()
            self.pack()
            self.change(5)
            self.change_blob(15)
            uploader.ship()
            found = self.verified()
            self.assertEqual((found.packs, found.bases), (number + 1, number))
            self.check_newest()
            self.put_base(uploader)
            self.assertEqual(self.verified().bases, number + 1)
            self.check_newest()

    def test_a_pack_that_collects_garbage(self):
        root = DB(self.storage).open().root()
        for number in range(5):
            root[number] = PersistentMapping({0: Blob(b'%d' % number)})
            transaction.commit()
        uploader = self.uploader()
        uploader.ship()
        del root[1], root[3]
        transaction.commit()
        self.pack(gc=True)
        root[7] = PersistentMapping()
        transaction.commit()
        uploader.ship()
        self.check_points()
        self.check_newest()
        self.put_base(uploader)
        self.check_newest()
        self.assertEqual(len(self.restored()[1]), 3)

    def test_each_point(self):
        uploader = self.uploader()
        for _ in range(3):
            self.write()
            uploader.ship()
            self.change(7, b'just before the pack')
            self.pack()
            self.change(8, b'just behind it')
        uploader.ship()
        self.check_points()
        self.put_base(uploader)
        self.check_points()

    def test_a_time_before_the_last_transactions(self):
        """Also where the pack leaves out all of some transactions."""
        uploader = self.uploader()
        self.change(1)
        self.change(2)
        self.change(1, b'again')
        when = time.time()
        self.change(3)
        self.change(3, b'again')
        uploader.ship()
        self.pack(when)
        uploader.ship()
        self.check_points()

    def test_an_undo_behind_the_time(self):
        uploader = self.uploader()
        self.change(1)
        self.change(2)
        self.change(2, b'again')
        when = time.time()
        self.change(1, b'again')
        self.undo()
        self.change(3)
        uploader.ship()
        self.pack(when)
        uploader.ship()
        self.check_points()

    def undo(self):
        undoing = begin(self.storage)
        self.storage.undo(self.storage.undoLog(0, 1)[0]['id'], undoing)
        self.storage.tpc_vote(undoing)
        self.storage.tpc_finish(undoing)

    def pack_twice(self):
        """Each file has a transaction that no other one has."""
        for number in range(2):
            self.change(7, b'in no other file')
            self.change(7, b'%d' % number)
            self.pack()
        self.change(8)

    def test_two_packs_in_one_period(self):
        """The writer has the first file open, and the second one is kept."""
        uploader = self.uploader()
        for _ in range(2):
            self.write()
            uploader.ship()
            self.pack_twice()
            uploader.ship()
            self.check_newest()
        self.check_points()
        self.put_base(uploader)
        self.check_points()

    def test_two_packs_while_no_writer_is_there(self):
        """Of what was shipped, and of what was committed then; also where the
        server was started again."""
        for is_same in True, False:
            self.write()
            self.uploader().ship()
            for _ in range(2):
                self.pack()
                self.change(7, b'in no other file')
                self.change(7)
            if not is_same:
                self.storage.close()
                self.storage = self.handed_out()
            self.uploader().ship()
            self.check_points()
            self.check_newest()

    def test_a_pack_that_leaves_all_that_was_shipped_as_it_was(self):
        """It changes only what was committed since, which the old file has."""
        self.write()
        self.pack()
        self.uploader().ship()
        self.files.clear()
        self.change(7, b'in no other file')
        self.change(7)
        self.pack()
        self.uploader().ship()
        self.check_points()

    def pack_the_last_transaction_away(self):
        """Its only object is garbage; only what was before it is shipped."""
        root = DB(self.storage).open().root()
        root[1] = gone = PersistentMapping()
        transaction.commit()
        self.uploader().ship()
        del root[1]
        transaction.commit()
        gone[0] = 'nothing refers to it'
        transaction.commit()
        self.pack(gc=True)

    def test_a_pack_that_drops_the_last_transaction(self):
        self.pack_the_last_transaction_away()
        uploader = self.uploader()
        uploader.ship()
        self.check_points()
        self.check_newest()

    def test_a_store_that_fails_behind_an_old_file(self):
        """What is put next knows by which storage that was open."""
        self.pack_the_last_transaction_away()
        create, puts = self.store.create, []

        def failing(key, data):
            if key.startswith('main/t000001/log/'):
                puts.append(key)
                if len(puts) == 2:
                    raise StoreError('away')
            create(key, data)

        self.store.create = failing
        with self.assertRaisesRegex(StoreError, 'away'):
            self.uploader()
        self.uploader().ship()
        self.check_newest()

    def test_a_pack_that_leaves_nothing_of_what_was_shipped(self):
        """What it has made is the begin of a later file alone."""
        before, after = self.change(0), self.change(0)
        self.pack()
        data = self.content_of_file()
        for tid, expected in (before, True), (after, False):
            self.assertEqual(expected, content.is_in(
                heads.Head(
                    heads.PACK, heads.ELSEWHERE, 0, scan.FIRST,
                    hashlib.sha256(data[:scan.FIRST]).digest(), tid=tid),
                lambda length, at: data[at:at + length], len(data)))

    def test_a_store_that_fails_once_behind_two_packs(self):
        """Before each request, or behind it."""
        for is_lost in False, True:
            for fails_at in itertools.count(1):
                with self.subTest(fails_at, is_lost=is_lost):
                    self.setUp()
                    uploader = self.uploader()
                    self.write()
                    uploader.ship()
                    self.pack_twice()
                    create, keys = self.store.create, []

                    def fail(key, data):
                        keys.append(key)
                        if len(keys) == fails_at and not is_lost:
                            raise StoreError('away')
                        create(key, data)
                        if len(keys) == fails_at:
                            raise StoreError('away')

                    self.store.create = fail
                    with contextlib.suppress(StoreError):
                        uploader.ship()
                    uploader.ship()
                    self.assertEqual(uploader.behind, 0)
                    self.check_newest()
                if len(keys) < fails_at:
                    break

    def test_an_answer_that_is_lost_behind_a_pack(self):
        """The writer alone has the rest of the old file."""
        self.patch(content, PART=400)
        uploader = self.uploader()
        self.write()
        uploader.ship()
        for number in range(6):
            self.change(7, b'in no other file %d' % number * 30)
        self.pack()
        os.remove(self.path('Data.fs.old'))
        create, lost = self.store.create, []

        def losing(key, data):
            create(key, data)
            if key.startswith('main/t000001/log/') and not lost:
                lost.append(key)
                raise StoreError('no answer')

        self.store.create = losing
        with self.assertRaisesRegex(StoreError, 'no answer'):
            uploader.ship()
        uploader.ship()
        self.check_newest()
        self.check_points()

    def test_a_restore_to_a_point_beside_an_old_file(self):
        """That has what came behind the point, and is no part of it."""
        self.write()
        uploader = self.uploader()
        uploader.ship()
        wanted = self.change(1, b'the point')
        uploader.ship()
        self.change(1, b'the accident')
        self.change(2)
        uploader.ship()
        self.pack()
        self.change(3)
        uploader.ship()
        self.storage.close()
        for name in 'Data.fs', 'Data.fs.index':
            os.remove(self.path(name))
        shutil.rmtree(self.path('Data.fs.blobs'))
        restore.restore(self.history(), self.path(),
                        self.path('Data.fs.blobs'), wanted)
        self.storage = self.handed_out()
        self.change(5, b'life goes on')
        self.uploader(new_timeline='restored').ship()
        self.check_newest(2)

    def test_something_else_in_the_place_of_the_old_file(self):
        self.write()
        self.uploader().ship()
        self.pack()
        self.change(7)
        for content in b'', b'FS21' + bytes(100), b'FS21' + b'\xff' * 30:
            os.remove(self.path('Data.fs.old'))
            with open(self.path('Data.fs.old'), 'xb') as file:
                file.write(content)
            objects = dict(self.store.objects)
            self.uploader().ship()
            self.check_newest()
            self.store.objects = objects

    def test_stock_opens_it(self):
        self.write()
        uploader = self.uploader()
        uploader.ship()
        self.pack()
        uploader.ship()
        restore.restore(self.history(), self.path('S.fs'),
                        self.path('S.fs.blobs'))
        storage = FileStorage(self.path('S.fs'),
                              blob_dir=self.path('S.fs.blobs'))
        self.addCleanup(storage.close)
        self.assertEqual(storage.load(oid(0))[0], b'again')

    def test_segments_go_on_beside_the_base(self):
        self.patch(content, PART=1000)
        for number in range(20):
            self.change(number, bytes(200))
        for number in range(40, 44):
            self.change_blob(number)
        self.change(0)
        uploader = self.uploader()
        uploader.ship()
        self.pack()
        steps = 0
        uploader.ship()
        while uploader.put_more_of_base():
            steps += 1
            self.change(30, b'%d' % steps)
            uploader.ship()
            self.check_newest()
        self.assertGreater(steps, 20)
        self.assertEqual(self.verified().bases, 1)
        self.check_newest()

    def test_a_base_does_not_read_blobs_that_are_there(self):
        self.write()
        uploader = self.uploader()
        uploader.ship()
        self.pack()
        uploader.ship()
        keys = []
        self.store.before = lambda method, key: keys.append((method, key))
        self.put_base(uploader)
        self.assertEqual([key for method, key in keys
                          if method == 'create' and '/blobs/' in key], [])
        self.store.before = lambda method, key: None
        self.check_newest()

    def test_a_pack_removes_blobs_that_a_base_names(self):
        """It ends in the middle of a step."""
        self.storage.close()
        self.storage = self.handed_out(pack_keep_old=False)
        uploader = self.uploader()
        self.write()
        uploader.ship()
        self.pack()
        uploader.ship()
        self.change_blob(10, b'once more')
        uploader.ship()
        packs = [self.pack]

        def before(method, key):
            if packs and (method, key) == ('list', DATABASE.blobs):
                packs.pop()()

        self.store.before = before
        with self.assertRaisesRegex(Unreachable, 'may have removed'):
            self.put_base(uploader)
        self.assertEqual(packs, [])
        uploader.ship()
        self.put_base(uploader)
        self.assertEqual(self.verified().missing, 0)
        self.check_newest()

    def test_whoever_dies_at_any_request(self):
        """The next one goes on, from what the pack has kept."""
        self.write()
        self.uploader().ship()
        shipped = dict(self.store.objects)
        self.write()
        self.pack()
        self.change(9)
        for number in itertools.count():
            self.store.objects = dict(shipped)
            uploader = None
            with self.store.failing(number) as failed, \
                    contextlib.suppress(StoreError):
                uploader = self.uploader()
                uploader.ship()
                self.put_base(uploader)
            if number % 2 or uploader is None:
                uploader = self.uploader()
            uploader.ship()
            self.check_newest()
            self.put_base(uploader)
            self.assertEqual(self.verified().bases, 1)
            if not failed:
                break
        self.check_points()
        self.assertGreater(number, 15)

    def test_another_uploader_has_put_a_later_base(self):
        self.write()
        late = self.uploader()
        late.ship()
        self.pack()
        late.ship()
        self.change(0, b'once more')
        self.pack()
        other = self.uploader()
        other.ship()
        self.put_base(other)
        self.put_base(late)
        late.ship()
        self.check_newest()

    def test_two_uploaders_of_one_file(self):
        """Both go on, and make one log, with one base a generation."""
        for seed in range(RUNS):
            chance = random.Random(seed)
            self.store.objects.clear()
            uploaders = [self.uploader(), self.uploader()]
            for number in range(30):
                self.change(number % 5, b'%d %d' % (seed, number))
                if not chance.randrange(8):
                    self.pack()
                uploader = chance.choice(uploaders)
                chance.choice([uploader.ship, uploader.beat,
                               uploader.put_more_of_base])()
            for uploader in uploaders:
                uploader.ship()
                self.put_base(uploader)
            with self.subTest(seed):
                self.assertEqual(uploaders[0].tip, uploaders[1].tip)
                self.verified()
                self.check_newest()


class WhatIsNoPack(Packed):

    def setUp(self):
        super().setUp()
        for number in range(3):
            self.change(number)
            self.change(number, b'again')
        self.uploader().ship()

    def test_a_copy_that_is_packed(self):
        """It lacks what the site has done since."""
        shutil.copyfile(self.path(), self.path('Copy.fs'))
        copy = self.handed_out('Copy.fs')
        self.change(1, b'of the site')
        self.uploader().ship()
        copy.pack(time.time(), None, gc=False)
        commit(copy, {8: b'of the copy'})
        with self.assertRaisesRegex(Stopped, '--new-timeline'):
            self.uploader('Copy.fs')

    def test_an_older_file_in_the_place_of_it(self):
        """Somebody has restored it by hand, and kept the other one."""
        shutil.copyfile(self.path(), self.path('Older.fs'))
        self.change(1, b'of the site')
        self.uploader().ship()
        self.end()
        os.rename(self.path(), self.path('Data.fs.old'))
        os.remove(self.path('Data.fs.index'))
        os.rename(self.path('Older.fs'), self.path())
        self.storage = self.handed_out()
        self.change(7)
        with self.assertRaisesRegex(Stopped, '--new-timeline'):
            self.uploader()

    def end(self):
        self.storage.close()

    def test_a_new_timeline_of_a_packed_copy(self):
        """It leaves the old one behind the pack, of which it has all."""
        uploader = self.uploader()
        self.pack()
        uploader.ship()
        shutil.copyfile(self.path(), self.path('Copy.fs'))
        self.change(1, b'of the site')
        uploader.ship()
        self.put_base(uploader)
        self.storage = self.handed_out('Copy.fs')
        self.change(1, b'of the copy')
        uploader = self.uploader('Copy.fs', new_timeline='a test')
        uploader.ship()
        begin = self.history(2).begins[-1]
        self.assertEqual(begin.sequence, 2)
        self.assertEqual(self.restored(number=2)[0],
                         self.content_of_file('Copy.fs'))
        self.verified(2)


class WhatIsLost(Packed):
    """The old file is gone before all of it was shipped."""

    def test_what_was_packed_before_it_was_shipped(self):
        first = self.change(1)
        self.uploader().ship()
        lost = self.change(1, b'never shipped')
        self.change(2)
        last = self.change(1, b'kept by the packs')
        self.pack()
        self.change(2, b'again')
        self.pack()
        later = self.change(4)
        with self.assertLogs('fsyncstorage', 'WARNING') as logs:
            uploader = self.uploader()
            uploader.ship()
        self.assertIn(first.hex(), logs.output[0])
        with self.assertRaisesRegex(heads.Damaged, 'base'):
            self.restored()
        self.put_base(uploader)
        self.check_newest()
        with self.assertRaisesRegex(NotRestored, first.hex()):
            self.restored(lost)
        self.assertEqual(self.restored(first)[0], self.files[0][
            :len(self.restored(first)[0])])
        self.assertEqual(self.restored(later)[0], self.content_of_file())
        self.assertLess(last, later)

    def test_a_start_that_finds_only_what_was_packed_later(self):
        """It cannot know whose file it is, unless the same server has it."""
        for is_same in True, False:
            with self.subTest(is_same):
                self.change(1)
                self.uploader().ship()
                for _ in range(2):
                    self.change(1, b'again')
                    self.pack()
                if is_same:
                    with self.assertLogs('fsyncstorage', 'WARNING'):
                        uploader = self.uploader()
                    uploader.ship()
                    self.put_base(uploader)
                    self.check_newest()
                    continue
                self.storage.close()
                self.storage = self.handed_out()
                with self.assertRaisesRegex(Stopped, '--new-timeline'):
                    self.uploader()

    def test_a_pack_of_another_packer(self):
        """Nothing is lost; but what is behind it needs its base."""
        self.patch(agreed, VERSION=b'0')
        self.change(1)
        self.change(1, b'again')
        self.change(2)
        uploader = self.uploader()
        uploader.ship()
        last = self.storage.lastTransaction()
        self.stock_packs()
        self.change(3)
        uploader = self.uploader()
        uploader.ship()
        with self.assertRaisesRegex(heads.Damaged, 'base.*--to ' + last.hex()):
            self.restored()
        self.put_base(uploader)
        self.check_newest()

    def stock_packs(self):
        self.storage.close()
        stock = FileStorage(self.path())
        stock.pack(time.time(), lambda data: [], gc=False)
        stock.close()
        os.remove(self.path('Data.fs.old'))
        self.storage = self.handed_out()


class AnyHistory(Packed):

    def test_each_point_of_it(self):
        for seed in range(RUNS):
            with self.subTest(seed):
                self.run_one(random.Random(seed))

    def run_one(self, chance):
        self.store.objects.clear()
        self.files.clear()
        self.storage.close()
        for name in os.listdir(self.directory):
            path = self.path(name)
            (shutil.rmtree if os.path.isdir(path) else os.remove)(path)
        self.storage = self.handed_out()
        self.patch(content, PART=chance.choice([500, 3000, 1 << 20]))
        uploader, times = self.uploader(), [time.time()]
        for _ in range(40):
            match chance.randrange(10):
                case 0 | 1 | 2 | 3:
                    self.change(chance.randrange(6), chance.randbytes(
                        chance.choice([5, 100, 700])))
                case 4:
                    self.change_blob(chance.randrange(10, 13))
                case 5 if len(times) > 5:
                    uploader.ship()  # else the old file may go too soon
                    before = self.content_of_file()
                    self.storage.pack(chance.choice(times[-5:]), None,
                                      gc=False)
                    if self.content_of_file() != before:
                        self.files.append(before)
                case 6:
                    uploader = self.uploader()
                case 7 | 8:
                    uploader.put_more_of_base()
                case _:
                    uploader.ship()
            times.append(time.time())
        uploader.ship()
        self.verified()
        self.check_points()
        if chance.randrange(2):
            self.put_base(uploader)
        self.check_newest()
