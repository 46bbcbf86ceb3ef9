"""The progress bar of a campaign, with the time that is left.

It goes to standard error, and only to a terminal.  It has no thread of its
own, since samples are forked: the campaign calls `tick` while it waits.
"""

import contextlib
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn
from rich.progress import MofNCompleteColumn
from rich.progress import Progress
from rich.progress import TextColumn

from .statistics import median


class Forecast:
    """How long the rest of the steps will take.

    A step takes as long as it took the last time.  One that was not seen yet
    takes the median of those that were.
    """

    def __init__(self, steps):
        self._left = list(steps)
        self._seen = {}

    def took(self, step, seconds):
        self._left.remove(step)
        self._seen[step.race, step.contestant] = seconds

    def seconds(self):
        """None as long as there is nothing to go by."""
        if not self._seen:
            return None
        usual = median(self._seen.values())
        return sum(
            self._seen.get((step.race, step.contestant), usual)
            for step in self._left
        )


class CampaignProgress:

    def __init__(self, steps, rounds, console=None):
        console = console or Console(stderr=True)
        self._forecast = Forecast(steps)
        self._rounds = rounds
        self._began = None
        self._expected = None
        self._bar = Progress(
            TextColumn('{task.description}'),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn('{task.fields[left]}'),
            console=console,
            auto_refresh=False,
            transient=True,
            expand=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task('', total=len(steps), left='')

    def __enter__(self):
        self._bar.start()
        return self

    def __exit__(self, *error):
        self._bar.stop()

    @contextlib.contextmanager
    def step(self, step):
        self._began = monotonic()
        self._expected = self._forecast.seconds()
        round_name = (
            f'round {step.round} of {self._rounds}' if step.round
            else 'warm-up')
        self._bar.update(
            self._task, description=f'{round_name}: {step.contestant.name}')
        self.tick()
        yield
        self._forecast.took(step, monotonic() - self._began)
        self._bar.update(self._task, advance=1)

    def tick(self):
        self._bar.update(self._task, left=self._time_left(), refresh=True)

    def _time_left(self):
        if self._expected is None:
            return ''
        # Within a step, count down, but not below the steps to come.
        seconds = max(
            0, self._expected - (monotonic() - self._began))
        minutes, seconds = divmod(round(seconds), 60)
        return f'{minutes}:{seconds:02} left'
