"""Well or not: what is said, and that it is over when it is over."""

import time
import types
import unittest

from fsyncstorage.metrics import past
from fsyncstorage.metrics import verdicts
from fsyncstorage.metrics.past import Past
from fsyncstorage.metrics.verdicts import BAD
from fsyncstorage.metrics.verdicts import LOOK


def reading(**said):
    return types.SimpleNamespace(**{
        'storage': {}, 'server': {}, 'packs': {}, 'scrub': {}, 'waiting': {},
        'quorum': {}, 'backup': {}, **said})


class Samples(Past):
    """A past of which some columns are given."""

    def __init__(self, **columns):
        super().__init__()
        for values in zip(*columns.values()):
            self._samples.append((0.0, {
                **dict.fromkeys(past._COLUMNS), **dict(zip(columns, values))}))


class OfAStorage(unittest.TestCase):

    def check(self, level, words, samples=None, **said):
        found = verdicts.of_storage(reading(**said), samples or Past())
        self.assertEqual([each.level for each in found], [level])
        self.assertRegex(found[0].words, words)

    def check_well(self, samples=None, **said):
        self.assertEqual(
            verdicts.of_storage(reading(**said), samples or Past()), [])

    def test_well(self):
        self.check_well()
        self.check_well(
            storage={'writing_stopped': None}, scrub={'damaged': 0},
            packs={'last': None}, waiting={'vote': 0, 'sync': 0},
            server={'lock_time': None})

    def test_writing_that_has_stopped(self):
        self.check(BAD, 'Nothing can be committed: a sync failed',
                   storage={'writing_stopped': 'a sync failed'})

    def test_words_are_bounded(self):
        found, = verdicts.of_storage(reading(
            storage={'writing_stopped': 'x' * 100000}), Past())
        self.assertLess(len(found.words), 400)

    def test_a_node(self):
        """It follows; or it leads, and its log does not answer."""
        said = {'trouble': 'the words'}
        self.check(LOOK, 'Not open: the words', quorum=said)
        self.check(BAD, 'Commits wait: the words', quorum=said,
                   storage={'writing_stopped': None})
        self.check_well(quorum={'trouble': None},
                        storage={'writing_stopped': None})

    def test_damage(self):
        self.check(BAD, 'Damaged.*: 3', scrub={'damaged': 3})

    def test_a_disk_that_does_not_answer(self):
        silent = {'waiting_for_sync': [0, 2, 2], 'syncs': [9.0, 0.0, 0.0]}
        self.check(BAD, 'disk does not answer', Samples(**silent))
        for busy in ({'syncs': [9.0, 0.0, 0.2]}, {'syncs': [9.0, 0.2, 0.0]},
                     {'waiting_for_sync': [2, 2, 0]},
                     {'waiting_for_sync': [1], 'syncs': [0.0]}):
            self.check_well(Samples(**silent | busy))

    def test_slow_syncs(self):
        self.check(LOOK, r'Syncs take long: 1\.3 s',
                   Samples(sync_p99=[None, 1.3]))
        for fast in [1.3, 0.9], [1.3, None]:
            self.check_well(Samples(sync_p99=fast))

    def test_objects_that_are_held_for_long(self):
        """Nobody knows whether it is these that the others wait for."""
        held = {'lock_time': time.time() - 100}
        self.check(LOOK, r'^A client has held objects for 10\d s; commits'
                   r' that wait: 2\.$', server=held,
                   waiting={'vote': 2, 'sync': 0})
        self.check_well(server=held, waiting={'vote': 0, 'sync': 1})
        self.check_well(server={'lock_time': time.time()},
                        waiting={'vote': 1, 'sync': 0})

    def test_a_backup_that_ships_nothing(self):
        self.check(LOOK, r'shipped nothing for 20\d s',
                   backup={'shipped': time.time() - 200})
        self.check_well(backup={'shipped': time.time() - 100, 'behind': 5})

    def test_a_pack(self):
        self.check(LOOK, 'last pack failed',
                   packs={'last': {'outcome': 'failed'}})
        for outcome in 'packed', 'nothing', 'cancelled':
            self.check_well(packs={'last': {'outcome': outcome}})

    def test_a_scrub_that_does_not_go_on(self):
        self.check(LOOK, 'interrupted 2 times: no such',
                   scrub={'interrupted': 2, 'interrupted_because': 'no such'})
        self.check_well(scrub={'interrupted': 1, 'interrupted_because': 'x'})

    def test_what_has_precedence_is_first(self):
        found = verdicts.of_storage(
            reading(packs={'last': {'outcome': 'failed'}},
                    scrub={'damaged': 1}), Past())
        self.assertEqual([each.level for each in found], [BAD, LOOK])


class OfAProcess(unittest.TestCase):

    def test_it(self):
        for phase, age, levels in (
                ('serving', 0.3, []), ('serving', 6, [BAD]),
                ('starting', 0, [LOOK]), ('stopping', 60, [BAD, LOOK])):
            with self.subTest(phase):
                self.assertEqual(
                    [each.level for each in verdicts.of_process(phase, age)],
                    levels)
