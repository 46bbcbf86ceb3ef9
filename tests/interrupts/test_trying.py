"""A lock for callers that must not wait."""

import threading
import unittest

from fsyncstorage.errors import Occupied
from fsyncstorage.interrupts.trying import Tried

from ..commit.test_interrupts import Interrupter
from .locks import check_taken_and_freed


class Trying(unittest.TestCase):

    def setUp(self):
        self.lock = threading.Lock()

    def test_it_is_taken_and_freed(self):
        check_taken_and_freed(self, self.lock, lambda: Tried(self.lock))

    def test_what_another_has_is_left_to_it(self):
        with self.lock:
            with self.assertRaises(Occupied):
                with Tried(self.lock):
                    self.fail('it has the lock of another')
            self.assertTrue(self.lock.locked())

    def test_an_interrupt_at_each_line(self):
        for at in range(1, 20):
            interrupter = Interrupter(at)
            try:
                with interrupter:
                    with Tried(self.lock):
                        pass
            except KeyboardInterrupt:
                pass
            self.assertFalse(self.lock.locked())
            if not interrupter.fired:
                break
        self.assertGreater(at, 3)
        self.assertFalse(interrupter.fired)
