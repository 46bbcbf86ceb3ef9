"""Who runs when: races between contestants, in rounds.

Contestants of one race do the same work under the same settings, and only they
are compared.  They run in turn, A B C, then B C A: each round starts with
another one.  The races of a campaign run in turn too, round by round.  So a
slow minute of the machine hits all of them, and no single one of their rounds
decides.  Round 0 warms up, and does not count.
"""

import contextlib
import dataclasses
import functools
import os
import tempfile
import typing

from ..results import otherload
from ..results import wording
from . import supervisor


@dataclasses.dataclass(frozen=True)
class Race:
    """The same work under the same settings, for each contestant."""

    workload: str
    #: What the reader of a report must know, and the keywords of `measure`.
    settings: dict
    #: Called in a process of its own with a contestant, an empty directory
    #: and the settings; returns a dict of figures.
    measure: typing.Callable
    #: Those of the figures that contestants are compared by.
    compared: tuple
    #: Called with a contestant: can it do this?
    suits: typing.Callable = lambda contestant: True
    #: Bytes that a sample writes, where they are many and known before.
    written: int = 0

    def takes(self, contestant):
        """One whose syncs cannot be slowed is not measured where they are."""
        return self.suits(contestant) and (
            not self.settings.get('sync_latency') or contestant.can_be_slowed)


class Step(typing.NamedTuple):
    round: int
    race: int  # its number
    contestant: typing.Any


class SampleFailed(Exception):
    """Names the contestant and the settings; the message is one line."""


def schedule(races, contestants, rounds):
    """The steps of a campaign, in order; round 0 is the warm-up."""
    steps = []
    for number in range(rounds + 1):
        first = number % len(contestants)
        turn = contestants[first:] + contestants[:first]
        steps += [
            Step(number, race, contestant)
            for race in range(len(races))
            for contestant in turn
            if races[race].takes(contestant)
        ]
    return steps


def run(races, scratch, progress):
    """Take the steps that it shows; yields the sample of each as a dict.

    Each sample has a directory of its own below `scratch`, which is removed
    before the next one begins.
    """
    for step in progress.each_step():
        race = races[step.race]
        with directory(scratch) as place:
            watch = otherload.Watch()
            try:
                figures = supervisor.run(
                    functools.partial(race.measure, **race.settings),
                    step.contestant, place, meanwhile=progress.refresh)
            except supervisor.Failed as error:
                raise SampleFailed(
                    f'{step.contestant.name} failed'
                    f' ({wording.listed(race.settings)}): {error}') from error
            others = watch.seen()
        yield {
            'race': step.race,
            'contestant': step.contestant.name,
            'round': step.round,
            'figures': figures,
            'others': others,
        }


@contextlib.contextmanager
def directory(parent):
    """A new one, as long as the `with` lasts."""
    with tempfile.TemporaryDirectory(
            prefix='fsync-time-', dir=parent) as path:
        # A server may run as another user, and has its place in here.
        os.chmod(path, 0o711)
        yield path
