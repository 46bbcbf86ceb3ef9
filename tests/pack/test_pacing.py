"""Syncs that are short."""

from unittest import mock

from fsyncstorage.pack import pacing

from ..support import TestCase


class Pacing(TestCase):

    def test_a_disk_that_is_very_fast_or_slow(self):
        for speed in 1e3, 1e12:
            with self.subTest(speed):
                self.check_bounds(speed)

    def check_bounds(self, speed):
        now, last, sizes = 0.0, 0, []

        class File:

            def sync(self):
                nonlocal now, last
                sizes.append(written - last)
                now += sizes[-1] / speed
                last = written

        with mock.patch.object(pacing.time, 'monotonic', lambda: now):
            pacer = pacing.Pacer(File())
            for written in range(0, 1 << 30, 1 << 16):
                pacer.written(written)
        self.assertGreaterEqual(min(sizes), pacing.LEAST)
        self.assertLessEqual(max(sizes), pacing.MOST)
