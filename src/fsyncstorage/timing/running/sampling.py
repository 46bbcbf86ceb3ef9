"""A run: races between contestants, in rounds.

Contestants of one race do the same work under the same settings, and only they
are compared.  They run in turn, A B C, then B C A: each round starts with
another one.  The races of a run are in turn too, round by round.  So a slow
minute of the machine hits all contestants alike, and no single round decides.
Round 0 warms up, and does not count.

A run promises that the scratch directory is removed, also when the run fails
or is interrupted; that an error or Ctrl-C is one line on standard error; and
that the JSON file, if one was asked for, holds what was measured until then.
"""

import contextlib
import dataclasses
import functools
import os
import sys
import tempfile
import typing

from rich.console import Console

from ..results import document as documents
from ..results import wording
from . import machine
from . import supervisor

#: The exit code in a shell of a program that Ctrl-C ended.
INTERRUPTED = 130
#: The exit code for a wrong command line, too.
NOTHING_TO_MEASURE = 2


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

    def takes(self, contestant):
        """Can it take part?  A race may slow syncs, if they can be slowed."""
        return self.suits(contestant) and (
            not self.settings.get('sync_latency') or contestant.can_be_slowed)


def schedule(races, contestants, rounds):
    """The steps of a run, in order: a round, the number of a race, and a
    contestant.  Round 0 is the warm-up."""
    steps = []
    for number in range(rounds + 1):
        first = number % len(contestants)
        turn = contestants[first:] + contestants[:first]
        steps += [
            (number, race, contestant)
            for race in range(len(races))
            for contestant in turn
            if races[race].takes(contestant)
        ]
    return steps


def run(options, command, races, show, added=tuple):
    """Measure, write the JSON file, show the tables; returns the exit code.

    `show` is called with the finished document and a console.  `added` returns
    sentences on delays that are added elsewhere than to syncs.
    """
    steps = schedule(races, options.contestants, options.rounds)
    if not steps:
        workloads = dict.fromkeys(race.workload for race in races)
        complain(command, 'none of these contestants takes part in'
                 f' {", ".join(workloads)} (--help explains)')
        return NOTHING_TO_MEASURE
    document = {}
    try:
        # A server may run in another directory than this process.
        home = os.path.abspath(options.directory)
        with supervisor.interrupts_noted():
            with directory(home) as scratch:
                document = documents.new(
                    command, races, options.contestants, options.rounds,
                    options.contestants[0].name, machine.describe(scratch),
                    ' '.join(added()))
                _measure(document, races, steps, scratch, options.json)
            supervisor.check()
        show(document, Console())
    except KeyboardInterrupt:
        kept = (
            f'what was measured so far is in {options.json}'
            if options.json and document else 'nothing is kept')
        complain(command, f'interrupted; {kept}')
        return INTERRUPTED
    except (supervisor.Failed, OSError) as error:
        complain(command, error)
        return 1
    return 0


def complain(command, message):
    print(f'fsync-time {command}: {message}', file=sys.stderr)


def _measure(document, races, steps, scratch, json):
    try:
        for number, (round, race, contestant) in enumerate(steps, 1):
            which = (f'round {round} of {document["rounds"]}' if round
                     else 'warm-up')
            _tell(f'{number}/{len(steps)}: {which}, {contestant.name}')
            document['samples'].append({
                'race': race, 'contestant': contestant.name, 'round': round,
                'figures': _figures(races[race], contestant, scratch)})
        document['complete'] = True
    finally:
        _tell('')
        if json:
            documents.save(document, json)


def _tell(words):
    """A line in a terminal, in place of the one before."""
    if sys.stderr.isatty():
        print(f'\r{words}\x1b[K', end='', file=sys.stderr, flush=True)


def _figures(race, contestant, scratch):
    """Those of a sample, which is taken in a directory of its own."""
    with directory(scratch) as place:
        try:
            return supervisor.run(
                functools.partial(race.measure, **race.settings),
                contestant, place)
        except supervisor.Failed as error:
            raise supervisor.Failed(
                f'{contestant.name} failed'
                f' ({wording.listed(race.settings)}): {error}') from error


@contextlib.contextmanager
def directory(parent):
    """A new directory, which is removed when the `with` ends."""
    with tempfile.TemporaryDirectory(
            prefix='fsync-time-', dir=parent) as path:
        # A server in here may run as another user.
        os.chmod(path, 0o711)
        yield path
