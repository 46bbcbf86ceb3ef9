"""`fsync-check`: what it calls damage, what not, and what it repairs."""

import contextlib
import io
import json
import os
import random
import shutil
import time
import zlib
from unittest import mock

import transaction
import ZODB
from persistent.TimeStamp import TimeStamp
from ZODB.blob import Blob
from ZODB.blob import FilesystemHelper
from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.fsIndex import fsIndex
from ZODB.serialize import referencesf
from ZODB.tests.MinPO import MinPO
from ZODB.utils import z64

from fsyncstorage import FsyncStorage
from fsyncstorage.check import commandline
from fsyncstorage.check import findings
from fsyncstorage.check import verify
from fsyncstorage.format import index
from fsyncstorage.format import scan
from fsyncstorage.format import seal
from fsyncstorage.format.window import Window

from ..format.sealing import NOTHING
from ..format.sealing import changed
from ..format.sealing import number
from ..format.sealing import positions
from ..format.sealing import read
from ..format.sealing import sealed
from ..format.sealing import small_file
from ..format.sealing import stock_file
from ..format.sealing import window_of
from ..format.sealing import write
from ..support import TestCase
from ..support import commit
from ..support import oid
from ..support import run_command
from ..support import vote

DAMAGE = 1
CANNOT_RUN = 2


class CheckCase(TestCase):

    def run_check(self, *options, path=None):
        """Exit status, standard output, standard error."""
        return run_command(commandline.main, path or self.path(), *options)

    def report(self, *options, status=0):
        """The report of a run that ends with this status."""
        found, out, err = self.run_check('--json', *options)
        self.assertEqual((found, err), (status, ''))
        return json.loads(out)

    def problems(self, *options, status=DAMAGE):
        return [(each['kind'], each['position'])
                for each in self.report(*options, status=status)['problems']]

    def assert_cannot_run(self, reason, *options, path=None):
        status, out, err = self.run_check(*options, path=path)
        self.assertEqual((status, out), (CANNOT_RUN, ''))
        self.assertEqual(err.count('\n'), 1, err)
        self.assertIn(reason, err)

    def database(self, **options):
        """A ZODB of ours, to fill."""
        return ZODB.DB(self.open(**options))

    def write_sealed(self, count=20):
        data = sealed(small_file(self.path('small'), count))
        write(self.path(), data)
        return data


def encrypt(path):
    """As a storage does that encrypts: no class can be read.  Return the last
    tid."""
    with (contextlib.closing(FileStorage(path + '.encrypted')) as copy,
          contextlib.closing(FsyncStorage(path, read_only=True)) as source):
        for each in source.iterator():
            copy.tpc_begin(each, each.tid, each.status)
            for record in each:
                data = record.data and b'.e' + record.data[::-1]
                copy.restore(record.oid, record.tid, data, '', None, each)
            copy.tpc_vote(each)
            copy.tpc_finish(each)
    os.replace(path + '.encrypted', path)
    return copy.lastTransaction()


class StructureTests(CheckCase):

    def test_the_pages_that_a_server_needs_stay_in_memory(self):
        self.write_sealed()
        with mock.patch.object(os, 'posix_fadvise') as advise:
            self.report()
        self.assertIn(os.POSIX_FADV_NOREUSE, [
            call.args[-1] for call in advise.call_args_list])

    def test_a_sound_file(self):
        data = self.write_sealed(20)
        report = self.report()
        self.assertEqual(
            {name: report[name] for name in (
                'damaged', 'size', 'end', 'tail', 'transactions', 'records',
                'objects', 'seals', 'pickles_walked', 'problems')},
            {'damaged': False, 'size': len(data), 'end': len(data),
             'tail': None, 'transactions': 20, 'records': 20, 'objects': 7,
             'seals': {'sound': 20, 'absent': 0, 'moved': 0},
             'pickles_walked': 7, 'problems': []})
        first, *_, last = scan.transactions(window_of(data))
        self.assertEqual(report['first_tid'], first.tid.hex())
        self.assertEqual(report['last_tid'], last.tid.hex())

    def test_words(self):
        data = self.write_sealed(20)
        os.chmod(self.path(), 0o444)
        before = sorted(os.listdir(self.directory))
        status, out, err = self.run_check()
        self.assertEqual((status, err), (0, ''))
        for expected in (
                f'{len(data):,} bytes', '20; seals: 20 sound, 0 absent',
                '20 of 7 objects', '7 current records walked',
                'No damage found.'):
            self.assertIn(expected, out)
        # Nothing was changed.
        self.assertEqual((read(self.path()), sorted(
            os.listdir(self.directory))), (data, before))
        os.chmod(self.path(), 0o644)
        third = positions(data)[2]
        write(self.path(), changed(data, third + 50, b'x'))
        status, out, err = self.run_check()
        self.assertEqual((status, err), (DAMAGE, ''))
        self.assertIn(f'at {third}, tid {data[third:third + 8].hex()}:', out)
        self.assertIn('\nDAMAGED.', out)

    def test_mixed_seals(self):
        stock = small_file(self.path('stock'), 10)
        data = sealed(stock, lambda index: index % 2)
        moved = sealed(small_file(self.path('other'), 3))
        write(self.path(), data)
        self.assertEqual(
            self.report()['seals'], {'sound': 5, 'absent': 5, 'moved': 0})
        self.assertIn('5 transactions have no seal that covers their bytes',
                      self.run_check()[1])
        write(self.path(), moved)
        storage = FileStorage(self.path())
        storage.pack(time.time(), referencesf)
        storage.close()
        self.assertEqual(
            self.report()['seals']['sound'], 0)

    def test_an_empty_database(self):
        self.database().close()
        os.truncate(self.path(), scan.FIRST)
        os.remove(self.path('Data.fs.index'))
        report = self.report()
        self.assertEqual((report['transactions'], report['size']), (0, 4))
        self.assertIn('No damage found', self.run_check()[1])

    def test_files_that_are_none(self):
        for content, reason in [
                (b'', 'it has 0 bytes'),
                (b'FS3', 'it has 3 bytes'),
                (b'FS21' + bytes(100), 'Python 2'),
                (b'FS31', 'does not begin with FS30'),
                (b'GIF8' + os.urandom(1000), 'does not begin with FS30'),
                ]:
            with self.subTest(content[:4]):
                write(self.path(), content)
                self.assert_cannot_run(reason)

    def test_paths_that_are_none(self):
        self.assert_cannot_run('No such file')
        self.assert_cannot_run('is a directory', path=self.directory)
        os.mkfifo(self.path('fifo'))
        self.assert_cannot_run('no regular file', path=self.path('fifo'))
        self.write_sealed(1)
        with mock.patch.object(
                os, 'pread', side_effect=OSError(5, 'Input/output error')):
            self.assert_cannot_run(f'{self.path()}: Input/output error')

    def test_wrong_options(self):
        for options in (
                ['--blob'], ['Data.fs', '--salvage']):
            status, _, err = run_command(commandline.main, *options)
            self.assertEqual((status, err.count('\n')), (CANNOT_RUN, 1))

    def test_previous_pointers(self):
        data = small_file(self.path(), 20)
        whole = list(scan.transactions(window_of(data)))
        record = whole[10].records[0]
        for previous, expected in [
                (record.previous - 1, ('pointer', True)),
                (whole[9].records[0].position, ('pointer', True)),
                (0, ('odd', False))]:
            write(self.path(), changed(
                data, record.position + 16, number.pack(previous)))
            problem, = self.report(status=int(expected[1]))['problems']
            self.assertEqual(
                (problem['kind'], problem['damage']), expected)
            self.assertEqual(problem['position'], record.position)
            self.assertEqual(problem['tid'], whole[10].tid.hex())
            self.assertEqual(problem['oid'], record.oid.hex())

        # A pack leaves them out.
        for found in scan.transactions(window_of(data)):
            data = changed(data, found.position + 16, b'p')
            data = changed(data, found.records[0].position + 16, bytes(8))
        write(self.path(), data)
        self.assertEqual(self.report()['problems'], [])

    def test_tids_of_records(self):
        # Stock's copy writes them when the tids of a file do not rise.
        data = small_file(self.path(), 3)
        at = positions(data)[1]
        tid_at = at + scan.HEADER + 15
        write(self.path(), changed(data, tid_at, data[tid_at] ^ 1))
        problem, = self.report()['problems']
        self.assertEqual((problem['kind'], problem['damage']), ('odd', False))


class TailTests(CheckCase):

    def assert_tail(self, data, position, reason):
        write(self.path(), data)
        report = self.report()
        self.assertEqual(report['problems'], [])
        self.assertEqual(report['end'], position)
        self.assertEqual(report['tail']['position'], position)
        self.assertEqual(report['tail']['length'], len(data) - position)
        self.assertIn(reason, report['tail']['reason'])
        self.assertIn(
            f'{len(data) - position:,} bytes from {position} on are not part',
            self.run_check()[1])

    def test_unfinished(self):
        data = self.write_sealed(3)
        last = positions(data)[2]
        self.assert_tail(
            changed(data, last + 16, b'c'), last, 'in progress')
        for count in 1, 22, 23, 24, 5000:
            self.assert_tail(
                data + bytes(count), len(data),
                'the file ends' if count < 23 else f'{count} zero bytes')

    def test_a_header_that_is_written_last(self):
        data = self.write_sealed(3)
        self.assert_tail(
            data + bytes(100) + b'data' * 1000, len(data), 'not written')

    def test_random_bytes(self):
        data = self.write_sealed(3)
        rubbish = random.Random(6).randbytes
        write(self.path(), data + rubbish(500))
        problem, = self.report(status=DAMAGE)['problems']
        self.assertEqual(problem['position'], len(data))
        self.assertIn('no transaction can be read', problem['reason'])
        self.assert_tail(data + rubbish(20), len(data), 'the file ends')

    def test_unfinished_and_yet_no_tail(self):
        for data, at, byte in (
                # Seals, or what is behind it, prove that it was durable.
                (self.write_sealed(5), 16, b'c'),
                (small_file(self.path('stock'), 5), 16, b'c'),
                # It is short, before what is sound.
                (read(self.path('stock')), 12, b'\x01')):
            third = positions(data)[2]
            write(self.path(), changed(data, third + at, byte))
            self.assertEqual(self.problems(), [(findings.TRANSACTION, third)])

    def test_several_unfinished(self):
        # Their seals do not say that anything before was durable: so a power
        # cut leaves a batch, and a status that was written may be lost.
        stock = small_file(self.path('stock'), 5)
        real = seal.make
        with mock.patch.object(
                seal, 'make',
                lambda *args, durable, **kw: real(
                    *args, durable=min(durable, self.durable), **kw)):
            self.durable = 1 << 40
            third = positions(sealed(stock))[2]
            self.durable = third
            data = sealed(stock)
        for status in b'ccc', b'cc ', b'c c', b'c  ':
            made = data
            for at, each in zip(positions(data)[2:], status):
                made = changed(made, at + 16, each)
            self.assert_tail(made, third, 'in progress')

    def test_short_before_what_is_torn(self):
        data = sealed(small_file(self.path(), 5), lambda index: index == 4)
        fourth, last = positions(data)[3:5]
        data = changed(data, fourth + 12, b'\x01')[:-1]
        write(self.path(), data)
        self.assertEqual(self.problems(), [(findings.TRANSACTION, fourth)])

    def test_while_it_is_written(self):
        storage = self.open()
        commit(storage, {0: NOTHING})
        end = storage.getSize()
        storage.journal.reserve.is_real = False  # so the vote writes
        for data in NOTHING, b'N.' + b'x' * (3 << 20):
            transaction = vote(storage, {1: data})
            report = self.report()
            self.assertEqual(report['end'], end)
            self.assertEqual(report['tail']['position'], end)
            storage.tpc_abort(transaction)

    def test_what_comes_later_does_not_exist(self):
        storage = self.open()
        commit(storage, {0: NOTHING})
        window = window_of(read(self.path()))
        commit(storage, {1: NOTHING})
        longer = Window(
            window_of(read(self.path())).pread, window.end)
        self.assertEqual(verify.verify(longer).report.transactions, 1)


class PickleTests(CheckCase):

    def check_records(self, records, *options, status=0):
        stock_file(self.path(), [(records, {})])
        report = self.report(*options, status=status)
        os.remove(self.path())
        return report

    def test_no_class_is_imported(self):
        report = self.check_records(
            {0: b'cno.such.module\nNoSuchClass\n.N.',
             1: b'(cno.such.module\nNoSuchClass\nNt.}.'})
        self.assertEqual(report['pickles_walked'], 2)

    def test_broken(self):
        for data in (b'N', b'N.N', b'N.\xff', b'rubbish', b'.', b'N.Q.',
                     b'.zrubbish', b'.z' + zlib.compress(b'rubbish')):
            problem, = self.check_records({0: data}, status=DAMAGE)['problems']
            self.assertEqual(problem['kind'], findings.PICKLE)
            self.assertEqual(problem['oid'], z64.hex())

    def test_only_current_records_count(self):
        stock_file(self.path(), [({0: b'rubbish'}, {}), ({0: NOTHING}, {})])
        self.report()

    def test_wrapped(self):
        report = self.check_records({
            0: b'.z' + zlib.compress(NOTHING), 1: b'.e' + os.urandom(30),
            2: b'.?rubbish', 3: NOTHING,
            4: b'.z' + zlib.compress(b'.z' + zlib.compress(NOTHING))})
        self.assertEqual(report['wrapped'], {'.z': 2, '.e': 1, '.?': 1})
        self.assertEqual((report['pickles_walked'], report['opaque']), (2, 3))

    def test_references(self):
        db = self.database()
        with db.transaction() as connection:
            connection.root()['a'] = MinPO(MinPO(MinPO()))
        db.close()
        self.report('--refs')
        storage = FsyncStorage(self.path())
        metadata = TransactionMetaData()
        storage.tpc_begin(metadata)
        storage.deleteObject(oid(2), storage.getTid(oid(2)), metadata)
        storage.tpc_vote(metadata)
        storage.tpc_finish(metadata)
        storage.close()
        report = self.report()
        problem, = report['problems']
        self.assertEqual(
            (problem['kind'], problem['damage'], problem['oid']),
            (findings.DANGLING, False, oid(1).hex()))
        self.assertIn(oid(2).hex(), problem['reason'])
        self.assertEqual(report['objects_without_data'], 1)
        problem, = self.report('--refs', status=DAMAGE)['problems']
        self.assertTrue(problem['damage'])

    def test_an_object_that_came_back(self):
        db = self.database()
        with db.transaction() as connection:
            connection.root()['a'] = MinPO()
        # Undo the creation, then the undo, then that.
        for expected in 1, 0, 1:
            db.undo(db.undoLog(0, 1)[0]['id'])
            transaction.commit()
            report = self.report('--refs')
            self.assertEqual(report['objects_without_data'], expected)
            self.assertEqual(report['pickles_walked'], 2 - expected)


def changed_meanwhile(verification):
    raise scan.Damage(4, None, scan.DAMAGED, 'other bytes')


class BlobTests(CheckCase):

    def setUp(self):
        super().setUp()
        self.blobs = self.path('blobs')
        self.db = self.database(blob_dir=self.blobs)
        self.fill(self.db)

    def fill(self, db):
        for content in b'one', b'two':
            with db.transaction() as connection:
                connection.root()['a'] = MinPO()
                connection.root().setdefault('blob', Blob())
                with connection.root()['blob'].open('w') as file:
                    file.write(content)
        db.undo(db.undoLog(0, 1)[0]['id'])
        transaction.commit()

    def files(self):
        helper = FilesystemHelper(self.blobs)
        return sorted(
            os.path.join(path, name) for _, path in helper.listOIDs()
            for name in os.listdir(path))

    def test_all_there(self):
        report = self.report('--blobs', self.blobs)
        self.assertEqual(report['blobs'], {'records': 3, 'files': 3})
        self.assertEqual(report['problems'], [])
        self.assertIn('3 records, 0 without a file; 3 files, 0 without',
                      self.run_check('--blobs', self.blobs)[1])

    def test_missing(self):
        # Current or not, from an undo or not.
        for path in self.files():
            os.rename(path, path + '.away')
            problem, = self.report(
                '--blobs', self.blobs, status=DAMAGE)['problems']
            self.assertEqual(problem['kind'], findings.BLOB)
            self.assertIn(path, problem['reason'])
            os.rename(path + '.away', path)
        self.report()

    def test_orphans(self):
        helper = FilesystemHelper(self.blobs)
        last = self.db.lastTransaction()
        stray = helper.getBlobFilename(oid(1000), last)
        other = os.path.join(os.path.dirname(self.files()[0]), '0x12.blob')
        begun = helper.getBlobFilename(
            oid(1000), TimeStamp(last).laterThan(TimeStamp(last)).raw())
        os.makedirs(os.path.dirname(stray))
        for path in stray, other, begun, stray + '.tmp', stray[:-8] + 'z.blob':
            write(path, b'')
        report = self.report('--blobs', self.blobs)
        self.assertEqual(
            sorted(each['reason'].split()[-1] for each in report['problems']),
            sorted([stray, other]))
        self.assertEqual(report['problem_counts'], {findings.ORPHAN: 2})
        self.assertEqual(report['blobs'],
                         {'records': 3, 'files': 5, 'later': 1})
        self.assertIsNone(report['no_orphans'])

    def orphan(self):
        path = FilesystemHelper(self.blobs).getBlobFilename(
            oid(1000), self.db.lastTransaction())
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write(path, b'')
        return path

    def assert_no_search(self, why):
        report = self.report('--blobs', self.blobs)
        self.assertNotIn(findings.ORPHAN, report['problem_counts'])
        self.assertIn(why, report['no_orphans'])
        self.assertIn('no search for files without a record: '
                      + report['no_orphans'],
                      self.run_check('--blobs', self.blobs)[1])

    def test_no_orphans_while_a_pack_removes_files_or_of_another_database(
            self):
        self.orphan()
        write(os.path.join(self.blobs, '.removed'), b'')
        self.assert_no_search('a pack is under way')

        os.remove(os.path.join(self.blobs, '.removed'))
        self.db.close()
        for suffix in '', '.index':
            os.remove(self.path() + suffix)
        with contextlib.closing(FsyncStorage(self.path())) as storage:
            commit(storage, {1: b'N.N.'})
        self.assert_no_search('another database')

    def test_links_are_not_followed(self):
        orphan = self.orphan()
        away = self.path('away')
        os.rename(os.path.dirname(orphan), away)
        os.symlink(away, os.path.dirname(orphan))
        problem, = self.report('--blobs', self.blobs)['problems']
        self.assertEqual((problem['kind'], problem['damage']),
                         (findings.UNREAD, False))
        self.assertIn('symbolic link', problem['reason'])

    def test_a_wrong_back_pointer(self):
        """Whether it led to a blob is not known."""
        self.db.close()
        os.remove(self.path())
        os.remove(self.path('Data.fs.index'))
        shutil.rmtree(self.blobs)
        db = ZODB.DB(FileStorage(self.path(), blob_dir=self.blobs))
        self.fill(db)
        db.close()
        data = read(self.path())
        *_, last = scan.transactions(window_of(data))
        for record in last.records:
            data = changed(data, record.position + scan.RECORD_HEADER,
                           number.pack(scan.FIRST))
        write(self.path(), data)
        report = self.report('--blobs', self.blobs, status=DAMAGE)
        self.assertEqual(report['blobs'], {'records': 2, 'files': 3})
        self.assertNotIn(findings.ORPHAN, report['problem_counts'])

    def test_no_orphans_when_records_are_lost(self):
        self.db.close()
        data = read(self.path())
        second = positions(data)[2]
        write(self.path(), changed(data, second + 60, b'x'))
        report = self.report('--blobs', self.blobs, status=DAMAGE)
        self.assertNotIn(findings.ORPHAN, report['problem_counts'])
        self.assertIn('no search for files',
                      self.run_check('--blobs', self.blobs)[1])

    def encrypt(self):
        """Nobody knows then which records are those of blobs.

        Return a file of an object that has records, and none at this time.
        """
        self.db.close()
        last = encrypt(self.path())
        return FilesystemHelper(self.blobs).getBlobFilename(oid(1), last)

    def test_encrypted(self):
        stray = self.encrypt()
        report = self.report('--blobs', self.blobs)
        self.assertEqual(report['problems'], [])
        self.assertEqual(report['blobs'], {'files': 3})
        os.makedirs(os.path.dirname(stray))
        write(stray, b'')
        problem, = self.report('--blobs', self.blobs)['problems']
        self.assertIn(stray, problem['reason'])
        with mock.patch.object(
                verify.Verification, 'transactions_again', changed_meanwhile):
            self.assert_cannot_run(
                'was changed while it was read', '--blobs', self.blobs)

    def test_encrypted_and_damaged(self):
        """The damage is told, and the files of its records are no orphans."""
        self.encrypt()
        data = read(self.path())
        second = positions(data)[1]
        write(self.path(), changed(data, second + 16, b'x'))
        problem, = self.report(
            '--blobs', self.blobs, status=DAMAGE)['problems']
        self.assertEqual((problem['kind'], problem['position']),
                         (findings.TRANSACTION, second))
        self.assertIn('status', problem['reason'])

    def test_packed_meanwhile(self):
        real = verify.verify

        def packed(*args):
            os.replace(self.path('copy'), self.path())
            return real(*args)

        write(self.path('copy'), read(self.path()))
        with mock.patch.object(verify, 'verify', packed):
            self.assert_cannot_run(
                'run the command again', '--blobs', self.blobs)


class IndexTests(CheckCase):

    def setUp(self):
        super().setUp()
        db = self.database()
        for index in range(5):
            with db.transaction() as connection:
                connection.root()[index] = MinPO(index)
        db.close()
        self.index = self.path('Data.fs.index')

    def index_problem(self):
        problem, = self.report('--index', status=DAMAGE)['problems']
        self.assertEqual(problem['kind'], findings.INDEX)
        self.assertTrue(problem['damage'])
        self.report()  # only when asked
        return problem['reason']

    def stock_index(self):
        return fsIndex.load(self.index)

    def test_ours_and_stocks(self):
        self.assertIn('6 entries as in the data',
                      self.report('--index')['index'])
        loaded = self.stock_index()
        loaded['index'].save(loaded['pos'], self.index)
        self.assertIn('6 entries as in the data',
                      self.report('--index')['index'])

        # Of an earlier position.
        db = self.database()
        index = read(self.index)
        with db.transaction() as connection:
            connection.root()['more'] = MinPO()
        db.close()
        write(self.index, index)
        self.assertIn('6 entries as in the data',
                      self.report('--index')['index'])

    def test_wrong_entries(self):
        loaded = self.stock_index()
        index, position = loaded['index'], loaded['pos']
        for change in (
                lambda: index.__setitem__(oid(1), index[oid(2)]),
                lambda: index.__delitem__(oid(1)),
                lambda: index.__setitem__(oid(1000), 4)):
            index = self.stock_index()['index']
            change()
            index.save(position, self.index + '.wrong')
            os.rename(self.index, self.index + '.right')
            os.rename(self.index + '.wrong', self.index)
            self.assertIn('1 entries are not as', self.index_problem())
            os.rename(self.index + '.right', self.index)

    def test_wrong_positions(self):
        loaded = self.stock_index()
        for position in 4, loaded['pos'] - 1, loaded['pos'] + 1, 1 << 40:
            loaded['index'].save(position, self.index)
            self.assertIn(
                'are not as in the data' if position == 4
                else 'where no transaction ends', self.index_problem())

    def test_damaged(self):
        data = read(self.index)
        write(self.index, changed(data, 50, data[50] ^ 1))
        self.index_problem()
        write(self.index, b'rubbish')
        self.index_problem()

        os.remove(self.index)
        self.assertEqual(self.report('--index')['index'], 'there is none')

    def test_of_another_file(self):
        data = self.write_sealed(20)
        write(self.path(), data)
        self.assertIn('another data file', self.index_problem())

    def test_damaged_data(self):
        data = read(self.path())
        write(self.path(), changed(data, positions(data)[2] + 60, b'x'))
        self.assertIn(
            'data is damaged', self.report('--index', status=DAMAGE)['index'])

    def test_an_index_that_was_written_meanwhile(self):
        """It is read first: it never knows more than the data behind it."""
        db = self.database()
        original = index.load

        def commit_and_load(path):
            with db.transaction() as connection:
                connection.root()['more'] = MinPO()
            db.storage.journal.checkpoints.write()
            return original(path)

        with mock.patch.object(index, 'load', commit_and_load):
            self.assertIn('7 entries as in the data',
                          self.report('--index')['index'])
        db.close()


class ProgressTests(CheckCase):

    def test_only_on_a_terminal(self):
        self.write_sealed()
        self.assertEqual(self.run_check()[2], '')
        terminal = io.StringIO()
        terminal.isatty = lambda: True
        with (contextlib.redirect_stderr(terminal),
              contextlib.redirect_stdout(io.StringIO()),
              mock.patch.dict(os.environ, TERM='xterm')):
            os.mkdir(self.path('blobs'))
            commandline.main([self.path(), '--salvage', self.path('out'),
                              '--blobs', self.path('blobs')])
        for words in commandline.STAGES.values():
            self.assertIn(words, terminal.getvalue())
