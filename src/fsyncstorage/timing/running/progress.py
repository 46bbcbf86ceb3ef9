"""The progress bar of a campaign, with the time that is left.

It is shown on standard error, if that is a terminal.  It has no thread of its
own, because samples are forked: the campaign refreshes it while it waits.
"""

from rich import progress
from rich.console import Console


class CampaignProgress(progress.Progress):

    def __init__(self, steps, rounds, console=None):
        console = console or Console(stderr=True)
        super().__init__(
            console=console,
            # A single sample may take longer than the usual 30 seconds.
            speed_estimate_period=3600,
            auto_refresh=False,
            transient=True,
            disable=not console.is_terminal,
        )
        self._rounds = rounds
        self._steps = steps

    def each_step(self):
        """Yields the steps, and shows which one is taken."""
        task = self.add_task('')
        for step in self.track(self._steps, task_id=task):
            which = (f'round {step.round} of {self._rounds}' if step.round
                     else 'warm-up')
            self.update(task, description=f'{which}: {step.contestant.name}',
                        refresh=True)
            yield step
