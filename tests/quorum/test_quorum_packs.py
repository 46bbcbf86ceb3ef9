"""I15, I16: a primary packs while others follow, start again and take over, at
random; after each step each file is what the log says, byte for byte."""

import contextlib
import os
import random
import threading
from unittest import mock

from ZODB.FileStorage.FileStorage import FileStorageError
from ZODB.POSException import POSKeyError
from ZODB.serialize import referencesf
from ZODB.TimeStamp import TimeStamp

from fsyncstorage.errors import DiskError
from fsyncstorage.pack import progress
from fsyncstorage.quorum.following.rejoin import rejoin
from fsyncstorage.quorum.log.reading import Reader

from ..often import often
from ..pack.nodes import Committer
from .fakelog import FakeLog
from .logged import IN_PROCESS
from .logged import apply
from .logged import bootstrap
from .logged import contents
from .nodes import NodeTest

NODES = 'a', 'b', 'c'


class History:
    """One primary and two that follow, from a random number."""

    def __init__(self, test, number):
        self.rng = random.Random(number)
        self._test = test
        self.engine = test.engine
        self.followers = {}
        self.storage = None
        #: How often each of these has happened.
        self.swapped = self.given_up = self.usurped = self.restarted = 0
        for node in NODES:
            path = test.path_of(node)
            bootstrap(path)
        self._lead(NODES[0])
        self.committer = Committer(self.rng, self.storage)
        for node in NODES[1:]:
            self._follow(node)
        for _ in range(8):
            self.committer.do()

    # Who does what

    def _lead(self, node):
        follower = self.followers.pop(node, None)
        if follower is not None:
            follower.close()
        self.primary = node
        self.storage = self._test.lead(
            node, pack_process=False, pack_keep_old=False)
        if hasattr(self, 'committer'):
            self.committer._storage = self.storage

    def _follow(self, node):
        self.followers[node] = follower = rejoin(
            self._test.path_of(node), FakeLog(self.engine),
            threading.Event(), IN_PROCESS)
        self._test.addCleanup(follower.close)

    # Steps

    def step(self):
        what = self.rng.random()
        if what < .35:
            self.committer.do()
        elif what < .65:
            self._apply()
        elif what < .75:
            self._save()
        elif what < .85:
            self._start_again()
        elif what < .9:
            self._take_over()
        else:
            self._pack()
        self.check()

    def _one(self):
        return self.followers[self.rng.choice(sorted(self.followers))]

    def _apply(self):
        follower = self._one()
        reader = Reader(FakeLog(self.engine), follower.state)
        for _ in range(self.rng.randrange(1, 8)):
            for applied in reader.read():
                apply(follower, applied)

    def _save(self):
        follower = self._one()
        follower.sync()
        follower.save()
        if self.rng.random() < .5:
            follower.save_index()

    def _start_again(self):
        node = self.rng.choice(sorted(self.followers))
        self.followers.pop(node).close()
        self.restarted += 1
        self._follow(node)

    def _take_over(self):
        """Within a pack of the old primary, perhaps: it is fenced then."""
        old, storage = self.primary, self.storage
        is_packing = storage.is_packing
        if not is_packing:
            storage.close()
        self._lead(self.rng.choice(sorted(self.followers)))
        if is_packing:
            self._fenced = old, storage
        else:
            self._follow(old)

    def _pack(self):
        storage, self._fenced = self.storage, None
        generation = storage.stats()['quorum']['generation']
        with mock.patch.object(progress.PackWatch, 'tell', self._telling()), \
                contextlib.suppress(
                    POSKeyError, FileStorageError, DiskError):
            storage.pack(self._time(), referencesf,
                         gc=self.rng.random() < .8)
        if self._fenced is not None:
            self.usurped += 1
            old, storage = self._fenced
            storage.close()
            self._follow(old)
        elif storage.stats()['quorum']['generation'] > generation:
            self.swapped += 1
        else:
            self.given_up += 1

    def _time(self):
        tids = self.committer.tids
        stamp = TimeStamp(self.rng.choice(tids[len(tids) // 3:]))
        return stamp.timeTime() + self.rng.choice((0, 0, 1e-6, 3600))

    def _telling(self):
        """In each phase of the storage's pack, something may happen."""
        tell, storage = progress.PackWatch.tell, self.storage

        def tell_us(watch, *told):
            tell(watch, *told)
            if (watch is storage.pack_watch
                    and not storage._commit_lock.locked()):
                for _ in range(self.rng.randrange(3)):
                    self._meanwhile()

        return tell_us

    def _meanwhile(self):
        what = self.rng.random()
        if what < .5:
            self.committer.do()
        elif what < .8:
            self._apply()
        elif what < .9:
            self._save()
        elif what < .97:
            self._start_again()
        elif self._fenced is None:
            self._take_over()

    # What holds

    def check(self):
        for node, follower in self.followers.items():
            self._is_what_the_log_says(node, follower.whole)
        self._is_what_the_log_says(
            self.primary, self.storage.replica._writer.state)

    def _is_what_the_log_says(self, node, state):
        expected = contents(self.engine.records[:state.place.sequence])
        self._test.assertEqual(expected.state, state)
        self._test.assertEqual(
            self._test.content(node)[:state.end], expected.content)

    def ends(self):
        """All have the same file."""
        self.storage.close()
        for node in sorted(self.followers):
            self.followers.pop(node).close()
        for node in NODES:
            self._follow(node)
            self.followers[node].close()
            self._test.has_what_the_log_has(node)


class Packs(NodeTest):

    level = 2
    histories, steps = range(often(12, 300)), often(40, 60)

    def test_whatever_happens(self):
        counted = dict.fromkeys(
            ('swapped', 'given_up', 'usurped', 'restarted'), 0)
        for number in self.histories:
            with self.subTest(number):
                self.directory = self.path(str(number))
                os.mkdir(self.directory)
                self.engine = type(self.engine)(self.engine.log)
                history = History(self, number)
                for _ in range(self.steps):
                    history.step()
                history.ends()
                for name in counted:
                    counted[name] += getattr(history, name)
                self.directory = os.path.dirname(self.directory)
        for name, count in counted.items():
            self.assertGreater(count, 2, name)
