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

#: 0: all.
ORDERS = often(100, 0, 20)


class EachOrder:
    """In the place of chance: every sequence of choices, one after the other.
    """

    def __init__(self):
        #: What was chosen, and among how many.
        self._chosen = []
        self._made = 0

    def randrange(self, count):
        if self._made == len(self._chosen):
            self._chosen.append((0, count))
        self._made += 1
        return self._chosen[self._made - 1][0]

    def has_another(self):
        """Begin the next sequence, if there is one."""
        self._made = 0
        while self._chosen:
            choice, count = self._chosen.pop()
            if choice + 1 < count:
                self._chosen.append((choice + 1, count))
                return True
        return False


def orders():
    """What chooses: each sequence, or some of them."""
    if ORDERS:
        yield from map(random.Random, range(ORDERS))
        return
    order = EachOrder()
    yield order
    while order.has_another():
        yield order


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
            self._waiting.append((threading.get_ident(), turn))
            self._waiting.sort()
            self._draw()
        turn.wait()

    def end(self):
        with self._changed:
            self._left -= 1
            self._draw()

    def _draw(self):
        if self._waiting and len(self._waiting) == self._left:
            _, turn = self._waiting.pop(self._chance.randrange(self._left))
            turn.set()


class TwoWriters(Shipped):

    def setUp(self):
        super().setUp()
        commit(self.storage, {0: b'data'})
        shutil.copyfile(self.path(), self.path('Copy.fs'))
        self.copy = self.handed_out('Copy.fs')

    def in_turns(self, chance, life, writers):
        turns = Turns(chance, 2)
        self.store.before = lambda method, key: turns.wait()

        def live(writer):
            try:
                life(writer)
            except Stopped as error:
                return str(error)
            finally:
                turns.end()

        threads = [Thread(live, writer) for writer in writers]
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

    def each_order(self, name):
        """Of the requests by which two writers, which have shipped the same
        before, put another segment and a heartbeat; yield what came of
        each."""
        def life(writer):
            writer.ship()
            writer.beat()

        shipped = dict(self.store.objects)
        for number, chance in enumerate(orders()):
            self.store.objects = dict(shipped)
            writers = [self.uploader(each) for each in ('Data.fs', name)]
            self.assertEqual(writers[0].tip, writers[1].tip)
            with self.subTest(number):
                yield self.in_turns(chance, life, writers)

    def test_each_order_of_one_file(self):
        self.uploader().ship()
        commit(self.storage, {1: b'more'})
        for found in self.each_order('Data.fs'):
            self.assertEqual(found, [None, None])
            self.assertEqual(self.contents(), self.content_of_file())

    def test_each_order_of_a_file_and_a_copy_that_goes_on(self):
        self.uploader().ship()
        commit(self.storage, {1: b'of the site'})
        commit(self.copy, {1: b'of the copy'})
        winners = set()
        for one, two in self.each_order('Copy.fs'):
            self.assertNotEqual(one is None, two is None)
            winner = 'Copy.fs' if one else 'Data.fs'
            winners.add(winner)
            self.assertEqual(self.contents(), self.content_of_file(winner))
        self.assertEqual(len(winners), 2)
