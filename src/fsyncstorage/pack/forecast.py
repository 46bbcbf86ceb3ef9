"""What a pack would free, and what it would need.  Nothing is changed.

A forecast decides what is kept by the same code as a pack (plan), and then
copies to nowhere, by the same code, too.  Like the copy, it can be done by a
child process, or in this process.

Records that a storage wrapper has changed are refused (ValueError):
no reference would be found in them, and nearly all objects would seem to go.

The time that a pack would take is estimated: it does the same, and to write is
assumed to take as long as to read.
"""

import time
import typing
from typing import Any

from .. import datafile
from ..format.references import references
from ..format.window import Pread
from ..format.window import Window
from ..processes.rate import Rate
from .counting import Row
from .counting import Tally
from .counting import refuse_wrapped
from .goneblobs import GoneBlobs
from .output import Output
from .pacing import reading_at
from .plan import Job
from .plan import NothingToDo
from .plan import planned
from .progress import Tell
from .work import copied_to_nowhere
from .work import room


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


def _references(record: bytes) -> list[bytes]:
    refuse_wrapped(record)
    return references(record)


def foreseen(job: Job, pread: Pread, removed: datafile.DataFile | None,
             tell: Tell) -> Forecast:
    """Make a forecast.  `removed` gets the list of blobs that are not kept.

    Raises scan.Damage, POSKeyError (a reference leads nowhere), OSError.
    """
    rate = None if job.rate is None else Rate(job.rate)
    window = Window(reading_at(rate, pread), job.end)
    begun = time.monotonic()
    nothing = Forecast(job.end, job.end, 0, 0, 0, [])
    try:
        plan = planned(job, window, _references, tell)
    except NothingToDo:
        return nothing._replace(seconds=time.monotonic() - begun)
    is_planned = time.monotonic()
    tally = Tally(window)
    copier = copied_to_nowhere(
        window, plan, tell,
        GoneBlobs(None if removed is None else Output(removed)), tally)
    now = time.monotonic()
    if copier is None:
        return nothing._replace(seconds=now - begun)
    rows = tally.rows()
    return Forecast(
        job.end, copier.written_to,
        room(copier.written_to, plan.kept, job.share),
        2 * now - is_planned - begun,
        job.end - copier.written_to - sum(row.bytes for row in rows), rows)
