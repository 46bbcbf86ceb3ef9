"""What `fsync-info` makes of files that somebody wrote to do harm."""

import contextlib
import tracemalloc
import zlib
from unittest import mock

from fsyncstorage.check import fileorder
from fsyncstorage.check.info import days
from fsyncstorage.check.info import document
from fsyncstorage.check.info import graph
from fsyncstorage.check.info import survey
from fsyncstorage.check.magic import NoDataFile
from fsyncstorage.format import classes
from fsyncstorage.format import scan
from fsyncstorage.format import wrapped

from ..format import hostilefiles
from ..format.sealing import write
from ..often import often
from ..support import oid
from .infocase import InfoCase
from .infocase import record
from .infocase import write_timed
from .mutating import Mutations
from .mutating import sound_file
from .test_hostile_files import CountingWindow

ESCAPES = '\x1b[2J\x1b]0;title\x07'


def whole_file(*records):
    """Of the first objects, each in a transaction of its own."""
    file = hostilefiles.File()
    for number, data in enumerate(records):
        file.append(lambda position, here: hostilefiles.record(
            position, number, data, tid=file.tid))
    return bytes(file.data)


def looked_into(data):
    """The document of bytes, and the work of reading them."""
    window = CountingWindow.of_bytes(data)
    found = survey.Survey(window)
    found.read_transactions()
    found.read_references()
    return document.Document(found, 10).as_dict(), window.work


class NamesTests(InfoCase):

    level = 2

    def assert_safe(self, text):
        self.assertTrue(text.replace('\n', '').isprintable(), repr(text))

    def test_escapes_of_a_terminal(self):
        name = (f'A{ESCAPES}B', '[bold]C[/]', ':smile:', '\u202eD')
        write(self.path(), whole_file(
            *(b'\x80\3cm\n' + each.encode() + b'\n.N.' for each in name),
            b'\x80\3c\xff\xfe\nBytes\n.N.'))
        _, out, _ = self.run_info()
        self.assert_safe(out)
        for expected in ('[bold]C[/]', ':smile:', r'm.A\x1b[2J', r'\xff\xfe',
                         r'\u202eD'):
            self.assertIn(expected, out)

    def test_a_terminal_that_knows_no_letters(self):
        write(self.path(), whole_file(
            b'\x80\3cm\n' + 'é'.encode() + b'\n.N.'))
        with mock.patch(
                'rich.console.Console.encoding', 'ascii'):
            _, out, _ = self.run_info()
        self.assertTrue(out.isascii(), out)
        self.assertIn(r'm.\xe9', out)

    def test_names_in_json(self):
        write(self.path(), whole_file(
            b'\x80\3cm\n' + ESCAPES.encode() + b'\n.N.'))
        self.assertEqual(
            self.report()['classes']['listed'][0]['class'], f'm.{ESCAPES}')
        self.assert_safe(self.run_info('--json')[1])

    def test_a_class_name_of_a_megabyte(self):
        write(self.path(), whole_file(
            b'\x80\3cm\n' + b'N' * (1 << 20) + b'\n.N.'))
        self.assertEqual(
            self.report()['classes']['listed'][0]['class'],
            classes.UNKNOWN_CLASS)

    def test_many_names(self):
        write(self.path(), whole_file(
            *(record(f'Class{number}') for number in range(20))))
        with mock.patch.object(classes, 'MOST_NAMES', 10):
            report = self.report('--top', '100')
            words = self.run_info('--by', 'class')[1]
        rows = report['classes']['listed']
        # Four of them are those that are always there.
        self.assertEqual(len(rows), 7)
        self.assertEqual(sum(row['objects'] for row in rows), 20)
        self.assertEqual(rows[0]['class'], classes.OTHERS)
        self.assertEqual(rows[0]['objects'], 14)
        self.assertEqual(report['classes']['without_name'], 14)
        self.assertIn('14 records are of other classes', words)

    def test_many_days(self):
        """The last ones are kept, in whatever order they come."""
        order = [*range(1, 21), 3]
        write_timed(self.path(), *(
            (f'2020-01-{day:02}', {day: record('A')}, b'', b'')
            for day in range(1, 21)))
        with mock.patch.object(days, 'MOST_DAYS', 5):
            rows = self.report('--top', '100')['days']['listed']
            made = days.Days()
            for day in order:
                made.add(day, 1, 10)
        self.assertLessEqual(len(rows), 11)
        self.assertEqual(sum(row['transactions'] for row in rows), 20)
        self.assertEqual(rows[-1]['day'], classes.OTHERS)
        self.assertEqual(rows[-2]['day'], '2020-01-20')
        self.assertEqual(sum(row[0] for row in made.rows.values()), 21)
        self.assertNotIn(3, made.rows)

    def test_a_name_that_is_cut_off(self):
        write(self.path(), whole_file(
            b'\x80\3cm\n' + b'N' * 300 + b'\n.N.',
            b'\x80\3c' + b'm' * 300 + b'\nShort\n.N.'))
        _, out, _ = self.run_info()
        self.assertIn('N' * 200 + '...(0x00)', out)
        self.assertIn(' Short(0x01)', out)

    def test_times_that_no_calendar_has(self):
        file = hostilefiles.File()
        for tid in 0, 1 << 62, (1 << 64) - 2:
            file.tid = tid
            file.append()
        write(self.path(), file.data)
        days = [row['day'] for row in self.report()['days']['listed']]
        self.assertEqual(days[0], '1900-01-01')
        self.assertEqual(len(days), 3)
        self.assertIn(days[-1], self.run_info()[1])


class RecordTests(InfoCase):

    level = 2

    def test_what_cannot_be_read(self):
        records = (
            record('Root', 1, 2, 3, 4), b'cm\nN\n.Nr\xff\xff\xff\xff.Q',
            b'.z' + zlib.compress(bytes(100)), b'.eQ', b'cm\nN\n.QQQ',
            b'cos\nsystem\n.cos\nsystem\n(S"false"\ntRQ.')
        write(self.path(), whole_file(*records))
        report = self.report()
        # The memo is no matter; and without a Q or a P, a record has no
        # reference, whatever it is.
        self.assertEqual(report['unread'], 3)
        self.assertEqual(
            {row['class']: row['objects']
             for row in report['classes']['listed']},
            {'module.Root': 1, 'm.N': 2, classes.UNKNOWN_CLASS: 1,
             classes.WRAPPED: 1, 'os.system': 1})
        self.assertIsNone(report['unreachable'])
        out = self.run_info()[1]
        self.assertIn('not known: 3 records could not be read', out)
        self.assertIn(' 0x05  unknown', out)

    def test_a_root_that_cannot_be_read(self):
        write(self.path(), whole_file(b'.eQ', record('A')))
        report = self.report()
        self.assertIsNone(report['unreachable'])
        self.assertEqual(
            [row['reached'] for row in report['largest']], [None, True])

    def test_one_that_cannot_be_read_and_is_not_reached(self):
        write(self.path(), whole_file(
            record('Root', 1), record('A'), b'.eQ'))
        report = self.report()
        self.assertEqual(report['unread'], 1)
        self.assertEqual(report['unreachable']['objects'], 1)

    def test_a_record_that_unpacks_to_much(self):
        stream = zlib.compressobj(9)
        bomb = b'.z' + b''.join(
            stream.compress(bytes(1 << 20)) for _ in range(256)
        ) + stream.flush()
        write(self.path(), whole_file(bomb, bomb))
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        self.assertEqual(self.report()['unread'], 2)
        self.assertLess(
            tracemalloc.get_traced_memory()[1], 3 * wrapped.LARGEST)

    def test_a_chain_of_objects(self):
        count = 300
        data = whole_file(*(record('A', key + 1) for key in range(count)))
        with mock.patch.object(graph, 'MOST_STEPS', 200):
            found, _ = looked_into(data)
        self.assertEqual(found['unreachable']['objects'], 0)
        found_paths = document.Document(self.surveyed(data), 10).reached
        with mock.patch.object(graph, 'MOST_STEPS', 200):
            self.assertEqual(
                found_paths.path(199),
                ([*range(10), *range(190, 200)], 180))
            self.assertEqual(found_paths.path(200), ([], None))
        self.assertEqual(found_paths.path(0), ([0], 0))
        self.assertEqual(found_paths.path(19), ([*range(20)], 0))
        self.assertEqual(
            found_paths.path(20), ([*range(10), *range(11, 21)], 1))

    def test_words_of_a_path_that_is_too_long(self):
        write(self.path(), whole_file(
            *(record('A', key + 1) for key in range(30))))
        with mock.patch.object(graph, 'MOST_STEPS', 20):
            _, out, _ = self.run_info('--by', 'oid', '--top', '30')
            report = self.report('--by', 'oid', '--top', '30')
        self.assertIn(' 0x1d  by a path of more than', out)
        self.assertNotIn('not reached', out)
        self.assertEqual(
            {(row['reached'], row['path'] is None, row['path_left_out'])
             for row in report['largest']},
            {(True, False, 0), (True, True, None)})

    def surveyed(self, data):
        found = survey.Survey(CountingWindow.of_bytes(data))
        found.read_transactions()
        found.read_references()
        return found

    def test_circles(self):
        found, _ = looked_into(whole_file(
            record('A', 0, 1), record('A', 0, 1), record('A', 2, 3),
            record('A', 2)))
        self.assertEqual(found['unreachable']['objects'], 2)

    def test_oids_that_are_far_apart(self):
        far = (1 << 64) - 1
        file = hostilefiles.File()
        for key in 0, far, 1 << 63:
            file.append(lambda position, here: hostilefiles.record(
                position, key, record('A', far), tid=file.tid))
        found, _ = looked_into(bytes(file.data))
        self.assertEqual(found['objects'], 3)
        self.assertEqual(found['unreachable']['objects'], 1)

    def test_a_database_without_a_root(self):
        write(self.path(), whole_file())
        file = hostilefiles.File()
        file.append(lambda position, here: hostilefiles.record(
            position, 7, record('A'), tid=file.tid))
        write(self.path(), file.data)
        report = self.report()
        self.assertEqual(report['objects'], 1)
        self.assertIsNone(report['unreachable'])
        self.run_info()


class WorkTests(InfoCase):
    """In proportion to the size, whatever is in the file."""

    level = 2

    # Bytes that may be read, for a byte of the file.
    MOST = 200

    def assert_cheap(self, data):
        with mock.patch.object(wrapped.Budget, 'AT_LEAST', 0):
            _, work = looked_into(data)
        self.assertLess(work, self.MOST * len(data))

    def test_of_files_that_do_harm(self):
        for make, count in hostilefiles.FILES:
            with self.subTest(make.__name__):
                self.assert_cheap(bytes(make(count)))

    def test_chains_of_back_pointers(self):
        count = 300
        data = bytes(hostilefiles.chain_of_back_pointers(count))
        with mock.patch.object(
                scan, 'earlier_record',
                side_effect=scan.earlier_record) as earlier:
            found, _ = looked_into(data)
        self.assertLessEqual(earlier.call_count, 2 * count)
        row, = found['largest']
        self.assertEqual((row['revisions'], row['current']), (count, 4))

    def test_mutations(self):
        data, index = sound_file(self.directory)
        mutations = Mutations(data, index)
        for number in range(often(100, 300)):
            made, _ = mutations.make(number)
            with contextlib.suppress(NoDataFile):
                self.assert_cheap(made)

    def test_previous_data_of_another_object(self):
        """A back pointer to what is not its own object leads nowhere."""
        file = hostilefiles.File()
        first = file.append() + scan.HEADER
        file.append(lambda position, here: hostilefiles.record(
            position, 1, back=first, tid=file.tid))
        found, _ = looked_into(bytes(file.data))
        self.assertEqual(found['objects'], 1)
        self.assertEqual(found['largest'][0]['oid'], oid(0).hex())

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
        found, _ = looked_into(bytes(file.data))
        self.assertEqual(
            (found['objects'], found['bytes']['current']), (1, len(forged)))


class MemoryTests(InfoCase):

    level = 2

    def taken(self, data):
        """The document of bytes, and the most memory it took to read them.

        (All takes three times as long while memory is traced.)
        """
        tracemalloc.start()
        try:
            found, _ = looked_into(data)
            return found, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    def test_an_object(self):
        """Without the B-tree, which takes 30 bytes more."""
        count, references = often(20_000, 50_000), 2
        file = hostilefiles.File()
        for begin in range(0, count, 1000):
            file.append(*(
                lambda position, here, key=key: hostilefiles.record(
                    position, key, record('A', key + 1, key ^ 1),
                    tid=file.tid)
                for key in range(begin, begin + 1000)))
        with mock.patch.object(fileorder, 'SLICE', 1 << 20):
            found, taken = self.taken(bytes(file.data))
        self.assertEqual(found['objects'], count)
        self.assertEqual(found['unreachable']['objects'], 0)
        # A large window, a slice; and room in which arrays grow.
        self.assertLess(
            taken, (52 + 4 * (1 + references)) * 1.1 * count + (3 << 19))

    def test_a_record_that_was_made_to_take_much(self):
        # Values that nothing refers to are not kept, but for rows of them.
        largest = often(8 << 20, wrapped.LARGEST)
        patch = mock.patch.object(wrapped, 'LARGEST', largest)
        patch.start()
        self.addCleanup(patch.stop)
        for values, unread in ((b'(N', 1), (b'C\x0812345678', 0),
                               (b'C\x0812345678Q', 1)):
            bomb = b'.z' + zlib.compress(
                b'cm\nA\n.' + values * ((largest - 100) // len(values))
                + b'Q.', 9)
            found, taken = self.taken(whole_file(bomb))
            self.assertEqual(found['unread'], unread)
            self.assertLess(taken, 6 * largest)
