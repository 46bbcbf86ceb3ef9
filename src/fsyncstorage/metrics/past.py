"""The last ten minutes of one storage, for the pictures of the page.

A sample each five seconds, whether anybody looks or not: who opens the page
because something is slow wants to see what came before.  It costs the reading
of the figures, which nobody waits for.  (If those that look took the samples,
there would be none of the time before.)

The columns have `MOST` values each, and none that is older than `SPAN`
seconds; so they never need more room.  A value says what happened since the
sample before, per second or as a duration; or what was so at that moment.
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

#: What took time: what the storage calls its histogram.
_TIMED = {'commit': 'commit_latency', 'sync': 'sync_latency'}
_SHARES = {'p50': 0.50, 'p99': 0.99}

#: What is so at a moment.
_THEN: dict[str, Callable[[Reading], Any]] = {
    'clients': lambda of: of.any_of('connections'),
    'waiting_for_objects': lambda of: (of.waiting or {}).get('vote'),
    'waiting_for_sync': lambda of: (of.waiting or {}).get('sync'),
    'waiting_reads': lambda of: of.any_of('reader-threads-waiting'),
}


def seen_by(histograms: Iterable[Histogram]) -> list[int]:
    """`Histogram.seen` of several, that are of different commits."""
    counts = [histogram.seen()[0] for histogram in histograms]
    return [sum(each) for each in zip(*counts)]


def percentiles(seen: list[int]) -> dict[str, float | None]:
    """By their names; None if there is nothing."""
    return {name: (round(min(Histogram.percentile_of(seen, share), _LONGEST),
                         7) if seen and seen[-1] else None)
            for name, share in _SHARES.items()}


class Past:
    """Of the thread that answers."""

    def __init__(self) -> None:
        self._at: deque[float] = deque(maxlen=MOST)
        self._columns: dict[str, deque[float | None]] = {
            name: deque(maxlen=MOST) for name in (
                *_COUNTED, *_THEN,
                *(f'{name}_{share}' for name in _TIMED for share in _SHARES))}
        self._before: tuple[float, dict[str, Any],
                            dict[str, list[int]]] | None = None

    def add(self, reading: Reading, now: float) -> None:
        """`now` is of a clock that is never set."""
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
        """The last values of a column, the newest as the last one."""
        return list(self._columns[name])[-number:]

    def columns(self, now: float) -> dict[str, list[float | None]]:
        """Of the same length each, with `ago`: how many seconds ago."""
        return {'ago': [round(now - at, 1) for at in self._at],
                **{name: list(column)
                   for name, column in self._columns.items()}}


def _rate(before: Any, now: Any, seconds: float) -> float | None:
    """None also if it was counted by a server that has gone, or has come."""
    if before is None or now is None or now < before:
        return None
    return round((now - before) / seconds, 3)


def _difference(before: list[int], now: list[int]) -> list[int]:
    """What was seen between two moments; nothing if it cannot be known, since
    a histogram has come or gone."""
    seen = [b - a for a, b in zip(before, now)]
    return seen if min(seen, default=0) >= 0 else []
