"""What a client stores never decides whether a file opens."""

import shutil

from fsyncstorage.errors import DiskError
from fsyncstorage.errors import WritingStopped
from fsyncstorage.format import scan
from fsyncstorage.format import seal
from fsyncstorage.format.window import Window
from fsyncstorage.storage.recovery import DamagedFile

from ..format import hostilefiles
from ..support import TestCase
from ..support import Thread
from ..support import begin
from ..support import commit
from ..support import oid
from ..support import vote

BEFORE_DATA = scan.HEADER + seal.room(b'') + scan.RECORD_HEADER


def lookalikes(storage, size, before=BEFORE_DATA):
    """Data of the one record of the next transaction."""
    return hostilefiles.with_lookalikes(
        b'x' * size, storage._pos + before)


class FrameCase(TestCase):

    def watched(self, **options):
        """A storage; of what it writes, the file as it was before."""
        self.disk = self.controlled_disk()
        storage = self.open(**options)
        self.first = commit(storage, {1: b'first' * 99})
        self.copies = []

        def copy(data, position):
            name = f'copy-{len(self.copies)}.fs'
            shutil.copy(self.path(), self.path(name))
            self.copies.append((name, position, len(data)))

        self.disk.before_write = copy
        return storage


class KilledProcess(FrameCase):

    def test_within_a_transaction(self):
        """Its header is written last, if it takes several writes."""
        self.die(BEFORE_DATA)

    def test_within_one_that_has_no_room_for_a_seal(self):
        size = 65530
        self.die(scan.HEADER + scan.RECORD_HEADER + size,
                 extension=b'}.' * (size // 2))

    def die(self, before, **metadata):
        storage = self.watched()
        data = lookalikes(storage, 2_200_000, before)
        transaction = begin(storage, **metadata)
        for number in range(2, 4):
            storage.store(oid(number), bytes(8), data, '', transaction)
        storage.tpc_vote(transaction)
        tid = storage.tpc_finish(transaction)
        self.disk.before_write = lambda data, position: None
        self.assertGreater(len(self.copies), 4)
        for name, _, _ in self.copies:
            found = self.open(name)
            self.assertIn(found.lastTransaction(), (self.first, tid))
            found.close()


class Syncs(FrameCase):

    def test_the_frame_is_durable_before_the_content(self):
        storage = self.watched()
        start, log = storage._pos, self.disk.log
        del log[:]
        commit(storage, {2: lookalikes(storage, 3000)})
        self.assertEqual(log, ['write', 'write', 'sync', 'write', 'sync'])
        self.assertEqual(
            [(position - start, size)
             for _, position, size in self.copies[:2]],
            [(0, scan.HEADER), (BEFORE_DATA + 3000, 8)])

    def test_no_other_transaction_has_one(self):
        storage = self.watched()
        content = lookalikes(storage, 3000)
        commit(storage, {1: b'x'}, {1: self.first})
        del self.disk.log[:]
        commit(storage, {2: b'x' * 3000})
        commit(storage, {3: content})  # that was made for another place
        self.assertEqual(self.disk.log, ['write', 'sync'] * 2)

    def test_it_is_erased_before_it_is_cut_off(self):
        storage = self.watched()
        start, log = storage._pos, self.disk.log
        transaction = begin(storage)
        storage._begun[id(transaction)].alone = True
        storage.store(oid(2), bytes(8), lookalikes(storage, 3000), '',
                      transaction)
        storage.tpc_vote(transaction)
        del log[:]
        storage.tpc_abort(transaction)
        self.assertEqual(log, ['write', 'sync', 'truncate'])
        _, position, size = self.copies[-1]
        self.assertEqual((position - start, size),
                         (scan.HEADER, BEFORE_DATA + 3000 - scan.HEADER))

    def test_one_that_fails_is_final(self):
        """I7"""
        storage = self.watched()
        size = storage.getSize()
        self.disk.fail_sync(OSError(5, 'Input/output error'))
        with self.assertRaises(WritingStopped):
            commit(storage, {2: lookalikes(storage, 3000)})
        with self.assertRaises(DiskError):
            commit(storage, {2: b'x'})
        self.assertEqual(storage.lastTransaction(), self.first)
        storage.close()
        found = self.open()
        self.assertEqual(found.lastTransaction(), self.first)
        self.assertEqual(found.getSize(), size)

    def test_others_beside_it_are_published(self):
        """I10"""
        storage = self.watched()
        self.disk.hold_syncs()
        first = Thread(commit, storage, {2: b'x'})
        self.disk.wait_for_sync()
        others = [Thread(commit, storage, {number: b'y'})
                  for number in range(3, 6)]
        transaction = vote(storage, {9: b'z'})
        self.disk.release_syncs()
        tids = [each.result() for each in [first, *others]]
        storage.tpc_finish(transaction)
        last = commit(storage, {7: lookalikes(storage, 3000)})
        self.assertEqual(storage.lastTransaction(), last)
        self.assertLess(max(tids), last)


class Damage(FrameCase):

    def test_it_is_found_around_and_within_lookalikes(self):
        storage = self.open()
        for number in range(5):
            commit(storage, {number: lookalikes(storage, 400)
                             if number % 2 else b'x' * 90})
        starts = [each.position for each in scan.transactions(
            Window.of_file(storage._file.fileno()))]
        with open(self.path(), 'rb') as file:
            content = file.read()
        self.assertEqual(len(starts), 5)
        path = self.path('damaged.fs')
        for number, (start, end) in enumerate(zip(starts, starts[1:])):
            for at in range(start, end, 5):
                changed = bytearray(content)
                changed[at] ^= 0x10
                with open(path, 'wb') as file:
                    file.write(changed)
                with self.assertRaisesRegex(
                        DamagedFile, f'transaction at {start}[^0-9]'):
                    self.open('damaged.fs')
            for lost in range(start, end, 64):
                changed = bytearray(content)
                changed[lost:lost + 64] = bytes(64)
                with open(path, 'wb') as file:
                    file.write(changed)
                with self.assertRaises(DamagedFile):
                    self.open('damaged.fs')
