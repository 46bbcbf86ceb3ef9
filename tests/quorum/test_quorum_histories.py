"""I16, the fold, the members, the writers: in any order of events, the files
are what one log says.
"""

import unittest

from hypothesis.stateful import run_state_machine_as_test

from fsyncstorage.quorum.history.record import Trim
from fsyncstorage.quorum.history.record import place_of
from fsyncstorage.quorum.leading.writer import Fenced

from ..generated import settings
from ..often import often
from . import directed
from .fakelog import Engine
from .fakelog import FakeLog
from .histories import Histories
from .logcontract import Contract
from .logcontract import WithoutALog
from .logged import BEGINNING
from .nodes import led
from .nodes import state_behind
from .samples import LOG

BOUNDS = settings(
    max_examples=often(60, 300, at_check=20), stateful_step_count=30,
    deadline=None, derandomize=True)


class AnyOrder(unittest.TestCase):

    def test_files_are_what_one_log_says(self):
        run_state_machine_as_test(Histories, settings=BOUNDS)

    def test_directed_steps(self):
        """Those that random ones seldom find."""
        for steps in directed.ALL:
            with self.subTest(steps.__name__):
                directed.happens(steps)


class Fences(unittest.TestCase):

    def test_it_stays(self):
        """Nothing more is offered, also if the log has again what it had."""
        engine = Engine(LOG)
        writer = led(FakeLog(engine), BEGINNING, 'first')
        before = list(engine.records)
        led(FakeLog(engine), state_behind(engine), 'second')
        writer.say(Trim(1))
        for call in writer.advance, lambda: writer.say(Trim(1)):
            with self.assertRaises(Fenced):
                call()
        engine.restore(place_of(before[-1]))
        with self.assertRaises(Fenced):
            writer.advance()
        self.assertEqual(engine.records, before)


class InMemory(unittest.TestCase):
    """The log of these tests is one that keeps its promises."""

    def setUp(self):
        super().setUp()
        self.engine = Engine(None)

    def another(self):
        return FakeLog(self.engine)


class Promises(Contract, InMemory):
    pass


class NoLog(WithoutALog, InMemory):
    pass
