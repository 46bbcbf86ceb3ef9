"""How much others used the processors while samples were taken.

Others are all processes except the driver and those of its samples, and other
virtual machines on the same host, if they took processor time away (steal).
The threads of the kernel do not count: they write to the disk for the samples.

It is known only on Linux, from counters that tick a hundred times a second:
too coarse for one short sample, and fine enough for all samples of a round.
"""

import contextlib
import os
import pathlib
import resource
import time
from typing import Any

#: A machine where others use more than this of a processor is not quiet.
MOST = 0.1

_PROC = pathlib.Path('/proc')
#: The process whose children are the threads of the kernel.
_KERNEL = '2'


class Watch:
    """Watches from the time when it was made."""

    def __init__(self) -> None:
        self._began, self._others = time.monotonic(), _others()

    def seen(self) -> dict[str, float] | None:
        """Seconds, and the processor time of others; None if unknown."""
        others = _others()
        if self._others is None or others is None:
            return None
        return {
            'seconds': time.monotonic() - self._began,
            # The counters were not all read at the same time.
            'cpu_seconds': max(0.0, others - self._others)}


def share(document: dict[str, Any]) -> float | None:
    """The part of a processor, in the worst round; None if unknown."""
    rounds: dict[int, list[dict[str, float]]] = {}
    for sample in document['samples']:
        if seen := sample.get('others'):
            rounds.setdefault(sample['round'], []).append(seen)
    return max((
        sum(one['cpu_seconds'] for one in seen)
        / sum(one['seconds'] for one in seen)
        for number, seen in rounds.items() if number > 0), default=None)


def warning(document: dict[str, Any]) -> str:
    """A sentence, if the machine was not quiet; else an empty text."""
    found = share(document)
    if found is None or found <= MOST:
        return ''
    return (f'THE MACHINE WAS NOT QUIET: others used {found:.0%} of a'
            ' processor, in the worst of the rounds.')


def _others() -> float | None:
    """Processor seconds of others since the machine was started."""
    try:
        # cpu user nice system idle iowait irq softirq steal ...
        _, user, nice, system, _, _, _, _, steal, *_ = (
            _PROC / 'stat').read_text().partition('\n')[0].split()
    except (OSError, ValueError):
        return None  # not Linux
    ticks = sum(map(int, (user, nice, system, steal))) - _of_kernel()
    ours = sum(sum(resource.getrusage(whose)[:2]) for whose in (
        resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return ticks / os.sysconf('SC_CLK_TCK') - ours


def _of_kernel() -> int:
    """Ticks of the threads of the kernel."""
    ticks = 0
    for path in _PROC.glob('[0-9]*/stat'):
        with contextlib.suppress(OSError):  # it has ended
            # 123 (kworker/0:1) S 2 ...; the name may have anything in it
            fields = path.read_text().rpartition(') ')[2].split()
            if fields[1] == _KERNEL:
                ticks += int(fields[11]) + int(fields[12])
    return ticks
