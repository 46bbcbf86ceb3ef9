"""Two nodes pack one file, each in its own time, and make the same bytes.

While both pack, there are commits, undos and restored transactions.
"""

import random
from unittest import mock

from ZODB.POSException import POSKeyError
from ZODB.serialize import referencesf
from ZODB.TimeStamp import TimeStamp

from fsyncstorage.pack import checksum
from fsyncstorage.pack import progress

from ..often import often
from ..support import TestCase
from .nodes import Committer
from .nodes import Follower
from .nodes import Hooks

POLICIES = 'none', 'group-commit', 'two-sync'


class History(Hooks):
    """One storage and one follower, from a random number."""

    def __init__(self, test, number, own_process):
        self.rng = rng = random.Random(number)
        super().__init__(test.open(
            f'{number}.fs', durability=rng.choice(POLICIES),
            pack_process=own_process, pack_keep_old=False))
        self._test = test
        self._own_process = own_process
        self.committer = Committer(rng, self.storage)
        for _ in range(rng.randrange(4, 30)):
            self.committer.do()
        self.follower = Follower(self.storage, test.path(f'{number}.copy'))
        test.addCleanup(self.follower.close)
        #: How packs have ended, and what the
        #: follower's had to copy behind its end.
        self.swapped = self.failed = self.rest = 0

    def pack(self):
        self.begin = self.becoming = None
        try:
            with mock.patch.object(progress.Watch, 'tell', self._telling()):
                self.storage.pack(
                    self._time(), referencesf, gc=self.rng.random() < .8)
        except POSKeyError:
            self.failed += 1
        if self.begin is not None and self.becoming is None:
            self._check_no_file()
        self.follower.close()

    def _time(self):
        tids = self.committer.tids
        stamp = TimeStamp(self.rng.choice(tids[len(tids) // 3:]))
        return stamp.timeTime() + self.rng.choice((0, 0, 1e-6, 3600))

    def _telling(self):
        """In each phase of the storage's pack, something may happen."""
        tell = progress.Watch.tell

        def tell_us(watch, *told):
            tell(watch, *told)
            storage = self.storage
            if (watch is storage.pack_watch
                    and not storage._commit_lock.locked()):
                for _ in range(self.rng.randrange(4)):
                    self._do()

        return tell_us

    def _do(self):
        what = self.rng.random()
        if what < .7:
            self.committer.do()
        elif what < .9:
            self.follower.apply()
        elif self.follower.pack is not None:
            self.follower.pack.catch_up()

    def begins(self, *agreed):
        self._do()
        super().begins(*agreed)
        for _ in range(self.rng.randrange(3)):
            self._do()
        self.early = self.rng.random() < .7
        if self.early:
            self._begin_to_follow()
        return self.begin.end

    def _begin_to_follow(self):
        self.follower.apply()
        self.follower.begins(self.begin, own_process=self._own_process)

    def swaps(self, becoming):
        super().swaps(becoming)
        self.follower.apply()
        if not self.early:
            # It was away, and packs again.
            self.follower.begins(self.begin, own_process=self._own_process)
        self.rest += self.follower.size - self.begin.end
        test, before = self._test, self.follower.content
        test.assertIsNone(self.follower.swaps(becoming))
        test.assertNotEqual(self.follower.content, before)

    def over(self, swapped):
        if swapped:
            self.swapped += 1
            with open(self.storage._file_name, 'rb') as file:
                self._test.assertEqual(file.read(), self.follower.content)
                size, found = self.becoming
                self._test.assertEqual(
                    checksum.of_first(file.fileno(), size), found)

    def _check_no_file(self):
        """It has none either, for the same reason."""
        if not self.early:
            self._begin_to_follow()
        self.follower.apply()
        failure = self.follower.swaps(None)
        self._test.assertRegex(
            str(failure), 'the pack failed|nothing to free')


class SameBytes(TestCase):

    level = 2
    histories, of_process = range(often(10, 1000)), 10

    def test_whatever_happens_meanwhile(self):
        """I15."""
        swapped = failed = rest = 0
        for number in self.histories:
            with self.subTest(number):
                history = History(
                    self, number, number % self.of_process == 0)
                history.pack()
                for _ in range(3):
                    history.committer.do()
                history.follower.apply()
                history.pack()
                history.storage.close()
                swapped += history.swapped
                failed += history.failed
                rest += history.rest > 0
        # Nearly all of this happens nearly always.
        count = len(self.histories)
        self.assertGreater(swapped, count)
        self.assertLess(failed, count / 2)
        self.assertGreater(rest, count / 2)
