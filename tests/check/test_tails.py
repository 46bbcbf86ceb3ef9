"""What is a tail of a file that is written while it is read."""


from fsyncstorage.check import findings
from fsyncstorage.check import verify
from fsyncstorage.check.info import survey
from fsyncstorage.format import headers
from fsyncstorage.format.window import Window

from ..format import hostilefiles
from ..support import TestCase

LARGE = b'cm\nA\n.C\xff' + bytes(255) + b'.'


class WrittenMeanwhileTests(TestCase):
    """A vote behind the end is cut off, and others are written there."""

    def setUp(self):
        super().setUp()
        self.before = hostilefiles.File()
        self.before.append(with_seal=True)
        self.after = hostilefiles.File()
        self.after.append(with_seal=True)
        self.end = self.before.end
        self.before.append(*[LARGE] * 3, status=b'c', with_seal=True)

    def written_before_the_seals_are_read(self):
        """The window of a file that has other bytes from then on."""
        data = bytes(self.before.data)

        def find(*args):
            nonlocal data
            data = bytes(self.after.data)
            return original(*args)

        original = headers.find_sound_seals
        self.patch(headers, find_sound_seals=find)
        window = Window(
            lambda length, position: data[position:position + length],
            len(data))
        # Nothing is read ahead, as if all were far apart.
        window.SIZE = window.LARGEST = 1
        return window

    def info(self):
        found = survey.Survey(self.written_before_the_seals_are_read())
        found.read_transactions()
        return found

    def check(self):
        return verify.verify(self.written_before_the_seals_are_read()).report

    def test_finished_transactions(self):
        for durable in 0, self.end + 1:
            self.after.append(with_seal=True, durable=durable)
        self.assertEqual(self.check().damages, 0)
        found = self.info()
        self.assertIsNone(found.damage)
        self.assertEqual(
            (found.transactions, found.end), (3, self.after.end))

    def test_another_that_is_under_way(self):
        self.after.append(status=b'c', with_seal=True)
        self.assertEqual(self.check().damages, 0)
        found = self.info()
        self.assertIsNone(found.damage)
        self.assertEqual((found.transactions, found.end), (1, self.end))

    def test_what_stays_damaged_is_damage(self):
        self.after = self.before
        self.after.append(with_seal=True, durable=self.after.end)
        report = self.check()
        self.assertEqual(report.counts[findings.TRANSACTION], 1)
        self.assertEqual(report.transactions, 3)
        self.assertEqual(self.info().damage.position, self.end)

    def test_other_damage(self):
        """It is looked at again, and then it is damage."""
        self.after.append(status=b'x')
        self.after.append(with_seal=True, durable=self.after.end)
        damage = self.info().damage
        self.assertEqual(damage.position, self.end)
        self.assertIn('status', damage.reason)
