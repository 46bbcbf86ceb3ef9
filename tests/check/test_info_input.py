"""`fsync-info` of files that are written, damaged or none; and its options."""

import os
import random
import time
from datetime import datetime
from datetime import timedelta
from datetime import timezone
from unittest import mock

from fsyncstorage import FsyncStorage
from fsyncstorage.check.info import moments
from fsyncstorage.check.info import survey
from fsyncstorage.format import scan

from ..format.sealing import changed
from ..format.sealing import positions
from ..format.sealing import read
from ..format.sealing import sealed
from ..format.sealing import write
from ..support import Thread
from ..support import commit
from ..support import oid
from .infocase import ROOT
from .infocase import FiguresCase
from .infocase import InfoCase
from .infocase import record
from .infocase import tid
from .infocase import write_timed


class WhileWrittenTests(InfoCase):

    def test_beside_a_storage_that_commits(self):
        storage = self.open()
        commit(storage, {0: record('Root')})
        seen = []

        def work():
            last = storage.lastTransaction()
            while len(seen) < 10:
                last = commit(storage, {0: record('Root')}, {0: last})

        thread = Thread(work)
        try:
            while len(seen) < 10:
                report = self.report()
                self.assertEqual(
                    report['bytes']['all'] + scan.FIRST, report['end'])
                self.assertEqual(report['objects'], 1)
                self.assertEqual(
                    report['largest'][0]['revisions'],
                    report['transactions'])
                seen.append(report['transactions'])
        finally:
            seen.extend([0] * 10)
        thread.result()
        self.assertEqual(seen[:10], sorted(seen[:10]))

    def test_what_is_not_finished_is_left_out(self):
        write_timed(self.path(), ('2020-01-01', {0: ROOT}, b'', b''),
                    ('2020-01-02', {0: ROOT}, b'', b''))
        data = read(self.path())
        begin = positions(data)[1]
        for torn in (changed(data, begin + 16, b'c'), data[:begin + 30],
                     data[:-1]):
            write(self.path(), torn)
            report = self.report()
            self.assertEqual(report['transactions'], 1)
            self.assertEqual(report['end'], begin)
            self.assertIn(
                f'{len(torn) - begin:,} bytes at the end',
                self.run_info()[1])


    def test_the_pages_of_others_stay_in_the_cache(self):
        write_timed(self.path(), ('2020-01-01', {0: ROOT}, b'', b''))
        with mock.patch.object(os, 'posix_fadvise') as advise:
            self.report()
        advise.assert_called_once_with(
            mock.ANY, 0, 0, os.POSIX_FADV_NOREUSE)


class ReplacedTests(FiguresCase):
    """It is another file, or has other bytes, when it is read again."""

    def before_the_references(self, change):
        real = survey.Survey.read_references

        def read_references(found):
            change()
            found.window.forget()
            real(found)

        return mock.patch.object(
            survey.Survey, 'read_references', read_references)

    def pack(self):
        write(self.path('packed'), b'FS30')
        os.replace(self.path('packed'), self.path())

    def test_packed(self):
        self.assertFalse(self.report()['replaced'])
        data = read(self.path())
        with self.before_the_references(self.pack):
            report = self.report()
            self.assertTrue(report['replaced'])
            self.assertEqual(report['size'], len(data))
            write(self.path(), data)
            self.assertIn('the figures of the file before', self.run_info()[1])

    def test_removed(self):
        with self.before_the_references(lambda: os.remove(self.path())):
            self.assertTrue(self.report()['replaced'])

    def test_other_bytes(self):
        data = read(self.path())
        last = positions(data)[-2]
        for other in (b'', data[:last], data[:-20], data[:300] + bytes(500),
                      data[:last + 30] + bytes(len(data) - last - 30)):
            with self.before_the_references(
                    lambda: write(self.path(), other)):
                self.assert_cannot_run('was changed while it was read')
            write(self.path(), data)


class DamageTests(FiguresCase):

    def setUp(self):
        super().setUp()
        self.data = sealed(read(self.path()))
        self.second = positions(self.data)[1]

    def test_what_comes_before_is_shown(self):
        write(self.path(), changed(self.data, self.second + 150, b'\xee'))
        report = self.report(status=1)
        self.assertEqual(report['damage'], {
            'position': self.second,
            'tid': tid('2020-01-31 23:59:59').hex(),
            'reason': 'it does not fit the checksum in its seal'})
        self.assertEqual(
            (report['transactions'], report['end']), (1, self.second))
        self.assertIsNone(report['unreachable'])
        self.assertEqual(
            {row['oid']: row['reached'] for row in report['largest']}[
                oid(0).hex()], True)
        status, out, _ = self.run_info()
        self.assertIn('is not known: the file is damaged', out)
        self.assertEqual(status, 1)
        self.assertIn(f'DAMAGED at {self.second}, tid', out)
        self.assertIn('fsync-check', out)
        self.assertIn('module.Page', out)

    def test_the_first_bytes(self):
        write(self.path(), b'GIF8' + self.data[4:])
        self.assertEqual(self.report(status=1)['damage']['position'], 0)


class BadInputTests(InfoCase):

    def setUp(self):
        super().setUp()
        write_timed(self.path(), ('2020-01-01', {0: ROOT}, b'', b''))

    def test_files_that_are_none(self):
        self.assert_cannot_run('No such file', path=self.path('nothing'))
        self.assert_cannot_run('is a directory', path=self.directory)
        for content in b'', b'FS21' + bytes(100), b'GIF8' + bytes(1000):
            write(self.path('other'), content)
            self.assert_cannot_run(self.path('other'), path=self.path('other'))
        with mock.patch.object(
                os, 'open', side_effect=PermissionError(
                    13, 'Permission denied', self.path())):
            self.assert_cannot_run(f'{self.path()}: Permission denied')

    def test_options_that_are_wrong(self):
        tomorrow = datetime.now(timezone.utc) + timedelta(days=1)
        for reason, *options in (
                ('a number from 1', '--top', '-1'),
                ('a number from 1', '--top', '0'),
                ('a number from 1', '--top', '1001'),
                ('a number from 1', '--top', '9' * 10_000),
                ('a number from 1', '--top', '0001099999'),
                ('a number from 1', '--top', 'many'),
                ('invalid choice', '--by', 'colour'),
                ('in the future', '--since', f'{tomorrow:%Y-%m-%d}'),
                ('is no time', '--since', 'yesterday'),
                ('is no time', '--since', 'a\x1b[2J\nb'),
                ('before 1900', '--since', '1899-12-31'),
                ('before 1900', '--since', '999999999 weeks')):
            with self.subTest(options):
                self.assert_cannot_run(reason, *options)

    def test_a_number_with_zeros_before_it(self):
        self.assertEqual(
            self.report('--top', '000005'), self.report('--top', '5'))

    def test_a_pipe(self):
        os.mkfifo(self.path('pipe'))
        self.assert_cannot_run('is no regular file', path=self.path('pipe'))

    def test_a_disk_that_cannot_be_read(self):
        with mock.patch.object(
                os, 'pread', side_effect=OSError(5, 'Input/output error')):
            self.assert_cannot_run(f'{self.path()}: Input/output error')


class MomentTests(InfoCase):

    NOW = datetime(2026, 11, 23, 12, 0, tzinfo=timezone.utc)

    def test_what_people_write(self):
        for text, expected in {
                '2026-11-23': '2026-11-23 00:00',
                '2026-11-23 11:30': '2026-11-23 11:30',
                '2026-11-23T11:30:05': '2026-11-23 11:30:05',
                '2026-11-23T11:30Z': '2026-11-23 11:30',
                '2026-11-23 11:30+02:00': '2026-11-23 09:30',
                '3 days': '2026-11-20 12:00', '3d': '2026-11-20 12:00',
                '1 day ago': '2026-11-22 12:00', '12h': '2026-11-23 00:00',
                '2 hours': '2026-11-23 10:00', '1w': '2026-11-16 12:00',
                '2 weeks': '2026-11-09 12:00',
                '90 minutes': '2026-11-23 10:30',
                '5min': '2026-11-23 11:55'}.items():
            with self.subTest(text):
                self.assertEqual(
                    moments.parse(text, self.NOW),
                    datetime.fromisoformat(expected).replace(
                        tzinfo=timezone.utc))

    def test_what_nobody_means(self):
        for text in ('', '3', 'days', '-3 days', '3 years', '11:30',
                     '2026-13-01', '2026-11-23 25:00', '٣ days',
                     '0001-01-01T00:00+23:00', '9999-12-31T23:59-23:00'):
            with self.subTest(text), self.assertRaises(ValueError):
                moments.parse(text, self.NOW)

    def test_tids(self):
        other = random.Random(1)
        for _ in range(1000):
            moment = datetime.fromtimestamp(
                other.randrange(1 << 32), timezone.utc)
            found = moments.tid_of(moment)
            self.assertEqual(
                moments.second_name(found), f'{moment:%Y-%m-%d %H:%M:%S}')
            self.assertEqual(
                moments.day_name(moments.day_of(found)), f'{moment:%Y-%m-%d}')

    def test_of_a_storage(self):
        storage = FsyncStorage(self.path())
        self.addCleanup(storage.close)
        before = int(time.time())
        last = commit(storage, {0: ROOT})
        self.assertLessEqual(
            f'{datetime.fromtimestamp(before, timezone.utc):%F %T}',
            moments.second_name(last))
