"""The walk through a Data.fs: what it reads, and that it finds all damage.

And the block that a view keeps: fewer reads, and never what may still change.
"""

import io
import os
import random
import time
from unittest import mock

import transaction
import ZODB
from hypothesis import HealthCheck
from hypothesis import strategies
from ZODB._compat import PersistentPickler
from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.FileStorage.FileStorage import FileIterator
from ZODB.serialize import referencesf
from ZODB.tests.MinPO import MinPO
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

from fsyncstorage.format import headers
from fsyncstorage.format import scan
from fsyncstorage.format import seal
from fsyncstorage.format.view import BLOCK
from fsyncstorage.format.view import PAGE
from fsyncstorage.format.view import View
from fsyncstorage.format.window import Window
from fsyncstorage.storage.conflicts import UnpublishedView

from ..generated import given
from ..generated import settings
from ..often import often
from ..support import TestCase
from ..support import commit
from ..support import oid
from .sealing import NOTHING
from .sealing import changed
from .sealing import number
from .sealing import positions
from .sealing import read
from .sealing import sealed
from .sealing import small_file
from .sealing import stock_file
from .sealing import window_of
from .sealing import write


def walked(data, position=scan.FIRST, after=None):
    return list(scan.walk(window_of(data), position, after))


def verdicts(data):
    """What the seals say; fails where there is damage."""
    return [found.seal for found
            in scan.transactions(window_of(data))]


def damages(data):
    return [found for found in walked(data) if isinstance(found, scan.Damage)]


def end_of_header(data, position):
    return scan.read_transaction(
        window_of(data), position).records[0].position


class CountingWindow(Window):
    """Of bytes; counts what was read."""

    def __init__(self, data):
        self.bytes_read = 0

        def pread(length, position):
            found = data[position:position + length]
            self.bytes_read += len(found)
            return found
        super().__init__(pread, len(data))


class ScanCase(TestCase):

    def files(self):
        """The same content from stock, sealed, and partly sealed."""
        stock = self.varied_file()
        return {
            'stock': stock,
            'sealed': sealed(stock),
            'mixed': sealed(stock, lambda index: index % 3 == 1),
        }

    def varied_file(self):
        """With an undo, metadata, and a transaction without records."""
        db = ZODB.DB(FileStorage(self.path('varied.fs')))
        with db.transaction() as connection:
            root = connection.root()
            for each in range(5):
                root[each] = MinPO(each)
        for each in range(5):
            with db.transaction() as connection:
                connection.transaction_manager.get().setUser('somebody')
                connection.transaction_manager.get().note('text')
                connection.transaction_manager.get().setExtendedInfo('a', each)
                connection.root()[each].value = 'x' * 100 * each
        db.undo(db.undoLog(0, 1)[0]['id'])
        transaction.commit()
        db.undo(db.undoLog(0, 1)[0]['id'])
        transaction.commit()
        db.close()
        return read(self.path('varied.fs'))


class WalkTests(ScanCase):

    def test_it_reads_what_stock_reads(self):
        for name, data in self.files().items():
            with self.subTest(name):
                path = self.path(name)
                write(path, data)
                window = window_of(data)
                self.assertEqual(
                    [(found.tid, found.status.decode(), found.user,
                      found.description, found.field,
                      [(record.oid, record.tid, record.position)
                       for record in found.records])
                     for found in scan.transactions(window)],
                    [(each.tid, each.status, each.user, each.description,
                      each.extension_bytes,
                      [(record.oid, record.tid, record.pos)
                       for record in each])
                     for each in FileIterator(path)])

    @settings(suppress_health_check=list(HealthCheck), deadline=None,
              max_examples=often(10, 50))
    @given(strategies.integers(1, 2000))
    def test_the_window_does_not_matter(self, window):
        for data in self.some_files():
            expected = walked(data)
            with mock.patch.multiple(Window, SIZE=window, LARGEST=window):
                self.assertEqual(walked(data), expected)

    def some_files(self):
        if not hasattr(self, '_some_files'):
            self._some_files = [
                *self.files().values(), small_file(self.path('small'), 5)]
        return self._some_files

    def test_large_records_are_read_once_and_only_for_a_seal(self):
        size = 10 * Window.SIZE
        stock = stock_file(self.path(), [
            ({0: b'x' * size, 1: NOTHING, 2: b'y' * size}, {}),
            ({0: b'x' * size}, {})])
        unsealed = CountingWindow(stock)
        self.assertEqual(len(list(scan.transactions(unsealed))), 2)
        self.assertLess(unsealed.bytes_read, 8 * Window.SIZE)
        data = sealed(stock)
        window = CountingWindow(data)
        self.assertEqual(
            [found.seal for found in scan.transactions(window)],
            [seal.SOUND] * 2)
        self.assertLess(window.bytes_read, len(data) + 4 * Window.SIZE)

    def test_undone_transactions_of_ancient_times(self):
        # Stock skips what is in them.
        data = small_file(self.path(), 3)
        second = positions(data)[1]
        data = changed(data, end_of_header(data, second), b'rubbish' * 6)
        data = changed(data, second + 16, b'u')
        self.assertEqual(
            [(found.status, len(found.records)) for found in walked(data)],
            [(b' ', 1), (b'u', 0), (b' ', 1)])

    def test_tids_that_do_not_rise_are_told_once(self):
        for tids in [1, 2, 9, 3, 4], [1, 2, 3, 3, 4]:
            data = small_file(self.path(str(tids)), len(tids))
            for at, tid in zip(positions(data), tids):
                data = changed(data, at, number.pack(tid))
            *_, damage, last = walked(data)
            self.assertEqual(damage.tid, number.pack(3))
            self.assertIn('rise', damage.reason)
            self.assertEqual(last.tid, number.pack(4))
            self.assertEqual(len(damages(data)), 1)


class KindOfDamageTests(ScanCase):

    def test_every_length_of_the_file(self):
        for name, data in self.files().items():
            if name == 'stock':
                continue
            ends = positions(data)
            for size in sorted({*ends, *range(
                    scan.FIRST, len(data), often(3, 1, 11))}):
                found = walked(data[:size])
                whole = [end for end in ends[1:] if end <= size]
                self.assertEqual(
                    [each.end for each in found[:len(whole)]], whole)
                if size in ends:
                    self.assertEqual(len(found), len(whole))
                    continue
                damage = found[-1]
                self.assertEqual(len(found), len(whole) + 1)
                self.assertEqual(
                    (damage.position, damage.kind, damage.end),
                    (ends[len(whole)], scan.SHORT, size))
                has_header = size - damage.position >= scan.HEADER
                self.assertEqual(
                    damage.tid,
                    data[damage.position:][:8] if has_header else None)

    def test_a_file_that_gets_shorter_while_it_is_read(self):
        data = sealed(small_file(self.path(), 5))
        cut = Window(
            window_of(data[:-10]).pread, len(data))
        *_, last = scan.walk(cut)
        self.assertEqual(last.kind, scan.SHORT)

    def test_unfinished(self):
        for name, data in self.files().items():
            with self.subTest(name):
                for found in walked(data):
                    damage, = damages(
                        changed(data, found.position + 16, b'c'))
                    self.assertEqual(
                        (damage.position, damage.tid, damage.kind, damage.end),
                        (found.position, found.tid, scan.UNFINISHED,
                         found.end))
                    # A seal says what the status will be.
                    self.assertEqual(
                        damage.transaction.status,
                        b' ' if found.seal == seal.SOUND else b'c')
                    self.assertEqual(damage.transaction.seal, found.seal)

    def test_structure(self):
        data = small_file(self.path(), 3)
        first, second, third, end = positions(data)
        record = end_of_header(data, second)
        for position, new, reason in [
                (second + 8, b'\1', 'does not fit its length'),
                (second + 15, b'\x10', 'does not fit its length'),
                (second + 16, b'x', "status is b'x'"),
                (second + 17, b'\1', 'does not fit its length'),
                (second + 18, b'\1', 'does not belong'),
                (record + 16, b'\1', 'points forward'),
                (record + 31, b'\1', 'does not belong'),
                (record + 33, b'\1', 'does not belong'),
                (record + 41, b'\x05', 'add up'),
                (third - 1, b'\1', 'redundant transaction length'),
                ]:
            with self.subTest(position=position - second, reason=reason):
                damage, = damages(changed(data, position, new))
                self.assertEqual(
                    (damage.position, damage.kind, damage.end),
                    (second, scan.DAMAGED, third))
                self.assertIn(reason, damage.reason)

    def test_back_pointers_to_what_comes_later(self):
        data = self.varied_file()
        *_, last = walked(data)
        pointer = last.records[0].position + scan.RECORD_HEADER
        for back in last.position, last.end, 1 << 60:
            damage, = damages(changed(data, pointer, number.pack(back)))
            self.assertEqual(damage.position, last.position)
            self.assertIn('points forward', damage.reason)

    def test_bytes_behind_the_extension(self):
        data = stock_file(self.path(), [
            ({0: NOTHING}, {}),
            ({0: NOTHING}, {'extension': b'}.' + b'x' * seal.SIZE}),
            ({0: NOTHING}, {'extension': b'}.rubbish'})])
        first, damage, third = walked(data)
        self.assertEqual(third.seal, seal.ABSENT)
        self.assertEqual(damage.position, first.end)
        self.assertEqual(damage.end, third.position)
        self.assertIn('left of a seal', damage.reason)

    def test_transactions_raises_the_first(self):
        data = small_file(self.path(), 3)
        second = positions(data)[1]
        found = scan.transactions(
            window_of(changed(data, second + 16, b'x')))
        self.assertEqual(next(found).position, scan.FIRST)
        with self.assertRaisesRegex(scan.Damage, f'transaction at {second} '):
            next(found)


class EveryByteTests(TestCase):
    """Each single changed byte in a sealed file is found, and its transaction
    is named, and no other."""

    TRANSACTIONS = often(12, 200, 6)

    def setUp(self):
        super().setUp()
        self.data = sealed(small_file(self.path(), self.TRANSACTIONS))
        self.whole = walked(self.data)
        self.assertEqual(
            [found.seal for found in self.whole],
            [seal.SOUND] * self.TRANSACTIONS)

    def assert_found(self, index, position, value):
        """The walk comes to that transaction in the same state as in the
        sound file, so it may begin there; and behind it, it goes on in the
        same state, so it may end there."""
        whole = self.whole[index]
        after = self.whole[index - 1] if index else None
        walk = scan.walk(
            window_of(changed(self.data, position, value)),
            whole.position, after)
        found = next(walk)
        offset = position - whole.position
        if (index, offset, value) == (0, 16, ord('p')):
            # What stock's pack would make of it.  It is seen in the number
            # of sound seals only.
            self.assertEqual(found.seal, seal.MOVED)
            self.assertEqual(next(walk), self.whole[1])
            return
        self.assertIsInstance(found, scan.Damage)
        self.assertEqual(found.position, whole.position)
        self.assertEqual(found.end, whole.end)
        self.assertEqual(
            found.kind,
            scan.UNFINISHED if (offset, value) == (16, ord('c'))
            else scan.DAMAGED)
        if offset >= 8:
            self.assertEqual(found.tid, whole.tid)
        if index + 1 < len(self.whole):
            self.assertEqual(next(walk), self.whole[index + 1])

    def bytes_of(self, index):
        found = self.whole[index]
        return range(found.position, found.end)

    def test_three_values_for_every_byte(self):
        other = random.Random(4)
        count = 0
        for index in range(self.TRANSACTIONS):
            for position in self.bytes_of(index):
                old = self.data[position]
                for change in 1, 0x80, other.randrange(2, 0x80):
                    self.assert_found(index, position, old ^ change)
                    count += 1
        self.assertEqual(count, 3 * (len(self.data) - scan.FIRST))

    def test_every_value_for_some(self):
        last = self.TRANSACTIONS - 1
        for index in often((last,), (0, 1, last // 2, last), ()):
            for position in self.bytes_of(index):
                for change in range(1, 256, often(4, 1)):
                    self.assert_found(
                        index, position, self.data[position] ^ change)


class StockToolsTests(ScanCase):
    """What stock packs or copies has lost its seals; it is not damaged."""

    def sealed_database(self):
        write(self.path(), sealed(self.varied_file()))

    def pack(self):
        storage = FileStorage(self.path())
        storage.pack(time.time(), referencesf)
        storage.close()
        return read(self.path())

    def test_pack(self):
        self.sealed_database()
        packed = self.pack()
        self.assertIn(seal.MAGIC, packed)
        self.assertEqual(set(verdicts(packed)), {seal.MOVED})

    def test_pack_that_leaves_the_first_transactions_in_their_place(self):
        # They get another status, and some lose records.
        data = sealed(stock_file(self.path(), [
            ({0: references(1, 2)}, {}), ({1: NOTHING, 2: NOTHING}, {}),
            ({3: NOTHING}, {}), ({2: NOTHING}, {}), ({1: NOTHING}, {})]))
        write(self.path(), data)
        packed = self.pack()
        self.assertEqual(positions(packed)[:2], positions(data)[:2])
        self.assertEqual(set(verdicts(packed)), {seal.MOVED})

    def test_pack_of_what_was_packed_and_sealed(self):
        # The position and the status stay as the seal knows them.
        stock = stock_file(self.path(), [
            ({0: references(1, 2), 1: NOTHING, 2: NOTHING}, {}),
            ({1: NOTHING}, {})])
        data = sealed(b''.join([
            stock[:scan.FIRST + 16], b'p', stock[scan.FIRST + 17:]]))
        self.assertEqual(verdicts(data), [seal.SOUND] * 2)
        write(self.path(), data)
        packed = self.pack()
        self.assertLess(positions(packed)[1], positions(data)[1])
        self.assertEqual(verdicts(packed), [seal.MOVED] * 2)

    def test_only_the_first_transactions_can_be_packed(self):
        data = sealed(small_file(self.path(), 3))
        second = positions(data)[1]
        damage, = damages(changed(data, second + 16, b'p'))
        self.assertEqual(damage.position, second)
        self.assertEqual(damage.transaction.seal, seal.SOUND)

    def test_copy(self):
        self.sealed_database()
        source = FileStorage(self.path())
        copy = FileStorage(self.path('copy'))
        copy.copyTransactionsFrom(source)
        copy.close()
        source.close()
        self.assertEqual(
            set(verdicts(read(self.path('copy')))), {seal.SOUND})


def references(*numbers):
    """The record of an object that refers to these."""
    file = io.BytesIO()
    pickler = PersistentPickler(
        lambda each: each if isinstance(each, bytes) else None, file, 3)
    pickler.dump(None)
    pickler.dump([oid(each) for each in numbers])
    return file.getvalue()


class BehindDamageTests(ScanCase):

    def test_headers_are_lost(self):
        for name, data in self.files().items():
            whole = walked(data)
            for first in range(len(whole) - 1):
                for count in 1, 2, 3:
                    with self.subTest(name, first=first, count=count):
                        self.lose(data, whole, first, count)

    def lose(self, data, whole, first, count):
        lost = whole[first:first + count]
        for found in lost:
            data = changed(data, found.position, bytes(scan.HEADER))
        rest = whole[first + count:]
        found = walked(data)
        self.assertEqual(found[:first], whole[:first])
        damage = found[first]
        self.assertEqual(damage.position, lost[0].position)
        self.assertEqual(
            damage.end, rest[0].position if rest else len(data))
        self.assertEqual(found[first + 1:], rest)

    @settings(suppress_health_check=list(HealthCheck), deadline=None)
    @given(strategies.data())
    def test_nothing_else_is_lost(self, draw):
        if not hasattr(self, 'whole'):
            self.data = sealed(self.varied_file())
            self.whole = walked(self.data)
        data = self.data
        for _ in range(draw.draw(strategies.integers(1, 3))):
            at = draw.draw(strategies.integers(scan.FIRST, len(data) - 1))
            new = draw.draw(strategies.one_of(
                strategies.binary(min_size=1, max_size=100),
                strategies.integers(1, 2000).map(bytes)))
            data = changed(data, at, new[:len(data) - at])
        untouched = [
            found for found in self.whole
            if data[found.position:found.end]
            == self.data[found.position:found.end]]
        found = walked(data)
        whole = [
            each for each in found if not isinstance(each, scan.Damage)]
        # What has lost its seal without a trace is believed, and if its tid
        # was changed to a later one, what follows is not.
        if all(each.seal == seal.SOUND for each in whole):
            self.assertEqual(whole, untouched)
        self.assertEqual(
            [scan.FIRST] + [each.end for each in found],
            [each.position for each in found] + [len(data)])

    @settings(deadline=None)
    @given(strategies.binary(max_size=300))
    def test_rubbish(self, rubbish):
        data = b'FS30' + rubbish
        found = walked(data)
        self.assertEqual(
            [scan.FIRST] + [each.end for each in found],
            [each.position for each in found] + [len(data)])
        list(headers.find_sound_seals(window_of(data), 0))

    def test_a_data_file_in_a_pickle(self):
        inner = stock_file(self.path('inner'), [
            ({}, {}), ({0: NOTHING}, {}), ({}, {}), ({1: NOTHING}, {})])
        inner = sealed(inner) + inner
        for outer_seal in False, True:
            stock = stock_file(self.path(f'outer-{outer_seal}'), [
                ({0: NOTHING}, {}), ({1: b'N.' + inner}, {}),
                ({0: NOTHING}, {})])
            data = sealed(stock) if outer_seal else stock
            first, second, third = walked(data)
            window = window_of(data)
            self.assertEqual(
                [position for position, _
                 in headers.find_sound_seals(window, 0)],
                [4, second.position, third.position] if outer_seal else [])
            for damaged in (
                    changed(data, second.position, bytes(scan.HEADER)),
                    changed(data, second.position + 16, b'x'),
                    changed(data, second.records[0].position, bytes(42))):
                _, damage, behind = walked(damaged)
                self.assertEqual(damage.position, second.position)
                self.assertEqual(behind, third)


class SealSearchTests(ScanCase):

    def setUp(self):
        super().setUp()
        self.data = sealed(self.varied_file(), lambda index: index != 2)
        self.whole = walked(self.data)

    def found(self, data, start=0):
        return [position for position, _ in headers.find_sound_seals(
            window_of(data), start)]

    def test_it_finds_what_is_sealed(self):
        expected = [found.position for found in self.whole
                    if found.seal == seal.SOUND]
        for window in 50, 64, Window.SIZE:
            with mock.patch.object(Window, 'SIZE', window):
                self.assertEqual(self.found(self.data), expected)

    def test_a_torn_transaction(self):
        whole = self.whole[4]
        record = whole.records[0].position
        torn = changed(self.data, record, bytes(whole.end - record))
        self.assertEqual(self.found(torn), self.found(self.data))
        cut = self.data[:record]
        self.assertEqual(self.found(cut)[-1], whole.position)

    def test_a_seal_that_lost_its_header(self):
        whole = self.whole[4]
        torn = changed(self.data, whole.position, bytes(scan.HEADER))
        self.assertNotIn(whole.position, self.found(torn))


class BackPointerTests(ScanCase):

    def setUp(self):
        super().setUp()
        self.data = sealed(self.varied_file())
        self.back, _ = [
            record for found in walked(self.data)
            for record in found.records if record.back]

    def test_pointers_to_nothing(self):
        other = [record for found in walked(self.data)
                 for record in found.records
                 if record.oid != self.back.oid][0]
        for wrong in (3, 4, self.back.back - 1, self.back.back + 1,
                      self.back.position, other.position,
                      len(self.data) - 10, 1 << 60):
            with self.subTest(wrong), self.assertRaisesRegex(
                    scan.Damage, 'no record of its object'):
                scan.Chains(window_of(self.data)).source(
                    self.back._replace(back=wrong))


class Block(TestCase):

    def reads(self):
        """Positions that are read from now on."""
        positions = []

        def pread(number, length, position):
            positions.append(position)
            return os.pread(number, length, position)

        self.patch(View, pread=staticmethod(pread))
        return positions

    def test_what_was_stored_together_is_read_together(self):
        storage = self.open()
        commit(storage, {number: b'%03d' % number for number in range(50)})
        reads = self.reads()
        for number in range(50):
            self.assertEqual(storage.load(oid(number))[0], b'%03d' % number)
        self.assertEqual(len(reads), 1)

    def test_a_commit_between_changes_nothing(self):
        storage = self.open()
        serial = commit(storage, {1: b'one', 2: b'two'})
        storage.load(oid(1))
        commit(storage, {1: b'changed'}, {1: serial})
        reads = self.reads()
        self.assertEqual(storage.load(oid(2))[0], b'two')
        self.assertEqual(reads, [])
        self.assertEqual(storage.load(oid(1))[0], b'changed')

    def test_records_of_any_length(self):
        storage = self.open()
        lengths = [1, PAGE - 50, PAGE - 42, PAGE, BLOCK - 42, BLOCK,
                   2 * BLOCK, 10, 3000, 3000]
        data = {number: bytes([65 + number]) * length
                for number, length in enumerate(lengths)}
        commit(storage, data)
        for first in range(len(lengths)):
            for second in range(len(lengths)):
                for number in first, second:
                    self.assertEqual(
                        storage.load(oid(number))[0], data[number])

    def write_alone(self, storage, data):
        """Vote: it is behind the end of the file, and not appended."""
        transaction = TransactionMetaData()
        storage.tpc_begin(
            transaction, p64(u64(storage.lastTransaction()) + 1000))
        storage.store(oid(1), z64, data, '', transaction)
        storage.tpc_vote(transaction)
        return transaction

    @staticmethod
    def behind(storage):
        """The position of the first record behind the end."""
        header = storage._read_txn_header(storage.getSize())
        return storage.getSize() + header.headerlen()

    def test_what_is_behind_the_end_is_not_kept(self):
        storage = self.open()
        commit(storage, {0: b'data'})
        aborted = self.write_alone(storage, b'aborted')
        self.assertGreater(os.path.getsize(self.path()), storage.getSize())
        storage.load(oid(0))
        UnpublishedView(storage.journal.view).record(
            oid(1), self.behind(storage))
        storage.tpc_abort(aborted)
        storage.tpc_finish(self.write_alone(storage, b'changed'))
        self.assertEqual(storage.load(oid(1))[0], b'changed')
