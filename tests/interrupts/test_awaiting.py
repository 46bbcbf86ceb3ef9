"""A lock for callers that may have to give up while they wait."""

import threading
import unittest
from unittest import mock

from fsyncstorage.interrupts import awaiting
from fsyncstorage.interrupts.awaiting import Awaited

from ..commit.test_interrupts import Interrupter
from .locks import check_taken_and_freed


class Awaiting(unittest.TestCase):

    def setUp(self):
        self.lock = threading.Lock()
        #: What happens when the caller looks, each time.
        self.looks = []
        patch = mock.patch.object(awaiting, 'EACH', .001)
        patch.start()
        self.addCleanup(patch.stop)

    def go_on(self):
        self.looks.pop(0)()

    def test_it_is_taken_and_freed(self):
        def taken():
            self.looks = [self.nothing]
            return Awaited(self.lock, self.go_on)

        check_taken_and_freed(self, self.lock, taken)
        self.assertEqual(self.looks, [])

    def test_what_another_has_is_waited_for(self):
        self.lock.acquire()
        self.looks = [self.nothing, self.nothing, self.lock.release]
        with Awaited(self.lock, self.go_on):
            self.assertTrue(self.lock.locked())
        self.assertFalse(self.lock.locked())
        self.assertEqual(self.looks, [])

    def test_it_gives_up(self):
        """The lock stays as it is."""
        for is_free in True, False:
            for before in range(1 if is_free else 3):
                if not is_free:
                    self.lock.acquire()
                self.looks = [self.nothing] * before + [self.must_end]
                with self.assertRaises(KeyError):
                    with Awaited(self.lock, self.go_on):
                        self.fail('it has the lock')
                self.assertEqual(self.lock.locked(), not is_free)
                if not is_free:
                    self.lock.release()

    def test_an_interrupt_at_each_line(self):
        for waits in False, True:
            for at in range(1, 30):
                self.looks = [self.nothing]
                if waits:
                    self.lock.acquire()
                    self.looks.append(self.lock.release)
                interrupter = Interrupter(at)
                try:
                    with interrupter:
                        with Awaited(self.lock, self.go_on):
                            pass
                except KeyboardInterrupt:
                    if self.lock.release in self.looks:
                        self.lock.release()     # the other one
                self.assertFalse(self.lock.locked())
                if not interrupter.fired:
                    break
            self.assertGreater(at, 4)
            self.assertFalse(interrupter.fired)

    def nothing(self):
        pass

    def must_end(self):
        raise KeyError
