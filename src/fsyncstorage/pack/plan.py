"""What a pack keeps: decided in one place, for a pack and for a forecast."""

import typing
from collections.abc import Sequence

from ..format.window import Window
from . import marking
from .marking import Kept
from .marking import References
from .progress import Tell
from .survey import survey


class Job(typing.NamedTuple):
    stop: bytes     # the tid of the pack time
    end: int        # the old file is read up to here before the pack decides
    gc: bool
    rate: int | None = None     # most bytes to read or write in a second
    share: float = 1.0          # bytes on the disk per byte (1: uncompressed)
    sums: bool = False          # is the checksum of the new file wanted?


class NothingToDo(Exception):
    """The file would not become shorter."""


class Plan(typing.NamedTuple):
    pack_end: int
    #: Which records before the pack end are kept.
    kept: Kept
    #: The records before the pack end that later ones point back to.
    targets: Sequence[int]


def planned(job: Job, window: Window, references: References,
            tell: Tell) -> Plan:
    """Decide what a pack keeps.

    Raises NothingToDo, scan.Damage, or POSKeyError (a reference leads
    nowhere).  Without garbage collection no references are read.
    """
    found = survey(window, job.stop, tell)
    if found.is_redundant:
        raise NothingToDo(
            'The database has already been packed to a later time or no'
            ' changes have been made since the last pack')
    pack_end, targets = found.pack_end, found.later_targets
    kept = (marking.reachable(found, window, references, tell)
            if job.gc else marking.all_current(found))
    return Plan(pack_end, kept, targets)
