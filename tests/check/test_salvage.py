"""A salvage of whatever is left: it saves exactly what is sound."""

import contextlib
import os
import pickle
import struct
import subprocess
import sys
from unittest import mock

import transaction
import zc.lockfile
import ZODB
from ZODB.blob import Blob
from ZODB.blob import FilesystemHelper
from ZODB.FileStorage import FileStorage
from ZODB.tests.MinPO import MinPO

from fsyncstorage import FsyncStorage
from fsyncstorage.check import findings
from fsyncstorage.check import salvage
from fsyncstorage.check import verify
from fsyncstorage.check.tails import NoDataFile
from fsyncstorage.format import scan
from fsyncstorage.format import seal
from fsyncstorage.format.window import Window

from ..format import hostilefiles
from ..format.sealing import NOTHING
from ..format.sealing import changed
from ..format.sealing import positions
from ..format.sealing import read
from ..format.sealing import sealed
from ..format.sealing import stock_file
from ..format.sealing import window_of
from ..format.sealing import write
from ..often import often
from ..support import oid
from .test_check import CheckCase
from .test_hostile_files import CountingWindow
from .test_hostile_index import Touch


def content(path, kind=FileStorage):
    with contextlib.closing(kind(path, read_only=True)) as storage:
        return [
            (each.tid, each.status, each.user, each.description,
             seal.strip(each.extension_bytes),
             [(record.oid, record.tid, record.data) for record in each])
            for each in storage.iterator()]


class SalvageCase(CheckCase):

    def setUp(self):
        super().setUp()
        self.out = self.path('saved.fs')

    def salvage(self, data):
        """What is in the copy, which is sound; `None` if there is none."""
        window = window_of(bytes(data))
        try:
            verification = verify.verify(window)
        except NoDataFile:
            return None
        self.salvaged = salvage.salvage(verification, self.out)
        found = content(self.out)
        with open(self.out, 'rb') as file:
            report = verify.verify(Window.of_file(file.fileno())).report
        self.assertEqual(
            (report.damages - report.problem_counts[findings.PICKLE],
             report.tail), (0, None))
        for suffix in '', '.index', '.lock':
            os.remove(self.out + suffix)
        return found


class EveryByteTests(SalvageCase):
    """All bytes of a small file with --all, some by default."""

    level = 2

    CUTS, BYTES = often(613, 1), often(149, 1)

    def setUp(self):
        super().setUp()
        db = ZODB.DB(FileStorage(self.path('stock')))
        for index in range(4):
            with db.transaction() as connection:
                manager = connection.transaction_manager.get()
                manager.setUser('somebody')
                manager.setExtendedInfo('index', index)
                connection.root()[index % 2] = MinPO(index)
        for _ in range(2):
            db.undo(db.undoLog(0, 1)[0]['id'])
            transaction.commit()
        db.close()
        self.expected = content(self.path('stock'))
        stock = read(self.path('stock'))
        self.files = {'sealed': sealed(stock), 'stock': stock}

    def test_cut_anywhere(self):
        for name, data in self.files.items():
            whole = list(scan.transactions(window_of(data)))
            # Shortly behind a begin, a header and a record's header, too.
            ends = {*range(scan.FIRST, len(data), self.CUTS), *(
                each + more for found in whole for more in (0, 1, 22, 24, 60)
                for each in [found.position, found.records[0].position]
                if each + more < len(data))}
            for end in sorted(ends):
                with self.subTest(name, end=end):
                    self.assertEqual(
                        self.salvage(data[:end]),
                        self.expected[:sum(
                            found.end <= end for found in whole)])

    def test_cut_anywhere_behind_damage(self):
        """The end is looked at for records of what is damaged."""
        data = self.files['sealed']
        second, third = positions(data)[1:3]
        data = changed(data, second, b'x' * scan.HEADER)
        for end in range(second + scan.HEADER + 1, third, often(11, 1)):
            with self.subTest(end):
                self.assertEqual(
                    self.salvage(data[:end]), self.expected[:1])

    def test_damaged_anywhere(self):
        data = self.files['sealed']
        whole = list(scan.transactions(window_of(data)))
        for position in range(scan.FIRST, len(data), self.BYTES):
            with self.subTest(position):
                found = self.salvage(changed(
                    data, position, data[position] ^ 0x55))
                lost = next(index for index, each in enumerate(whole)
                            if position < each.end)
                if position == whole[lost].position + 16:
                    lost = None  # its seal knows the status
                self.assertEqual(found, self.without(whole, lost))

    def without(self, whole, lost):
        """What is expected without that transaction, and without the records
        that have their data in it."""
        if lost is None:
            return self.expected
        gone = range(whole[lost].position, whole[lost].end)
        need = {0: False}
        for each in whole:
            for record in each.records:
                need[record.position] = record.back in gone or need[
                    record.back]
        return [
            metadata[:5] + ([
                entry for entry, record in zip(metadata[5], each.records)
                if not need[record.position]],)
            for index, (metadata, each) in enumerate(zip(
                self.expected, whole)) if index != lost]

    def test_a_wrong_tid_costs_one_transaction(self):
        """Without seals, nothing but its records tells that it is wrong."""
        data = self.files['stock']
        for index, position in enumerate(positions(data)[:-1]):
            for byte, value in (0, 0xff), (4, 0xff), (7, 0xff), (0, 0):
                with self.subTest(index=index, byte=byte, value=value):
                    wrong = changed(data, position + byte, value)
                    found = self.salvage(wrong)
                    others = [each for each in self.expected
                              if each != self.expected[index]]
                    self.assertEqual(
                        [each for each in found if each in others], others)


class HostileTests(SalvageCase):

    def test_of_files_that_were_made_to_do_harm(self):
        for make, _ in hostilefiles.FILES:
            with self.subTest(make.__name__):
                self.salvage(make(200))

    def test_a_copy_is_not_larger_than_what_was_there(self):
        """Many records of an object point to the same large data."""
        file = hostilefiles.File()
        large = b'N.X' + struct.pack('<I', 50_000) + b'x' * 50_000 + b'.'
        file.append(large)
        back = scan.FIRST + scan.HEADER
        for _ in range(300):
            file.append(lambda position, here: hostilefiles.record(
                position, 0, back=back, tid=file.tid))
        verification = verify.verify(window_of(bytes(file.data)))
        salvage.salvage(verification, self.out)
        self.assertLess(
            os.path.getsize(self.out),
            len(file.data) + 301 * (seal.room(b'') + 4))
        found = content(self.out)
        self.assertEqual(len(found), 301)
        self.assertEqual({entry[5][0][2] for entry in found}, {large})

    def test_data_whose_own_record_is_left_out(self):
        """It is copied with the first record that points to it."""
        file = hostilefiles.File()
        file.tid = 10
        file.append()
        file.tid = 1
        large = b'N.X' + struct.pack('<I', 50_000) + b'x' * 50_000 + b'.'
        back = file.append(large) + scan.HEADER
        file.tid = 11
        for _ in range(10):
            file.append(lambda position, here: hostilefiles.record(
                position, 0, back=back, tid=file.tid))
        found = self.salvage(file.data)
        self.assertEqual(self.salvaged.transactions_left_out, 1)
        self.assertEqual(
            [entry[5][0][2] for entry in found[1:]], [large] * 10)

    def test_data_that_are_none(self):
        """In a pickle are records that reach over all the rest."""
        self.salvage(hostilefiles.pointers_to_the_same_data(300))
        self.assertIn('the data of others',
                      self.salvaged.left_out[-1].reason)
        self.assertGreater(self.salvaged.records_left_out, 290)

    def test_an_extension_runs_no_code(self):
        field = pickle.dumps(Touch(self.path('touched')), 2)
        file = hostilefiles.File()
        body = hostilefiles.record(file.end, 0, b'N.N.', tid=1)
        file.add(hostilefiles.transaction(file.end, 1, body, field=field))
        verification = verify.verify(window_of(bytes(file.data)))
        salvage.salvage(verification, self.out)
        self.assertIn(field, read(self.out))
        self.assertFalse(os.path.exists(self.path('touched')))

    def test_the_last_of_all_tids_and_oids(self):
        file = hostilefiles.File()
        file.tid = (1 << 64) - 2
        for number in (1 << 64) - 1, 1:
            file.append(lambda position, here: hostilefiles.record(
                position, number, NOTHING, tid=file.tid))
            file.tid = 5
        self.assertEqual(len(self.salvage(file.data)), 1)
        self.assertEqual(self.salvaged.transactions_left_out, 1)

    def test_tids_that_no_record_has(self):
        """As some tools wrote them: they are copied, if they rise."""
        file = hostilefiles.File()
        for tid in 10, 11, 5, 12:
            file.tid = tid - 1
            file.append(lambda position, here: hostilefiles.record(
                position, 0, NOTHING, tid=1))
        self.assertEqual(
            [entry[0] for entry in self.salvage(file.data)],
            [oid(10), oid(11), oid(12)])

    def test_two_records_that_point_to_data_left_out(self):
        """Both in one transaction: each gets the data, since a record cannot
        point to its own transaction."""
        file = hostilefiles.File()
        back = file.append(NOTHING, status=b'u') + scan.HEADER

        def made(position, here):
            return hostilefiles.record(position, 0, back=back, tid=file.tid)

        file.append(made, made)
        file.append(made)
        found = self.salvage(file.data)
        self.assertEqual(
            [[record[2] for record in entry[5]] for entry in found],
            [[NOTHING] * 2, [NOTHING]])

    def test_damage_is_looked_through_once(self):
        """For oids; not each time to the end of the file."""
        for count in 100, 400:
            data = hostilefiles.damage_and_sound_in_turn(count)
            window = CountingWindow.of_bytes(data)
            verification = verify.verify(window)
            checked = window.work
            salvage.salvage(verification, self.path(f'saved{count}'))
            self.assertLess(window.work - checked, 2 * checked)

    def test_oids_of_damage_are_bounded(self):
        """All of it can look like records."""
        file = hostilefiles.File()
        position = file.end
        file.add(b'x' * 100 + (position.to_bytes(8, 'big') + bytes(18)) * 5000)
        file.append()
        with mock.patch.object(salvage, 'MOST_OIDS', 100):
            self.assertEqual(len(self.salvage(file.data)), 1)
        self.assertEqual(len(self.salvaged.left_out[0].oids), 100)


class TargetTests(SalvageCase):

    level = 2

    def setUp(self):
        super().setUp()
        self.data = self.write_sealed(20)
        self.before = sorted(os.listdir(self.directory))

    def nothing_is_left(self):
        self.assertEqual(sorted(os.listdir(self.directory)), self.before)
        self.assertEqual(read(self.path()), self.data)

    def test_names_of_the_file_itself(self):
        os.symlink(self.path(), self.path('symlink'))
        os.link(self.path(), self.path('link'))
        os.symlink(self.out, self.path('dangling'))
        os.mkfifo(self.path('fifo'))
        os.mkdir(self.path('directory'))
        self.before = sorted(os.listdir(self.directory))
        for name in ('Data.fs', 'symlink', 'link', 'dangling', 'fifo',
                     'directory'):
            self.assert_cannot_run(
                'is there already', '--salvage', self.path(name))
            self.nothing_is_left()

    def test_a_name_that_is_taken_meanwhile(self):
        with open(self.path(), 'rb') as file:
            verification = verify.verify(Window.of_file(file.fileno()))
            write(self.out, b'precious')
            with self.assertRaises(FileExistsError):
                salvage.salvage(verification, self.out)
        self.assertEqual(read(self.out), b'precious')

    def test_a_full_disk(self):
        """Of any size, up to one byte less than what is needed."""
        out = self.salvaged_size()
        for limit in often([out - 1], [0, 3, 100, out // 2, out - 1]):
            done = subprocess.run(
                [sys.executable, '-c', LIMITED, str(limit), self.path(),
                 '--salvage', self.out], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, done)
            self.assertEqual(done.stdout, '')
            self.assertRegex(
                done.stderr, f'^fsync-check: .*{self.out}.*(?i:large)'
                             '.*no copy was made\n$')
            self.nothing_is_left()

    def salvaged_size(self):
        self.run_check('--salvage', self.out)
        size = os.path.getsize(self.out)
        for suffix in '', '.index', '.lock':
            os.remove(self.out + suffix)
        return size

    def test_a_sync_that_fails(self):
        disk = self.controlled_disk()
        disk.before_write = lambda data, position: disk.fail_sync(
            OSError(5, 'Input/output error'))
        self.assert_cannot_run('Input/output error', '--salvage', self.out)
        self.nothing_is_left()

    def test_an_interrupt(self):
        with mock.patch.object(
                FsyncStorage, 'tpc_vote', side_effect=KeyboardInterrupt):
            self.assertEqual(
                self.run_check('--salvage', self.out)[0], 130)
        self.nothing_is_left()

    def test_what_belongs_to_others_stays(self):
        write(self.out + '.unsynced', b'of another')
        self.before = sorted(os.listdir(self.directory))
        with mock.patch.object(
                FsyncStorage, 'tpc_vote', side_effect=OSError(28, 'full')):
            self.assert_cannot_run('full', '--salvage', self.out)
        self.nothing_is_left()
        write(self.out + '.old', b'precious')
        self.assert_cannot_run('a database was here', '--salvage', self.out)
        os.remove(self.out + '.old')
        lock = zc.lockfile.LockFile(self.out + '.lock')
        self.addCleanup(lock.close)
        self.assert_cannot_run('is open for writing', '--salvage', self.out)
        self.assertFalse(os.path.exists(self.out))
        self.assert_cannot_run(
            'No such file', '--salvage', self.path('nowhere/saved.fs'))

    def test_names_that_an_opening_removes(self):
        for suffix in '.pack', '.pack.index', '.index.index_tmp', '.tmp':
            write(self.out + suffix, b'of another')
            self.before = sorted(os.listdir(self.directory))
            self.assert_cannot_run(
                'would be removed', '--salvage', self.out)
            self.nothing_is_left()
            os.remove(self.out + suffix)
            self.before = sorted(os.listdir(self.directory))
            self.assert_cannot_run(
                'another name', '--salvage', self.path() + suffix)
            self.nothing_is_left()


# No file may become larger: as good as a full disk.
LIMITED = '''
import resource
import sys
from fsyncstorage import check
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
sys.exit(check.main(sys.argv[2:]))
'''


class ReportTests(SalvageCase):
    """What the command says of a salvage."""

    def setUp(self):
        super().setUp()
        self.data = self.write_sealed(8)
        self.whole = list(scan.transactions(window_of(self.data)))

    def test_json(self):
        salvaged = self.report('--salvage', self.out)['salvage']
        self.assertEqual(salvaged, {
            'file': self.out, 'transactions': 8, 'records': 8,
            'transactions_left_out': 0, 'records_left_out': 0,
            'left_out': []})
        self.assertEqual(self.run_check(path=self.out)[0], 0)
        # With a record that is wrong, and with a header that is gone.
        lost = self.whole[3]
        for number, (at, damage) in enumerate((
                (lost.records[0].position + 42, b'x'),
                (lost.position, b'x' * scan.HEADER))):
            write(self.path(), changed(self.data, at, damage))
            salvaged = self.report(
                '--salvage', self.path(f'saved{number}'), status=1)['salvage']
            first = salvaged['left_out'][0]
            self.assertEqual(
                (salvaged['transactions'], salvaged['transactions_left_out'],
                 first['position'], first['oids']),
                (7, 1, lost.position,
                 [record.oid.hex() for record in lost.records]))

    def test_words(self):
        lost = self.whole[2]
        write(self.path(), changed(self.data, lost.position, bytes(23)))
        status, out, err = self.run_check('--verbose', '--salvage', self.out)
        self.assertEqual((status, err), (1, ''))
        self.assertIn('7 transactions', out)
        self.assertRegex(
            out, f'  at {lost.position}.*\n *{lost.records[0].oid.hex()}')

    def test_statuses_and_large_records(self):
        """A pack leaves the status `p`; a `u` is not copied."""
        path = self.path('large')
        large = b'N.X' + struct.pack('<I', 3 << 20) + bytes(3 << 20) + b'.'
        stock_file(path, [({0: large, 1: NOTHING}, {}), ({1: NOTHING}, {}),
                          ({1: NOTHING}, {})])
        data = read(path)
        for at, status in zip(positions(data), b'pu'):
            data = changed(data, at + 16, status)
        found = self.salvage(data)
        expected = content(path)
        self.assertEqual([each[1] for each in found], ['p', ' '])
        self.assertEqual(
            [each[5] for each in found], [expected[0][5], expected[2][5]])


class TerminalTests(CheckCase):
    """What a file says cannot tell a terminal what to do."""

    def test_marks_of_wrappers(self):
        file = hostilefiles.File()
        file.append(b'.\x9b2J rubbish')
        file.append(b'.\n rubbish')
        write(self.path(), file.data)
        _, out, _ = self.run_check()
        self.assertTrue(out.replace('\n', '').isprintable(), out)

    def test_names_of_blob_files(self):
        db = self.database(blob_dir=self.path('blobs'))
        with db.transaction() as connection:
            connection.root()['blob'] = Blob()
        db.close()
        helper = FilesystemHelper(self.path('blobs'))
        directory = helper.getPathForOID(bytes(8), create=True)
        name = '0x01.blob'
        target = self.path('bl\x1b[2Job\ns')
        os.rename(self.path('blobs'), target)
        write(os.path.join(
            target, os.path.relpath(directory, self.path('blobs')), name), b'')
        _, out, _ = self.run_check('--blobs', target)
        self.assertIn('without a record: ', out)
        self.assertNotIn('\x1b', out)

    def test_an_error(self):
        _, out, err = self.run_check(path=self.path('no\x1b[2J\nfile'))
        self.assertEqual(err.count('\n'), 1)
        self.assertNotIn('\x1b', err)
