"""What a pack would free, and what it would need.  Nothing is changed.

It is decided as in a pack (plan), and counted in place of copied (counting).
Like the copy, it can be done by a process of its own, or within this one.

The time of the pack is that of its first phases, which are the same here.  The
copy is not made: it reads as much as counting does, and what it writes is
taken to cost `_WRITTEN` times as much as what is read.
"""

import time
import typing
from typing import Any

from .. import datafile
from ..format.window import Pread
from ..format.window import Window
from . import counting
from .copying import Output
from .counting import Row
from .marking import References
from .pacing import Rate
from .plan import Job
from .plan import NothingToDo
from .plan import planned
from .progress import Tell

_WRITTEN = 3


class Forecast(typing.NamedTuple):

    old_size: int
    new_size: int
    #: Room for the new file and its index.
    needed: int
    #: Of the pack.
    seconds: float
    #: What is freed of transactions, beside their records.
    transactions: int
    #: What is freed of records; the largest first.
    rows: list[Row]

    @property
    def freed(self) -> int:
        return self.old_size - self.new_size

    # From process to process, as JSON.

    @classmethod
    def from_json(cls, found: list[Any]) -> 'Forecast':
        """TypeError or ValueError, if it is none."""
        made = cls(*found)
        made = made._replace(rows=[Row(*row) for row in made.rows])
        for row in made.rows:
            if not (isinstance(row.name, str) and _are_numbers(row[1:])):
                raise ValueError(row)
        if not _are_numbers(made[:-1]):
            raise ValueError(found)
        return made


def _are_numbers(values: tuple[Any, ...]) -> bool:
    return all(isinstance(each, (int, float)) for each in values)


def foreseen(job: Job, pread: Pread, removed: datafile.DataFile | None,
             references: References, tell: Tell) -> Forecast:
    """`removed` gets the list of the blobs that are not kept.

    scan.Damage, POSKeyError (a reference leads nowhere), OSError.
    """
    window = Window(Rate(job.rate).of_reading(pread), job.end)
    out = None if removed is None else Output(removed)
    begun = time.monotonic()
    try:
        plan = planned(job, window, references, tell)
    except NothingToDo:
        return Forecast(job.end, job.end, 0, time.monotonic() - begun, 0, [])
    is_planned = time.monotonic()
    found = counting.counted(plan, window, out, tell)
    if out is not None:
        out.flush()
    counted = time.monotonic()
    to_copy = (counted - is_planned) * (
        1 + _WRITTEN * found.new_size / found.old_size)
    return Forecast(
        found.old_size, found.new_size, found.needed,
        is_planned - begun + to_copy, found.transactions, found.rows)
