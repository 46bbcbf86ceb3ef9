"""What others did with the processors while `fsync-time` took samples."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

from rich.console import Console

from fsyncstorage.timing.results import document as documents
from fsyncstorage.timing.results import otherload
from fsyncstorage.timing.results import tables
from fsyncstorage.timing.running import machine

STAT = 'cpu  {} 10 20 999 999 999 999 {} 0 0\ncpu0 1 2 3\n'


def document_of(*samples):
    document = documents.new(
        'own', [], [], 2, None, machine.describe(tempfile.gettempdir()))
    document['samples'] = [
        {'race': 0, 'contestant': 'any', 'round': number, 'figures': {},
         'others': others and dict(zip(('cpu_seconds', 'seconds'), others))}
        for number, others in samples]
    return document


@contextlib.contextmanager
def counted(user, steal=0, kernel=30):
    with tempfile.TemporaryDirectory() as directory, \
            mock.patch.object(otherload, '_PROC', pathlib.Path(directory)), \
            mock.patch.object(otherload, '_of_kernel', lambda: kernel):
        pathlib.Path(directory, 'stat').write_text(STAT.format(user, steal))
        yield


class WatchTests(unittest.TestCase):

    level = 2

    def seen(self, used=0.0, **counters):
        """What is seen if this process and its children `used` seconds."""
        usage = [1, 2]
        with mock.patch.object(
                otherload.resource, 'getrusage', return_value=usage), \
                mock.patch.object(otherload.os, 'sysconf', return_value=100):
            with counted(1000):
                watch = otherload.Watch()
            usage[0] += used / 2  # it is asked for two sums
            with counted(**counters):
                return watch.seen()

    def test_what_others_used(self):
        self.assertAlmostEqual(self.seen(user=1150)['cpu_seconds'], 1.5)

    def test_what_was_taken_away(self):
        self.assertAlmostEqual(
            self.seen(user=1000, steal=50)['cpu_seconds'], 0.5)

    def test_what_the_kernel_did_does_not_count(self):
        self.assertAlmostEqual(
            self.seen(user=1150, kernel=80)['cpu_seconds'], 1.0)

    def test_what_the_driver_and_its_samples_used_does_not_count(self):
        self.assertAlmostEqual(
            self.seen(used=1.0, user=1150)['cpu_seconds'], 0.5)

    def test_never_less_than_nothing(self):
        self.assertEqual(self.seen(used=9, user=1150)['cpu_seconds'], 0.0)

    def test_on_a_system_that_does_not_tell(self):
        with mock.patch.object(otherload, '_PROC', pathlib.Path('/no/such')):
            self.assertIsNone(otherload.Watch().seen())

    def test_threads_of_the_kernel_are_not_others(self):
        with tempfile.TemporaryDirectory() as directory:
            for number, rest in (
                    (5, '(k) :-)) S 2 ' + '0 ' * 9 + '30 4 0'),
                    (6, '(mine) S 5 ' + '0 ' * 9 + '100 100 0')):
                path = pathlib.Path(directory, str(number))
                path.mkdir()
                path.joinpath('stat').write_text(f'{number} {rest}\n')
            with mock.patch.object(
                    otherload, '_PROC', pathlib.Path(directory)):
                self.assertEqual(otherload._of_kernel(), 34)

    @unittest.skipUnless(sys.platform == 'linux', 'needs /proc')
    def test_for_real(self):
        seen = otherload.Watch().seen()
        self.assertEqual(list(seen), ['seconds', 'cpu_seconds'])
        self.assertGreaterEqual(min(seen.values()), 0)


class ShareTests(unittest.TestCase):

    level = 2

    def test_the_worst_round_counts_and_the_warm_up_does_not(self):
        self.assertAlmostEqual(otherload.share(document_of(
            (0, (10, 10)), (1, (0.1, 1)), (1, (0.5, 1)), (2, (0.2, 1)))), 0.3)

    def test_where_it_is_not_known(self):
        self.assertIsNone(otherload.share(document_of((1, None))))
        recorded = document_of((1, None))
        del recorded['samples'][0]['others']
        self.assertIsNone(otherload.share(recorded))
        self.assertEqual(otherload.warning(recorded), '')

    def test_a_table_says_so(self):
        for used, expected in (0.1, False), (0.12, True):
            console = Console(file=io.StringIO(), width=80)
            tables.show_machine(document_of((1, (used, 1))), console)
            self.assertEqual(
                'NOT QUIET: others used 12% of a processor'
                in ' '.join(console.file.getvalue().split()), expected)
