"""Two uploaders with one store, in any order of their requests: never two
histories in one timeline; and whoever is of the other history stops.
"""

import random
import shutil
import threading

from fsyncstorage.backup import restore
from fsyncstorage.backup import verification
from fsyncstorage.backup.timeline import History
from fsyncstorage.backup.uploader import Stopped

from ..often import often
from ..support import Thread
from ..support import commit
from .shipped import DATABASE
from .shipped import Shipped

RUNS = often(40, 500, 20)


class Turns:
    """Threads that wait before each request, until it is their turn: whose,
    is drawn when all of them wait."""

    def __init__(self, chance, threads):
        self._chance = chance
        self._left = threads
        self._waiting = []
        self._changed = threading.Condition()

    def wait(self):
        with self._changed:
            turn = threading.Event()
            self._waiting.append(turn)
            self._draw()
        turn.wait()

    def end(self):
        with self._changed:
            self._left -= 1
            self._draw()

    def _draw(self):
        if self._waiting and len(self._waiting) == self._left:
            self._waiting.pop(self._chance.randrange(self._left)).set()


class TwoWriters(Shipped):

    def setUp(self):
        super().setUp()
        commit(self.storage, {0: b'data'})
        shutil.copyfile(self.path(), self.path('Copy.fs'))
        self.copy = self.handed_out('Copy.fs')

    def run_both(self, seed, names):
        """Both ship, and lose a turn at each request; return what came of
        each: None, or why it stopped."""
        self.store.objects.clear()
        turns = Turns(random.Random(seed), 2)
        self.store.before = lambda method, key: turns.wait()

        def life(name):
            try:
                for _ in range(2):
                    uploader = self.uploader(name)
                    for _ in range(2):
                        uploader.ship()
                        uploader.beat()
            except Stopped as error:
                return str(error)
            finally:
                turns.end()

        threads = [Thread(life, name) for name in names]
        found = [thread.result() for thread in threads]
        self.store.before = lambda method, key: None
        return found

    def contents(self):
        """What a restore makes of the store."""
        self.assertEqual(verification.verify(
            History(self.store, DATABASE, 1), True).problems, [])
        name = f'{len(self.keys(""))}-{random.random()}.fs'
        restore.restore(History(self.store, DATABASE, 1), self.path(name),
                        None)
        return self.content_of_file(name)

    def test_of_one_file(self):
        """A server with two of them, by mistake."""
        for seed in range(RUNS):
            commit(self.storage, {1: b'%d' % seed}, {
                1: self.storage.lastTransaction()} if seed else {})
            with self.subTest(seed):
                self.assertEqual(
                    self.run_both(seed, ['Data.fs', 'Data.fs']), [None, None])
                self.assertEqual(self.contents(), self.content_of_file())

    def test_of_a_file_and_a_copy_that_has_gone_on(self):
        commit(self.storage, {1: b'of the site'})
        commit(self.copy, {1: b'of the copy'})
        winners = set()
        for seed in range(RUNS):
            with self.subTest(seed):
                names = ['Data.fs', 'Copy.fs']
                one, two = self.run_both(seed, names)
                self.assertNotEqual(one is None, two is None)
                winner = names[one is not None]
                winners.add(winner)
                self.assertEqual(self.contents(),
                                 self.content_of_file(winner))
        self.assertEqual(len(winners), 2)
