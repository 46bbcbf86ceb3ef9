"""What `fsync-info` makes of files that somebody wrote to do harm."""

import contextlib
import zlib
from unittest import mock

from fsyncstorage.check.info import document
from fsyncstorage.check.info import survey
from fsyncstorage.check.tails import NoDataFile
from fsyncstorage.format import classes
from fsyncstorage.format import scan

from ..format import hostilefiles
from ..format.sealing import write
from ..often import often
from .infocase import InfoCase
from .infocase import record
from .test_hostile_files import CountingWindow
from .test_hostile_mutations import Mutations
from .test_hostile_mutations import sound_file

ESCAPES = '\x1b[2J\x1b]0;title\x07'


def whole_file(*records):
    """Of the first objects, each in a transaction of its own."""
    file = hostilefiles.File()
    for number, data in enumerate(records):
        file.append(lambda position, here: hostilefiles.record(
            position, number, data, tid=file.tid))
    return bytes(file.data)


def named(*names):
    """Records of classes of a module `m`."""
    return whole_file(*(
        b'\x80\3cm\n' + name.encode() + b'\n.N.' for name in names))


def looked_into(data):
    """The document of bytes, and the work of reading them."""
    window = CountingWindow.of_bytes(data)
    found = survey.Survey(window)
    found.read_transactions()
    return document.made(found, 10), window.work


class NamesTests(InfoCase):

    def assert_safe(self, text):
        self.assertTrue(text.replace('\n', '').isprintable(), repr(text))

    def test_escapes_of_a_terminal(self):
        write(self.path(), named(
            f'A{ESCAPES}B', '[bold]C[/]', ':smile:', '\u202eD'))
        out = self.words()
        self.assert_safe(out)
        for expected in ('[bold]C[/]', ':smile:', r'm.A\x1b[2J', r'\u202eD'):
            self.assertIn(expected, out)
        write(self.path(), named(ESCAPES))
        self.assertEqual(
            self.report()['classes']['listed'][0]['class'], f'm.{ESCAPES}')
        self.assert_safe(self.words('--json'))

    def test_a_terminal_that_knows_no_letters(self):
        write(self.path(), named('é'))
        with mock.patch('rich.console.Console.encoding', 'ascii'):
            out = self.words()
        self.assertTrue(out.isascii(), out)
        self.assertIn(r'm.\xe9', out)

    def test_long_names(self):
        write(self.path(), named('N' * 300, 'N' * (1 << 20)))
        long, none = sorted(
            (row['class'] for row in self.report()['classes']['listed']),
            reverse=True)
        self.assertEqual(long[-10:], 'N' * 7 + '...')
        self.assertLess(len(long), 210)
        self.assertEqual(none, classes.UNKNOWN_CLASS)

    def test_many_names(self):
        write(self.path(), named(*map('Class{}'.format, range(20))))
        with mock.patch.object(classes, 'MOST_NAMES', 10):
            found = self.report('--top', '100')['classes']
            words = self.words()
        # Four of them are those that are always there.
        rows = found['listed']
        self.assertEqual(len(rows), 7)
        self.assertEqual(sum(row['objects'] for row in rows), 20)
        self.assertEqual(
            (rows[0]['class'], rows[0]['objects']), (classes.OTHERS, 14))
        self.assertEqual(found['without_name'], 14)
        self.assertIn('14 records are of other classes', words)

    def test_times_that_no_calendar_has(self):
        file = hostilefiles.File()
        for tid in 0, 1 << 62, (1 << 64) - 2:
            file.tid = tid
            file.append()
        write(self.path(), file.data)
        report = self.report()
        self.assertEqual(report['first']['time'][:10], '1900-01-01')
        self.assertIn(report['last']['time'], self.words())

    def test_records_without_a_class(self):
        bomb = b'.z' + zlib.compress(bytes(1 << 24))
        write(self.path(), whole_file(
            record('Root'), b'.eQ', b'cm\nN\n.QQQ', bomb,
            b'cos\nsystem\n.cos\nsystem\n(S"false"\ntRQ.'))
        self.assertEqual(
            {row['class']: row['objects']
             for row in self.report()['classes']['listed']},
            {'module.Root': 1, 'm.N': 1, classes.UNKNOWN_CLASS: 1,
             classes.WRAPPED: 1, 'os.system': 1})


class WorkCase(InfoCase):
    """In proportion to the size, whatever is in the file."""

    # Bytes that may be read, for a byte of the file.
    MOST = 200

    def assert_cheap(self, data):
        _, work = looked_into(data)
        self.assertLess(work, self.MOST * len(data))


class WorkTests(WorkCase):

    def test_mutations(self):
        mutations = Mutations(*sound_file(self.directory))
        for number in range(often(60, 300, 20)):
            with contextlib.suppress(NoDataFile):
                self.assert_cheap(mutations.make(number)[0])

    def test_chains_of_back_pointers(self):
        count = 300
        with mock.patch.object(
                scan, 'earlier_record',
                side_effect=scan.earlier_record) as earlier:
            found, _ = looked_into(hostilefiles.chain_of_back_pointers(count))
        self.assertLessEqual(earlier.call_count, 2 * count)
        row, = found['classes']['listed']
        self.assertEqual((row['records'], row['current']), (count, 4))

    def test_previous_data_of_another_object(self):
        """A back pointer to what is not its own object leads nowhere."""
        file = hostilefiles.File()
        first = file.append() + scan.HEADER
        file.append(lambda position, here: hostilefiles.record(
            position, 1, back=first, tid=file.tid))
        self.assertEqual(looked_into(file.data)[0]['objects'], 1)

    def test_back_to_data_that_would_reach_over_what_points_there(self):
        """Forged headers in a pickle, of a transaction and of a record."""
        file = hostilefiles.File()
        at = file.end + scan.HEADER + scan.RECORD_HEADER + 4
        forged = (b'N.N.' + hostilefiles.header.pack(
            bytes(8), (1 << 64) - 1, b' ', 0, 0, 0)
            + hostilefiles.record(at, 1, b'x', length=1 << 63))
        file.append(forged)
        file.append(lambda position, here: hostilefiles.record(
            position, 1, back=at + scan.HEADER, tid=file.tid))
        found, _ = looked_into(file.data)
        self.assertEqual(
            (found['objects'], found['bytes']['current']), (1, len(forged)))


class DearFilesTests(WorkCase):

    level = 2

    def test_files_that_do_harm(self):
        for make, count in hostilefiles.FILES:
            with self.subTest(make.__name__):
                self.assert_cheap(make(count))
