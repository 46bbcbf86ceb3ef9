"""I16, the fold, the members, the writers: in any order of events, the files
are what one log says.

These are broken, in one way after the other, and the directed steps find each.
"""

import contextlib
import inspect
import textwrap
import unittest

from hypothesis.stateful import run_state_machine_as_test

from fsyncstorage.quorum.etcd import lease
from fsyncstorage.quorum.history import fold
from fsyncstorage.quorum.history import record
from fsyncstorage.quorum.history.record import Trim
from fsyncstorage.quorum.history.record import place_of
from fsyncstorage.quorum.leading.writer import Fenced
from fsyncstorage.quorum.leading.writer import Writer
from fsyncstorage.quorum.log import members

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

#: A function, a part of its text, and what is there instead.
MUTANTS = [
    (record.parse, 'if _crc(raw[:_FRONT.size], rest) != crc:', 'if False:'),
    (fold.step, 'if record.log != state.log:', 'if False:'),
    (fold.step, 'if place.sequence <= state.place.sequence:', 'if False:'),
    (fold._has_the_next_number, 'return Why.HOLE', 'return None'),
    (fold._names_the_one_before, 'return Why.FORKED', 'return None'),
    (fold._is_of_the_epoch, 'return Why.STALE', 'return None'),
    (fold._is_of_the_epoch, 'if record.epoch != state.epoch + 1', 'if False'),
    (fold._is_of_the_epoch,
     '(record.epoch, record.writer) != (state.epoch, state.writer)',
     'record.epoch != state.epoch'),
    (fold._is_of_the_epoch,
     '(record.epoch, record.writer) != (state.epoch, state.writer)',
     'record.writer != state.writer'),
    (fold._is_at_the_end,
     'record.position == state.next and body.begin == state.end', 'True'),
    (fold._is_at_the_end, 'fits = record.position == state.end',
     'fits = True'),
    (fold._is_at_the_end,
     'fits and record.generation == state.generation', 'fits'),
    (fold._keeps_batches_whole,
     'record.batch, body.end) == (begun.id, begun.end)',
     'body.end,) == (begun.end,)'),
    (fold._keeps_batches_whole,
     'record.batch, body.end) == (begun.id, begun.end)',
     'record.batch,) == (begun.id,)'),
    (fold._keeps_batches_whole, 'return Why.INCOMPLETE', 'return None'),
    (fold._makes_sense, 'isinstance(body, PackSwap | PackEnd)', 'False'),
    (fold._makes_sense, 'isinstance(body, Trim)', 'False'),
    (fold._after, 'if next == body.end:', 'if True:'),
    (fold._after, 'incomplete=None, pack=None)', 'pack=None)'),
    (fold._after, 'incomplete=None, pack=None)', 'incomplete=None)'),
    (fold._after, 'end=body.size, ', ''),
    (fold._after, 'if isinstance(body, PackEnd):', 'if False:'),
    (fold._after, 'record.batch, record.position', 'record.batch, 4'),
    (members.majority, 'log.members // 2 + 1', '1'),
    (members.ask, 'majority(log) in (end, len(refused))', 'refused'),
    (members.ask, 'majority(log) in (end, len(refused))', 'end'),
    (members.agreed, 'given.count(answer) == majority(log)', 'True'),
    (members._has, 'place_of(raw) == place', 'True'),
    (Writer._find, 'and word.state.place == offer.place', 'and False'),
    (Writer._find, 'and word.state.place == offer.place', ''),
    (Writer._find, 'ours == members.majority(log)', 'ours'),
    (Writer._find, 'others == members.majority(log)', 'others'),
    (Writer.answered, 'offer.leads or not self._has_lease()',
     'not self._has_lease()'),
    (Writer.answered, 'offer.leads or not self._has_lease()', 'offer.leads'),
    (lease.agreed, 'shown = [said]', 'return said'),
    (Writer.answered, 'except Moved:',
     'except Unanswered:\n            pass\n        except Moved:'),
    (Writer._make_offer, 'state.end if leads else', ''),
    (Writer._make_offer, 'state.epoch + leads', 'state.epoch + 1'),
]

BOUNDS = settings(
    max_examples=often(60, 300, at_check=20), stateful_step_count=30,
    deadline=None, derandomize=True)


@contextlib.contextmanager
def mutant(function, text, instead):
    """A context in which a function has another text."""
    source = textwrap.dedent(inspect.getsource(function))
    if text not in source:
        raise AssertionError(f'{text!r} is not in {function.__qualname__}')
    made = {}
    exec(source.replace(text, instead), function.__globals__, made)
    code, = (each.__code__ for each in made.values())
    code, function.__code__ = function.__code__, code
    try:
        yield
    finally:
        function.__code__ = code


class AnyOrder(unittest.TestCase):

    def test_files_are_what_one_log_says(self):
        run_state_machine_as_test(Histories, settings=BOUNDS)

    def test_directed_steps(self):
        """It is the mutants that they find."""
        self.all_happen()

    @staticmethod
    def all_happen():
        for steps in directed.ALL:
            directed.happens(steps)

    def test_mutants(self):
        for function, text, instead in MUTANTS:
            with self.subTest(f'{function.__qualname__}: {instead}'), (
                    mutant(function, text, instead)):
                # (KeyError: nobody should be behind this record.  ValueError:
                # what is written next does not begin where the file ends.)
                with self.assertRaises((AssertionError, KeyError, ValueError)):
                    self.all_happen()


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
