"""What a pack keeps: decided in one place, for a pack and for a forecast."""

import typing
from collections.abc import Sequence

from ..format.window import Window
from . import marking
from .marking import Kept
from .marking import References
from .marking import Witness
from .progress import Tell
from .survey import survey


class Job(typing.NamedTuple):
    stop: bytes     # the tid of the pack time
    end: int        # of the old file: up to there it is read, and decided
    gc: bool
    rate: int | None = None     # bytes that are read or written in a second
    share: float = 1.0          # of a byte, on the disk (compressed: less)
    sums: bool = False          # is the checksum of the new file wanted?


class NothingToDo(Exception):
    """The file would not become shorter."""


class Plan(typing.NamedTuple):
    pack_end: int
    #: Of the records up to there.
    kept: Kept
    #: The records up to there that later ones point back to.
    targets: Sequence[int]


def planned(job: Job, window: Window, references: References, tell: Tell,
            witness: Witness | None = None) -> Plan:
    """NothingToDo; scan.Damage; POSKeyError: a reference leads nowhere.

    Without garbage collection, no references are read, and the witness is told
    of nothing.
    """
    found = survey(window, job.stop, tell)
    if found.is_redundant:
        raise NothingToDo(
            'The database has already been packed to a later time or no'
            ' changes have been made since the last pack')
    pack_end, targets = found.pack_end, found.later_targets
    kept = (marking.reachable(found, window, references, tell, witness)
            if job.gc else marking.all_current(found))
    return Plan(pack_end, kept, targets)
