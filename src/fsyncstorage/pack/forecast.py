"""What a pack would free, and what it would need.  Nothing is changed.

A forecast decides what is kept by the same code as a pack (plan), and then
counts instead of copying (counting).  Like the copy, it can be done by a child
process, or in this process.

Records that a storage wrapper has changed are refused (ValueError, counting):
no reference would be found in them, and nearly all objects would seem to go.

In one way a forecast is less strict than a pack: it finds references faster
(quickreferences), so it may not notice a record that a pack refuses.

The time that a pack would take is estimated.  Its first phases are the same
here, so they are measured.  The copy is not made: it would read the file as
the check does, and to write a byte is assumed to cost `_WRITTEN` times as much
as to read it.
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
    #: Room on the disk for the new file, and for the files beside it.
    needed: int
    #: How long the pack would take.
    seconds: float
    #: Bytes that are freed of transactions, in addition to their records.
    transactions: int
    #: What is freed of records; the largest first.
    rows: list[Row]

    @property
    def freed(self) -> int:
        return self.old_size - self.new_size

    # From process to process, as JSON.

    @classmethod
    def from_json(cls, found: list[Any]) -> 'Forecast':
        """TypeError or ValueError if `found` is not a forecast."""
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
    """Make a forecast.  `removed` gets the list of blobs that are not kept.

    Raises scan.Damage, POSKeyError (a reference leads nowhere), OSError.
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
