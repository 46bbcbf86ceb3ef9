"""The measurements of clients that read the data file; not how fast it is."""

import unittest

from fsyncstorage.client import local
from fsyncstorage.timing.running import supervisor
from fsyncstorage.timing.servers import zeosites
from perf import zeo_local

from ..timing.test_timing import Scratch
from ..timing.test_timing_zeo import SETTINGS

SITE = {name: SETTINGS[name] for name in ('loop', 'socket', 'sync_latency')}


@unittest.skipUnless(local.is_possible(), 'needs sealed memory')
class LocalTests(Scratch):

    level = 2

    def measure(self, measure, contestant, **settings):
        return supervisor.run(
            lambda: measure(contestant, self.scratch, **settings, **SITE))

    def test_commits_beside_bursts(self):
        [contestant] = zeo_local.contestants(zeo_local.LOCAL)
        settings = {'clients': 2, 'objects': 3, 'every': 0.01}
        figures = self.measure(zeo_local.measure_mixed, contestant,
                               seconds=0.1, **settings)
        self.assertEqual(figures['asked'], 20)
        self.assertLessEqual(figures['read'], 20)
        self.assertGreater(figures['transactions'], 0)
        [race] = zeo_local.mixed_races(False)
        self.assertLessEqual(set(race.compared), figures.keys())

    def test_a_burst_that_is_too_late_is_not_read(self):
        [contestant] = zeo_local.contestants(zeo_local.LOCAL)
        figures = self.measure(
            zeo_local.measure_mixed, contestant, clients=2, objects=3,
            every=1e-5, seconds=2e-5)
        self.assertEqual((figures['asked'], figures['read']), (4, 0))

    def test_the_first_byte(self):
        """Of stock, the cache has all of them then."""
        cached = {}
        for contestant in zeo_local.contestants(
                zeo_local.STOCK, zeo_local.LOCAL, ways=zeosites.CACHE):
            figures = self.measure(
                zeo_local.measure_first_byte, contestant, clients=1,
                size=5000)
            self.assertGreater(figures['first_byte_seconds'], 0)
            cached[contestant.name] = figures['cached_bytes']
        self.assertEqual(cached[zeo_local.LOCAL], 0)
        self.assertGreaterEqual(cached[zeo_local.STOCK], 3 * 5000)
