"""The process that scrubs: it reads for one pass, and reports to its parent.

Its parent has opened the file, and passes the number of the descriptor.  The
list of reports is in docs/internals/scrub.rst.
"""

import dataclasses
import os
import traceback

from ..format import scan
from ..format.seal import UnknownVersion
from ..processes import priority
from ..processes.parent import Message
from ..processes.parent import ParentProcess
from ..processes.rate import Rate
from . import notes
from .fromdisk import FromDisk
from .fromdisk import past_the_cache
from .verifying import Verifier
from .verifying import is_mended


def main(pid: int) -> None:
    priority.give_way()
    parent = ParentProcess(pid)
    try:
        verified = _verify(parent.job(), parent)
        parent.report({'ended': dataclasses.asdict(verified)})
    except (OSError, UnknownVersion) as error:
        parent.report({'failed': str(error)})
    except Exception:
        parent.report({'failed': traceback.format_exc()})
    # An ordinary exit would wait for the thread that reads commands.
    os._exit(0)


def _verify(job: Message, parent: ParentProcess) -> notes.Pass:

    def report(done: notes.Pass, damage: scan.Damage | None) -> None:
        parent.report({
            'read': dataclasses.asdict(done),
            'damage': None if damage is None else str(damage)})

    def spent(size: int) -> None:
        verifier.has_read()
        rate.spent(size)

    rate = Rate(job['rate'], parent.wait)
    verifier = Verifier(
        notes.checked(notes.Pass, job['pass']), report,
        lambda: parent.wait(job['pause']),
        lambda damage: parent.report({'sound': str(damage)}))
    disk = FromDisk(past_the_cache(job['file']), spent, parent.wait)
    if job['damaged'] and is_mended(disk, job['end'], job['damaged']):
        parent.report({'mended': job['damaged']})
        verifier.done = notes.Pass(0)
    verifier.verify(disk, job['end'])
    return verifier.done
