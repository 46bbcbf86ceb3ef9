"""What a pack would free, and what it would need.  Nothing is changed.

It is decided as in a pack (plan), and counted in place of copied (counting).
Like the copy, it can be done by a process of its own, or within this one.

Records that a storage wrapper has changed are refused (ValueError, counting):
no reference would be found in them, and nearly all would seem to go.

In one place it is less strict: references are found in less time
(quickreferences), so that a record which a pack refuses may go unnoticed.

The time of the pack is that of its first phases, which are the same here.  The
copy is not made: it reads the file as the check does, and what it writes is
taken to cost `_WRITTEN` times as much as what is read.
"""

import time
import typing
from typing import Any

from .. import datafile
from ..format.quickreferences import quick_references
from ..format.window import Pread
from ..format.window import Window
from ..processes.rate import Rate
from .counting import Row
from .counting import Tally
from .goneblobs import GoneBlobs
from .output import Output
from .pacing import reading_at
from .plan import Job
from .plan import NothingToDo
from .plan import planned
from .progress import CHECK
from .progress import Tell

_WRITTEN = 2


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
             tell: Tell) -> Forecast:
    """`removed` gets the list of the blobs that are not kept.

    scan.Damage, POSKeyError (a reference leads nowhere), OSError.
    """
    rate = None if job.rate is None else Rate(job.rate)
    window = Window(reading_at(rate, pread), job.end)
    tally = Tally(
        window, None if removed is None else GoneBlobs(Output(removed)),
        job.share)
    begun = time.monotonic()
    is_checked = 0.0

    def tell_and_look(phase: str, done: int, total: int) -> None:
        nonlocal is_checked
        if phase != CHECK and not is_checked:
            is_checked = time.monotonic()
        tell(phase, done, total)

    try:
        plan = planned(job, window, quick_references, tell_and_look, tally)
    except NothingToDo:
        return Forecast(job.end, job.end, 0, time.monotonic() - begun, 0, [])
    is_planned = time.monotonic()
    is_checked = is_checked or is_planned
    if not job.gc:
        tally.read(plan, tell)
    found = tally.counted(plan)
    copied = (is_checked - begun) * (
        1 + _WRITTEN * found.new_size / found.old_size)
    return Forecast(
        found.old_size, found.new_size, found.needed,
        is_planned - begun + copied, found.transactions, found.rows)
