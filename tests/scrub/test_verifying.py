"""A pass finds all damage, in the time that its rate says."""

import dataclasses
import errno

from fsyncstorage.processes.rate import Rate
from fsyncstorage.scrub.child import REPORT_EVERY
from fsyncstorage.scrub.child import WINDOW
from fsyncstorage.scrub.child import Verifier
from fsyncstorage.scrub.fromdisk import BLOCK
from fsyncstorage.scrub.fromdisk import MOST_PAUSES
from fsyncstorage.scrub.fromdisk import FromDisk
from fsyncstorage.scrub.notes import Pass

from ..format import sealing
from ..format.sealing import changed
from ..often import often
from ..processes.test_rate import Clock
from ..support import TestCase
from ..support import commit

# Seconds of a pause; no other wait is as long.
PAUSE = 1000.0


def disk_of(data, bad=(), spent=lambda size: None, pause=lambda: None):
    """A FromDisk of bytes in memory, which cannot read these blocks."""

    def pread(length, position):
        for block in bad:
            if position < block + BLOCK and block < position + length:
                raise OSError(errno.EIO, 'bad')
        return data[position:position + length]

    def wait(seconds):
        if seconds == PAUSE:
            pause()

    return FromDisk(pread, spent, PAUSE, wait)


class VerifierTestCase(TestCase):

    def setUp(self):
        super().setUp()
        self.files = 0
        #: Words of damage.
        self.said = []
        #: What happens before it looks again.
        self.pause = lambda: None

    def verify(self, data, done=None, end=None, **disk):
        verifier = Verifier(
            disk_of(data, pause=lambda: self.pause(), **disk),
            len(data) if end is None else end, self.report)
        verifier.verify(
            Pass(0) if done is None else dataclasses.replace(done))
        return verifier.done

    def report(self, done, damage):
        if damage is not None:
            self.said.append(str(damage))
            self.assertEqual(done.damaged, len(self.said))

    def file(self, count=12, size=60, which=lambda index: True):
        self.files += 1
        data = sealing.stock_file(self.path(str(self.files)), [
            ({index % 5: b'N.' + b'x' * size}, {'user': 'somebody'})
            for index in range(count)])
        return sealing.sealed(data, which)

    def written(self, count, size):
        """A file as the storage writes it: that takes less time."""
        self.files += 1
        name = str(self.files)
        storage = self.open(name, durability='none')
        for number in range(count):
            commit(storage, {number: b'N.' + b'x' * size})
        storage.close()
        return sealing.read(self.path(name))

    def sound_up_to(self, data, count):
        """The Pass after so many transactions."""
        return self.verify(data, end=sealing.positions(data)[count])


class Whole(VerifierTestCase):

    def test_a_sound_file(self):
        data = self.file(which=lambda index: index % 3)
        done = self.verify(data)
        self.assertEqual(
            (done.position, done.transactions, done.unsealed, done.damaged),
            (len(data), 12, 4, 0))
        self.assertEqual(self.said, [])
        self.assertGreater(done.began, 0)

    def test_every_flipped_byte(self):
        """Each is found once, in the transaction that it is in."""
        data = self.file()
        begins = sealing.positions(data)
        for at in range(0, len(data), often(3, 1, 13)):
            flip = 1 << at % 8
            self.said.clear()
            done = self.verify(changed(data, at, data[at] ^ flip))
            place = max([0, *(each for each in begins if each <= at)])
            with self.subTest(at):
                self.assertEqual(done.damaged, 1, self.said)
                self.assertEqual(done.first_damaged, place)
                self.assertIn(f'transaction at {place}', self.said[0])

    def test_what_is_behind_the_end(self):
        """Up to where it is durable: not even looked at."""
        data = self.file()
        end = sealing.positions(data)[7]
        done = self.verify(data[:end], end=end)
        self.assertEqual(
            self.verify(data[:end] + b'x' * 5000, end=end),
            dataclasses.replace(done))

    def test_several(self):
        data = self.file()
        begins = sealing.positions(data)
        for place in begins[1], begins[4], begins[5], begins[11]:
            data = changed(data, place + 60, b'?')
        done = self.verify(data)
        self.assertEqual(
            (done.transactions, done.damaged, done.first_damaged,
             done.last_damaged), (8, 4, begins[1], begins[11]))


class Unordered(VerifierTestCase):

    def test_tids_that_do_not_rise(self):
        """Such a file is served: they are counted, and are no damage."""
        data = self.file(which=lambda index: False)
        begins = sealing.positions(data)
        for index in 3, 4, 7:
            data = changed(data, begins[index], bytes(7) + bytes([index]))
        done = self.verify(data)
        self.assertEqual(self.said, [])
        self.assertEqual(
            (done.transactions, done.damaged, done.unordered), (12, 0, 2))


class Interrupted(VerifierTestCase):

    def test_it_goes_on_anywhere(self):
        data = self.file()
        whole = self.verify(data)
        for count, place in enumerate(sealing.positions(data)):
            done = self.sound_up_to(data, count)
            self.assertEqual((done.position, done.transactions),
                             (place, count))
            # Nothing before is read but the last transaction.
            blank = data[:4] + bytes(
                max(0, sealing.positions(data)[max(0, count - 1)] - 4))
            done = self.verify(blank + data[len(blank):], done)
            self.assertEqual(self.said, [])
            self.assertEqual(dataclasses.replace(done, began=0),
                             dataclasses.replace(whole, began=0))

    def test_a_place_that_is_not_there(self):
        """Then it begins anew."""
        data = self.file()
        whole = self.verify(data)
        done = self.sound_up_to(data, 5)
        for wrong in (
                {'position': done.position + 1}, {'position': 0},
                {'position': len(data) + 1}, {'position': (1 << 64) - 1},
                {'tid': done.tid + 1}, {'tid': 0},
                {'position': len(data)}):
            with self.subTest(wrong):
                found = self.verify(data, dataclasses.replace(
                    done, damaged=3, first_damaged=9, last_damaged=9,
                    **wrong))
                self.assertEqual(self.said, [])
                self.assertEqual(dataclasses.replace(found, began=0),
                                 dataclasses.replace(whole, began=0))

    def test_damage_that_was_said_is_not_said_again(self):
        """It was found just before the interruption."""
        data = self.file()
        begins = sealing.positions(data)
        data = changed(data, begins[5] + 60, b'?')
        done = self.verify(data, end=begins[6])
        self.assertEqual((done.position, done.damaged), (begins[5], 1))
        again = self.verify(data, done)
        self.assertEqual(len(self.said), 1)
        self.assertEqual((again.damaged, again.transactions), (1, 11))


class Unreadable(VerifierTestCase):

    def test_a_bad_block(self):
        """Wherever: each transaction that has none is verified."""
        for which in (lambda index: True), (lambda index: False):
            data = self.file(8, 3 * BLOCK, which)
            begins = sealing.positions(data)
            for block in range(0, len(data), BLOCK):
                self.said.clear()
                done = self.verify(data, bad=[block])
                touched = [
                    begin for begin, end in zip(begins, begins[1:])
                    if begin < block + BLOCK and block < end]
                with self.subTest(block):
                    self.assertIn(
                        f'the disk cannot read the block at {block} (bad)',
                        self.said[0])
                    self.assertEqual(done.transactions, 8 - len(touched))
                    self.assertLessEqual(
                        done.damaged, len(touched) + (block == 0))

    def test_a_bad_block_in_a_large_transaction(self):
        """Its data are read even if no seal asks for them."""
        for which in (lambda index: True), (lambda index: False):
            data = self.file(3, 2 * WINDOW, which)
            begin = sealing.positions(data)[1]
            self.said.clear()
            done = self.verify(
                data, bad=[(begin + 3 * WINDOW // 2) // BLOCK * BLOCK])
            self.assertEqual((done.transactions, done.first_damaged),
                             (2, begin))
            self.assertIn('the disk cannot read', self.said[0])

    def test_a_disk_that_has_trouble_for_a_moment(self):
        """What can be read after a pause is sound.  Seals do not matter: what
        could not be read counts as zeros, also where nothing verifies it."""
        for which in (lambda index: True), (lambda index: False):
            data = self.file(8, 3 * BLOCK, which)
            for block in range(0, len(data), BLOCK):
                bad = [block]
                self.pause = bad.clear
                done = self.verify(data, bad=bad)
                with self.subTest(block):
                    self.assertEqual(self.said, [])
                    self.assertEqual((done.transactions, done.damaged),
                                     (8, 0))

    def test_bytes_that_are_wrong_for_a_moment(self):
        data = self.file()
        begins = sealing.positions(data)
        for at in begins[0] + 60, begins[5] + 10, begins[-2] + 60:
            wrong = bytearray(changed(data, at, data[at] ^ 1))

            def mend(wrong=wrong):
                wrong[:] = data

            self.pause = mend
            done = self.verify(wrong)
            with self.subTest(at):
                self.assertEqual(self.said, [])
                self.assertEqual((done.transactions, done.damaged), (12, 0))

    def test_it_does_not_pause_for_ever(self):
        data = self.file(100)
        pauses = []
        self.pause = lambda: pauses.append(None)
        for place in sealing.positions(data)[:-1]:
            data = changed(data, place + 60, b'?')
        self.assertEqual(self.verify(data).damaged, 100)
        self.assertEqual(len(pauses), MOST_PAUSES)


class InTime(VerifierTestCase):
    """By a clock that only the rate moves on."""

    RATE = 1 << 20

    def verify_by_the_clock(self, data):
        """Times and words of what is reported, and the time of the end."""
        clock = Clock()
        clock.now = 0.0
        reports = []
        rate = Rate(self.RATE, clock.wait, clock)
        self.read = 0

        def spent(size):
            verifier.has_read()
            self.read += size
            rate.spent(size)

        verifier = Verifier(
            disk_of(data, spent=spent), len(data),
            lambda done, damage: reports.append(
                (clock.now, done.position, damage)), clock)
        verifier.verify(Pass(0))
        self.assertEqual(clock.now, self.read / self.RATE)
        return reports, clock.now

    def test_a_pass(self):
        """All is read once, but a little that lies on the edge of a window;
        what is larger than a window, twice."""
        data = self.written(1500, 3000)
        reports, end = self.verify_by_the_clock(data)
        self.assertLess(end, 1.01 * len(data) / self.RATE)
        data = self.written(5, 3 * WINDOW)
        reports, end = self.verify_by_the_clock(data)
        self.assertLess(end, 2 * len(data) / self.RATE)

    def test_how_far_it_is(self):
        """It is reported all the time, also in a long transaction."""
        for data in self.written(1500, 3000), self.written(2, 5 * WINDOW):
            reports, end = self.verify_by_the_clock(data)
            times = [0.0, *(time for time, _, _ in reports), end]
            self.assertLess(
                max(later - time for time, later in zip(times, times[1:])),
                2 * REPORT_EVERY)
            self.assertEqual(
                sorted(place for _, place, _ in reports),
                [place for _, place, _ in reports])
