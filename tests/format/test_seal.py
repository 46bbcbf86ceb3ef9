"""The seal: what it costs an extension, and what it finds."""

import contextlib
import pickle
import unittest
import zlib

from hypothesis import strategies
from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.FileStorage.FileStorage import FileStorageError

from fsyncstorage.format import scan
from fsyncstorage.format import seal
from fsyncstorage.format.window import Window

from ..generated import given
from ..generated import settings
from ..support import TestCase
from ..support import begin
from ..support import commit
from ..support import oid
from ..support import vote
from .sealing import forged
from .sealing import later_release
from .sealing import swallowing

DICT_PICKLE = b'\x80\x03}q\x00X\x01\x00\x00\x00aq\x01K\x01s.'
FRONT = b'header, user and description'
ID = b'sixteen bytes...'
RECORDS = zlib.crc32(b'records')


def make(extension, position=4):
    return seal.make(FRONT, extension, b' ', position, 100, 4, RECORDS)


class Seals(unittest.TestCase):

    def verdict(self, field, position=4, front=FRONT, records=RECORDS):
        return seal.verify(position, front, field, records)

    def test_nobody_sees_it(self):
        for extension in b'', DICT_PICKLE:
            field = make(extension)
            self.assertEqual(len(field),
                             len(extension) + seal.room(extension))
            self.assertEqual(seal.strip(field), extension)
            self.assertEqual(seal.strip(extension), extension)

    def test_it_has_all_that_it_was_made_of(self):
        made = seal.make(
            FRONT, b'', b'p', 1 << 33, 2 << 33, 3 << 33, RECORDS, ID)
        found = seal.find(made)
        self.assertEqual(found._replace(crc=0), (
            seal.WAS_EMPTY, b'p', 1 << 33, 2 << 33, 3 << 33, 0, ID))
        self.assertEqual(seal.find(make(DICT_PICKLE)).id, bytes(16))
        self.assertEqual(made[2:], bytes.fromhex(
            'f5 4653594e43 0d0a 03 01 70 3d'
            '0000000200000000 0000000400000000 0000000600000000')
            + found.crc.to_bytes(4, 'big') + b'\0' + ID + made[-4:])

    def test_nobody_can_choose_an_id_that_is_the_begin_of_another_seal(self):
        """By any reader's rule, the last one that fits is the seal."""
        made = seal.make(FRONT, b'', b' ', 4, 100, 4, RECORDS, ID)
        begin = made.index(ID)
        self.assertLess(len(made) - begin, seal.SMALLEST)
        # Nor can one begin before it.
        self.assertNotIn(made[begin - 1], seal.MAGIC)

    def test_verdicts(self):
        field = make(DICT_PICKLE)
        self.assertEqual(self.verdict(field), seal.SOUND)
        self.assertEqual(self.verdict(field, position=5), seal.MOVED)
        self.assertEqual(self.verdict(field, front=b'other'), seal.DAMAGED)
        self.assertEqual(self.verdict(field, records=1), seal.DAMAGED)
        for unsealed in b'', DICT_PICKLE:
            self.assertEqual(self.verdict(unsealed), seal.ABSENT)

    def test_what_somebody_else_wrote_is_no_broken_seal(self):
        for extension in (
            b'x', b'rubbish', b'rubbish' * 7, DICT_PICKLE + b'x', b'}',
            DICT_PICKLE + b'x' * 60, DICT_PICKLE + b'x' * 62, b'j' * 65530,
        ):
            self.assertEqual(self.verdict(extension), seal.ABSENT)

    def test_what_is_left_of_a_seal(self):
        """When the blocks of a part of it were lost; and the sizes in the
        header may be wrong."""
        for extension in b'', DICT_PICKLE, DICT_PICKLE * 100:
            field = make(extension)
            for at in range(1, len(field)):
                for torn in (bytes(at) + field[at:],
                             field[:at] + bytes(len(field) - at)):
                    self.assertEqual(self.verdict(torn), seal.DAMAGED)
            self.assertEqual(self.verdict(field + b'x'), seal.DAMAGED)
            self.assertEqual(
                self.verdict(b'x' * 63, front=FRONT + field), seal.DAMAGED)

    def test_what_is_left_of_a_seal_whose_magic_has_changed(self):
        """Of one byte, behind anything; of more, behind a pickle."""
        for extension, changed in (b'rubbish' * 9, 1), (DICT_PICKLE, 3):
            field = bytearray(make(extension))
            for at in range(changed):
                field[at - seal.SIZE] ^= 0x55
            self.assertEqual(self.verdict(bytes(field)), seal.DAMAGED)

    def test_every_changed_byte_is_found(self):
        for extension in b'', DICT_PICKLE:
            field = make(extension)
            for at in range(len(field)):
                for flip in 0x01, 0x80:
                    changed = bytearray(field)
                    changed[at] ^= flip
                    self.assertEqual(self.verdict(bytes(changed)),
                                     seal.DAMAGED, (at, flip))

    def test_a_seal_of_another_version_is_neither_absent_nor_damaged(self):
        for version, size in (
                (2, 44), (4, seal.SIZE), (3, 60), (9, 255), (0xff, 24)):
            with later_release(version, max(size, seal.SIZE)):
                field = make(DICT_PICKLE)
            if size < seal.SIZE:
                field = DICT_PICKLE + forged(version, size)
            for ask in self.verdict, seal.find, seal.strip:
                with self.assertRaises(seal.UnknownVersion) as caught:
                    ask(field)
                self.assertEqual(
                    (caught.exception.version, caught.exception.size),
                    (version, size))

    def test_the_first_version_had_no_size(self):
        found = bytearray(forged(version=1, size=44))
        found[11] = 0
        found[-4:] = zlib.crc32(found[:-4]).to_bytes(4, 'big')
        with self.assertRaisesRegex(seal.UnknownVersion, 'An older release'):
            seal.find(DICT_PICKLE + found)

    def test_every_bit_of_the_stored_value_counts(self):
        """With a check value behind it that hides the change."""
        field = make(DICT_PICKLE)
        body, seal_bytes = field[:-seal.SIZE], field[-seal.SIZE:-4]
        for bit in range(32):
            wrong = bytearray(seal_bytes)
            wrong[36 + bit // 8] ^= 1 << bit % 8
            check = zlib.crc32(wrong).to_bytes(4, 'big')
            self.assertEqual(
                self.verdict(body + wrong + check), seal.DAMAGED, bit)

    def test_what_a_user_wrote_before_ours_is_no_part_of_it(self):
        extension = DICT_PICKLE + swallowing()
        field = make(extension)
        self.assertEqual(len(extension) - 24 + seal.size_of(
            field[len(DICT_PICKLE):]), len(field))  # it would fit
        self.assertEqual(self.verdict(field), seal.SOUND)
        self.assertEqual(seal.strip(field), extension)

    def test_the_magic_in_a_header_is_not_what_is_left_of_one(self):
        """The last byte of a header is that of a length."""
        front = bytes(22) + seal.MAGIC
        self.assertEqual(
            self.verdict(DICT_PICKLE, front=front), seal.ABSENT)

    def test_zeros_in_a_pickle_are_not_what_is_left_of_one(self):
        for zeros in range(60, 120):
            extension = pickle.dumps({'checksum': bytes(zeros), 'a': 0.0}, 3)
            self.assertEqual(self.verdict(extension), seal.ABSENT)

    @given(strategies.binary(max_size=100))
    @settings(derandomize=True)
    def test_rubbish_is_no_seal(self, rubbish):
        self.assertIsNone(seal.find(rubbish))
        self.assertEqual(seal.strip(rubbish), rubbish)


class Sealed(TestCase):
    """In a storage."""

    def read(self, storage):
        storage._sequencer.drain()
        return list(scan.transactions(
            Window.of_file(storage._file.fileno())))

    def verdicts(self, storage):
        return [each.seal for each in self.read(storage)]

    def test_every_transaction_has_one(self):
        for policy in 'none', 'group-commit', 'two-sync':
            with self.subTest(policy):
                storage = self.open(policy, durability=policy)
                commit(storage, {1: b'x'})
                transaction = begin(storage, user='u', description='d',
                                    extension={'a': 1})
                storage.tpc_vote(transaction)
                storage.tpc_finish(transaction)
                commit(storage, {2: b'large' * 1000000})
                self.assertEqual(self.verdicts(storage), [seal.SOUND] * 3)
                record = list(storage.iterator())[1]
                self.assertEqual(record.extension, {'a': 1})
                self.assertEqual(record.extension_bytes,
                                 transaction.extension_bytes)
                self.assertEqual(storage.undoLog()[1]['a'], 1)

    def long_extension(self, storage):
        transaction = TransactionMetaData(extension={'a': 'x' * 65500})
        storage.tpc_begin(transaction)
        storage.store(oid(1), b'\0' * 8, b'x', '', transaction)
        storage.tpc_vote(transaction)
        return transaction

    def test_an_extension_too_long_for_one(self):
        disk = self.controlled_disk()
        storage = self.open()
        transaction = self.long_extension(storage)
        del disk.log[:]
        storage.tpc_finish(transaction)
        self.assertEqual(disk.log, ['write', 'sync', 'status', 'sync'])
        self.assertEqual(self.verdicts(storage), [seal.ABSENT])
        self.assertEqual(storage.stats()['unsealable'], 1)
        record, = storage.iterator()
        self.assertEqual(len(record.extension['a']), 65500)

    def test_without_one_it_is_acknowledged_when_it_is_durable(self):
        """Whatever the policy: nothing else tells a torn one from a whole."""
        for policy in 'none', 'interval':
            with self.subTest(policy):
                disk = self.controlled_disk()
                storage = self.open(
                    policy, durability=policy, sync_interval='1h')
                commit(storage, {0: b'sealed'})
                transaction = self.long_extension(storage)
                del disk.log[:]
                storage.tpc_finish(transaction)
                self.assertEqual(
                    disk.log, ['write', 'sync', 'status', 'sync'])
                commit(storage, {2: b'x'})
                self.assertEqual(disk.syncs, 2)

    def test_where_something_was_cut_back_the_status_is_written_last(self):
        """Until it is known to be gone from the disk, a part of what was
        there could be taken for a part of what is there now."""
        for policy in 'none', 'interval', 'group-commit', 'per-commit':
            with self.subTest(policy):
                disk = self.controlled_disk()
                storage = self.open(
                    policy, durability=policy, sync_interval='1h')
                tid = commit(storage, {0: b'x'})
                storage.journal.reserve.is_real = False  # so the vote writes
                storage.tpc_abort(vote(storage, {1: b'x' * 5000}))
                storage.journal.reserve.is_real = True
                del disk.log[:]
                commit(storage, {1: b'y'})
                self.assertEqual(
                    disk.log, ['write', 'sync', 'status', 'sync'])
                del disk.log[:]
                commit(storage, {0: b'y'}, {0: tid})
                self.assertEqual(disk.log[:1], ['write'])
                self.assertNotIn('status', disk.log)

    def test_a_seal_that_is_copied_in_is_replaced(self):
        source = self.open('source')
        commit(source, {1: b'x'})
        transaction = begin(source, extension={'a': 1})
        source.tpc_vote(transaction)
        source.tpc_finish(transaction)
        source.close()
        by_stock = FileStorage(self.path('source'))
        stock = FileStorage(self.path('stock'))
        stock.copyTransactionsFrom(by_stock)
        copy = self.open('copy')
        copy.copyTransactionsFrom(stock)
        lengths = [len(each.field) for each in self.read(copy)]
        by_stock.close()
        stock.close()
        self.assertEqual(self.verdicts(copy), [seal.SOUND] * 2)
        again = self.open('source')
        self.assertEqual(lengths, [len(each.field)
                                   for each in self.read(again)])
        stock = self.open('stock')   # its seals were moved, or happen to fit
        self.assertNotIn(seal.DAMAGED, self.verdicts(stock))

    def begins_with(self, extension, **options):
        transaction = TransactionMetaData(extension=extension)
        with contextlib.closing(self.open(**options)) as storage:
            storage.tpc_begin(transaction)
            storage.tpc_abort(transaction)

    def test_what_a_reader_would_take_for_a_seal_is_refused(self):
        """Also where ours has room: a copy takes ours off."""
        with later_release():
            later = make(DICT_PICKLE)
        room = 65535 - len(later)
        for options in {}, {'checksums': False}:
            for extension in (
                    later, b'x' * room + later, DICT_PICKLE + swallowing(),
                    b'x' * 65000 + swallowing()):
                with self.subTest(options, length=len(extension)), (
                        self.assertRaisesRegex(FileStorageError, 'checksum')):
                    self.begins_with(extension, **options)

    def test_what_is_left_of_one_is_refused_where_ours_has_no_room(self):
        left = seal.MAGIC + b'x' * 36
        with self.assertRaisesRegex(FileStorageError, 'checksum'):
            self.begins_with(left, checksums=False)
        with self.assertRaisesRegex(FileStorageError, 'checksum'):
            self.begins_with(left.rjust(65535, b'x'))
