"""The last ten minutes of one storage, for the pictures of the page.

A sample is taken every five seconds, whether anybody looks or not: a person
who opens the page because something is slow wants to see what came before.
The cost is to read the figures, and nobody waits for that.  (If the page took
the samples, there would be none of the time before it was opened.)

Each column has at most `MOST` values, and none that is older than `SPAN`
seconds; so its memory is bounded.  A value says what happened since the sample
before, per second or as a duration; or what was the case at that moment.
None: there is no such figure, or nothing of that kind happened.
"""

from collections import deque
from collections.abc import Callable
from collections.abc import Iterable
from typing import Any

from ..histogram import Histogram
from .shown import Reading

EVERY = 5.0
SPAN = 600.0
MOST = int(SPAN / EVERY)

_LONGEST = Histogram.BOUNDS[-1]

#: What is counted, and shown per second.
_COUNTED: dict[str, Callable[[Reading], Any]] = {
    'commits': lambda of: of.any_of('commits'),
    'committed_bytes': lambda of: of.any_of('committed_bytes'),
    'conflicts': lambda of: of.conflicts,
    'syncs': lambda of: of.any_of('syncs'),
    'loads_from_memory': lambda of: of.loads and of.loads['memory'],
    'loads_from_disk': lambda of: of.loads and of.loads['disk'],
}

#: What takes time -> the name of its histogram in the storage.
_TIMED = {'commit': 'commit_latency', 'sync': 'sync_latency'}
_SHARES = {'p50': 0.50, 'p99': 0.99}

#: Figures of the moment itself.
_THEN: dict[str, Callable[[Reading], Any]] = {
    'clients': lambda of: of.any_of('connections'),
    'waiting_for_objects': lambda of: (of.waiting or {}).get('vote'),
    'waiting_for_sync': lambda of: (of.waiting or {}).get('sync'),
    'waiting_reads': lambda of: of.any_of('reader-threads-waiting'),
}


def seen_by(histograms: Iterable[Histogram]) -> list[int]:
    """The sum of `Histogram.seen` of several, which count different commits.
    """
    counts = [histogram.seen()[0] for histogram in histograms]
    return [sum(each) for each in zip(*counts)]


def percentiles(seen: list[int]) -> dict[str, float | None]:
    """By their names; None if nothing was seen."""
    return {name: (round(min(Histogram.percentile_of(seen, share), _LONGEST),
                         7) if seen and seen[-1] else None)
            for name, share in _SHARES.items()}


class Past:
    """Used only by the thread that answers."""

    def __init__(self) -> None:
        self._at: deque[float] = deque(maxlen=MOST)
        self._columns: dict[str, deque[float | None]] = {
            name: deque(maxlen=MOST) for name in (
                *_COUNTED, *_THEN,
                *(f'{name}_{share}' for name in _TIMED for share in _SHARES))}
        self._before: tuple[float, dict[str, Any],
                            dict[str, list[int]]] | None = None

    def add(self, reading: Reading, now: float) -> None:
        """Add a sample; `now` is of a monotonic clock."""
        counted = {name: read(reading) for name, read in _COUNTED.items()}
        timed = {name: seen_by(reading.histograms.get(key, []))
                 for name, key in _TIMED.items()}
        before, self._before = self._before, (now, counted, timed)
        if before is None or now <= before[0]:
            return
        self._at.append(now)
        values = {name: read(reading) for name, read in _THEN.items()}
        for name, count in counted.items():
            values[name] = _rate(before[1][name], count, now - before[0])
        for name, seen in timed.items():
            for share, value in percentiles(
                    _difference(before[2][name], seen)).items():
                values[f'{name}_{share}'] = value
        for name, column in self._columns.items():
            column.append(values[name])
        while self._at[0] < now - SPAN:
            self._at.popleft()
            for column in self._columns.values():
                column.popleft()

    def last(self, name: str, number: int) -> list[float | None]:
        """The last `number` values of a column, the newest last."""
        return list(self._columns[name])[-number:]

    def columns(self, now: float) -> dict[str, list[float | None]]:
        """All columns, of the same length; `ago` is the age in seconds."""
        return {'ago': [round(now - at, 1) for at in self._at],
                **{name: list(column)
                   for name, column in self._columns.items()}}


def _rate(before: Any, now: Any, seconds: float) -> float | None:
    """The rate per second.

    None if it is unknown, also because a server that counts has begun or ended
    in between.
    """
    if before is None or now is None or now < before:
        return None
    return round((now - before) / seconds, 3)


def _difference(before: list[int], now: list[int]) -> list[int]:
    """What was seen between two moments.

    It is empty if that is unknown, because a histogram has appeared or
    disappeared in between.
    """
    seen = [b - a for a, b in zip(before, now)]
    return seen if min(seen, default=0) >= 0 else []
