"""I16, the fold, the members, the writers: in any order of events, the files
are what one log says.

With --all, these are broken, in one way after the other, and each time that is
found.
"""

import contextlib
import inspect
import textwrap
import unittest

import hypothesis
from hypothesis.stateful import run_state_machine_as_test

from fsyncstorage.quorum.etcd import lease
from fsyncstorage.quorum.history import fold
from fsyncstorage.quorum.history import record
from fsyncstorage.quorum.leading.writer import Writer
from fsyncstorage.quorum.log import members

from ..generated import settings
from ..often import often
from . import directed
from .histories import Histories

#: A function, a part of its text, and what is there instead; and steps that
#: find it, if steps in any order seldom do.
MUTANTS = [
    (record.parse, 'if _crc(raw[:_FRONT.size], rest) != crc:', 'if False:',
     directed.a_node_reads_what_is_damaged),
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
    (fold._after, 'incomplete=None, pack=None)', 'incomplete=None)',
     directed.another_one_leads_within_a_pack),
    (fold._after, 'end=body.size, ', ''),
    (fold._after, 'if isinstance(body, PackEnd):', 'if False:',
     directed.a_pack_is_given_up),
    (fold._after, 'record.batch, record.position', 'record.batch, 4',
     directed.a_pack_is_given_up),
    (members.majority, 'log.members // 2 + 1', '1'),
    (members.refused_by_all, 'len(final) >= majority(log)', 'final'),
    (members.confirmed, 'answers.count(answers[-1]) == majority(log)', 'True',
     directed.a_node_follows_what_only_the_wrong_one_has),
    (members._has, 'place_of(raw) == place', 'True',
     directed.a_node_follows_what_only_the_wrong_one_has),
    (members.is_said_by_enough, 'words.count(word) >= majority(log)', 'True',
     directed.a_node_asks_where_the_wrong_one_ends),
    (Writer._find, 'and word.raw != offer.raw', ''),
    (Writer._find, 'and word.raw != offer.raw', 'and False'),
    (Writer._find, 'words.count(word) == members.majority(log)', 'True'),
    (Writer.answered, 'offer.leads or not self._has_lease()',
     'not self._has_lease()'),
    (Writer.answered, 'offer.leads or not self._has_lease()', 'offer.leads',
     directed.one_whose_lease_is_over_writes_at_the_wrong_one),
    (lease.agreed, 'shown = [said]', 'return said',
     directed.the_wrong_one_renews_a_lease_that_another_one_has),
    (Writer.answered, 'except Moved:',
     'except Unanswered:\n            pass\n        except Moved:'),
    (Writer._make_offer, 'state.end if leads else', ''),
    (Writer._make_offer, 'state.epoch + leads', 'state.epoch + 1'),
]

BOUNDS = settings(
    max_examples=often(100, 300, at_check=20), stateful_step_count=30,
    deadline=None, derandomize=True)
#: Until it is found.
OF_MUTANTS = settings(
    BOUNDS, max_examples=1500, phases=[hypothesis.Phase.generate],
    report_multiple_bugs=False)


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
        """Also those that find a mutant: it is the mutant that they find."""
        for steps in directed.ALL:
            with self.subTest(steps.__name__):
                directed.happens(steps)


class Mutants(unittest.TestCase):

    level = 3

    def test_each_is_found(self):
        for function, text, instead, *steps in MUTANTS:
            with self.subTest(f'{function.__qualname__}: {instead}'), (
                    mutant(function, text, instead)):
                # (KeyError: nobody should be behind this record.  ValueError:
                # what is written next does not begin where the file ends.)
                with self.assertRaises((AssertionError, KeyError, ValueError)):
                    if steps:
                        directed.happens(*steps)
                    else:
                        run_state_machine_as_test(
                            Histories, settings=OF_MUTANTS)
