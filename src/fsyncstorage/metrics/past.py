"""The last half hour of one storage, for the pictures of the page.

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
from collections.abc import Iterable
from typing import Any

from ..histogram import Histogram
from .reading import Reading

EVERY = 5.0
SPAN = 1800.0
MOST = int(SPAN / EVERY)

_LONGEST = Histogram.BOUNDS[-1]

#: What is counted, and shown per second -> where it is (`Reading.at`).
_COUNTED = {
    'commits': 'counts.commits',
    'conflicts': 'conflicts',
    'syncs': 'counts.syncs',
    'loads_from_memory': 'loads.memory',
    'loads_from_disk': 'loads.disk',
    'loads_by_readers': 'loads.readers',
}

#: What takes time -> the name of its histogram in the storage.
_TIMED = {'commit': 'commit_latency', 'sync': 'sync_latency'}
_SHARES = {'p50': 0.50, 'p99': 0.99}

#: Figures of the moment itself.
_THEN = {
    'clients': 'counts.connections',
    'waiting_for_objects': 'waiting.vote',
    'waiting_for_sync': 'waiting.sync',
}

_COLUMNS = [*_COUNTED, *_THEN, *(
    f'{name}_{share}' for name in _TIMED for share in _SHARES)]


def _seen_by(histograms: Iterable[Histogram]) -> list[int]:
    """The sum of `Histogram.seen` of several, which count different commits.
    """
    counts = [histogram.seen()[0] for histogram in histograms]
    return [sum(each) for each in zip(*counts)]


class Past:
    """Used only by the thread that answers."""

    def __init__(self) -> None:
        #: When each sample was taken, and its values, by column.
        self._samples: deque[tuple[float, dict[str, Any]]] = deque(maxlen=MOST)
        self._before: tuple[float, dict[str, Any],
                            dict[str, list[int]]] | None = None

    def add(self, reading: Reading, now: float) -> None:
        """Add a sample; `now` is of a monotonic clock."""
        counted = {name: reading.at(path) for name, path in _COUNTED.items()}
        timed = {name: _seen_by(reading.histograms.get(key, []))
                 for name, key in _TIMED.items()}
        before, self._before = self._before, (now, counted, timed)
        if before is None or now <= before[0]:
            return
        values = {name: reading.at(path) for name, path in _THEN.items()}
        for name, count in counted.items():
            values[name] = _per_second(
                before[1][name], count, now - before[0])
        for name, seen in timed.items():
            since = [b - a for a, b in zip(before[2][name], seen)]
            for share, part in _SHARES.items():
                values[f'{name}_{share}'] = _percentile(since, part)
        self._samples.append((now, values))
        while self._samples[0][0] < now - SPAN:
            self._samples.popleft()

    def last(self, name: str, number: int) -> list[float | None]:
        """The last `number` values of a column, the newest last."""
        return [values[name] for _, values in self._samples][-number:]

    def columns(self, now: float) -> dict[str, list[float | None]]:
        """All columns, of the same length; `ago` is the age in seconds."""
        return {'ago': [round(now - at, 1) for at, _ in self._samples],
                **{name: self.last(name, MOST) for name in _COLUMNS}}


def _percentile(seen: list[int], share: float) -> float | None:
    """None if nothing was seen; or if that is unknown, because a histogram has
    appeared or disappeared in between."""
    if not seen or min(seen) < 0 or not seen[-1]:
        return None
    return round(min(Histogram.percentile_of(seen, share), _LONGEST), 7)


def _per_second(before: Any, now: Any, seconds: float) -> float | None:
    """None if it is unknown, also because a server that counts has begun or
    ended in between."""
    if before is None or now is None or now < before:
        return None
    return round((now - before) / seconds, 3)
