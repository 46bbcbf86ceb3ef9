"""The order of samples: races between contestants, in rounds.

Contestants of one race do the same work under the same settings, and only they
are compared.  They run in turn, A B C, then B C A: each round starts with
another one.  The races of a campaign run in turn too, round by round.  So a
slow minute of the machine hits all contestants alike, and no single round
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
    #: The keywords of `measure`; a report shows them to its reader.
    settings: dict
    #: Called with a contestant, an empty directory and the settings, in a
    #: process of its own; returns a dict of figures.
    measure: typing.Callable
    #: The figures by which contestants are compared.
    compared: tuple
    #: Called with a contestant: can it take part?
    suits: typing.Callable = lambda contestant: True
    #: Bytes that a sample writes, if they are many and known beforehand.
    written: int = 0

    def takes(self, contestant):
        """Can it take part?  A race may slow syncs, if they can be slowed."""
        return self.suits(contestant) and (
            not self.settings.get('sync_latency') or contestant.can_be_slowed)


class Step(typing.NamedTuple):
    round: int
    race: int  # its number
    contestant: typing.Any


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
    """Take the steps of `progress`; yields the sample of each as a dict.

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
                raise supervisor.Failed(
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
    """A new directory, which is removed when the `with` ends."""
    with tempfile.TemporaryDirectory(
            prefix='fsync-time-', dir=parent) as path:
        # A server in here may run as another user.
        os.chmod(path, 0o711)
        yield path
