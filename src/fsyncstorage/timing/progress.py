"""The progress bar of a campaign, with the time that is left.

It goes to standard error, and only to a terminal.  It has no thread of its
own, since samples are forked: the campaign refreshes it while it waits.
"""

import contextlib

from rich.console import Console
from rich.progress import BarColumn
from rich.progress import MofNCompleteColumn
from rich.progress import Progress
from rich.progress import TextColumn
from rich.progress import TimeRemainingColumn


class CampaignProgress(Progress):

    def __init__(self, steps, rounds, console=None):
        console = console or Console(stderr=True)
        super().__init__(
            TextColumn('{task.description}'),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            # A single sample may take longer than the usual 30 seconds.
            speed_estimate_period=3600,
            auto_refresh=False,
            transient=True,
            expand=True,
            disable=not console.is_terminal,
        )
        self._rounds = rounds
        self._task = self.add_task('', total=len(steps))

    @contextlib.contextmanager
    def step(self, step):
        round_name = (
            f'round {step.round} of {self._rounds}' if step.round
            else 'warm-up')
        self.update(
            self._task, description=f'{round_name}: {step.contestant.name}',
            refresh=True)
        yield
        self.update(self._task, advance=1)
