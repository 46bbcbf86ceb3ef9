"""The long part of a pack: check, mark, copy.

It reads the old file and appends to the new one, and to the list of blobs that
are not kept.  It gives no names, takes no lock and knows no storage: so it can
be done by another process (child), or here.
"""

import typing

from .. import datafile
from ..format.window import Pread
from ..format.window import Window
from . import marking
from .copying import Copier
from .copying import Output
from .marking import References
from .pacing import Pacer
from .progress import Tell
from .survey import survey


class Job(typing.NamedTuple):
    stop: bytes     # the tid of the pack time
    end: int        # of the old file, for now
    gc: bool


class NothingToDo(Exception):
    """The file would not become shorter."""


def copied(job: Job, pread: Pread, new: datafile.DataFile, pacer: Pacer,
           removed: datafile.DataFile | None, references: References,
           tell: Tell) -> Copier:
    """Copy what is needed of the old file, up to `job.end`.

    scan.Damage, POSKeyError (a reference leads nowhere), OSError.
    """
    window = Window(pread, job.end)
    found = survey(window, job.stop, tell)
    if found.is_redundant:
        raise NothingToDo(
            'The database has already been packed to a later time or no'
            ' changes have been made since the last pack')
    pack_end, targets = found.pack_end, found.later_targets
    kept = (marking.reachable(found, window, references, tell) if job.gc
            else marking.all_current(found))
    copier = Copier(Output(new, 0, pacer.written),
                    None if removed is None else Output(removed))
    copier.copy_to_pack_end(window, pack_end, kept, targets, tell)
    if copier.written_to == pack_end:
        raise NothingToDo('Nothing can be freed')
    del kept, found
    copier.copy_later(window, tell)
    return copier
