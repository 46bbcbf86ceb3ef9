"""What a pack must know of a file, found in one read of all of it.

The read checks each transaction, so that no damage is copied: the copy would
hide it.  As stock's packer does, the read finds

- the *pack end*: the position of the first transaction after the pack time;
- where the current record of each object is at the pack time;
- back pointers of undos that lead from behind the pack end to before it.

Memory: an index, and 16 bytes for each such back pointer.
"""

import array
from collections.abc import Iterator

from ZODB.fsIndex import fsIndex

from ..format import scan
from ..format.scan import FIRST
from ..format.window import Window
from ..positions import Positions
from .progress import CHECK
from .progress import STEP
from .progress import Tell


class Survey:

    def __init__(self) -> None:
        #: Where the current record of each object is at the pack time.
        self.current = Positions(fsIndex())
        self.pack_end = FIRST
        #: Was the file packed to this time before, or to a later one?
        self.is_redundant = False
        #: Back pointers across the pack end: their objects, and their targets.
        self.later_oids = array.array('Q')
        self.later_targets = array.array('Q')

    def _add(self, found: scan.Transaction) -> None:
        """A transaction up to the pack time."""
        index = self.current
        for record in found.records:
            if record.length or record.back:
                index[record.oid] = record.position
            elif record.oid in index:  # its creation is undone
                del index[record.oid]

    def _add_later(self, found: scan.Transaction) -> None:
        for record in found.records:
            if 0 < record.back < self.pack_end:
                self.later_oids.append(int.from_bytes(record.oid, 'big'))
                self.later_targets.append(record.back)


def survey(window: Window, stop: bytes, tell: Tell) -> Survey:
    """Read up to the end of the window; scan.Damage if anything is wrong."""
    result = Survey()
    is_later = False
    all_packed, status = True, b''
    for found in _transactions(window, tell):
        if not is_later and found.tid > stop:
            is_later, status = True, found.status
        if is_later:
            result._add_later(found)
        else:
            all_packed = all_packed and found.status == b'p'
            status = found.status
            result._add(found)
            result.pack_end = found.end
    result.is_redundant = all_packed and status == b'p'
    return result


def _transactions(window: Window, tell: Tell) -> Iterator[scan.Transaction]:
    position, due, found = FIRST, 0, None
    while position < window.end:
        if position >= due:
            tell(CHECK, position, window.end)
            due = position + STEP
        found = scan.read_transaction(window, position, found)
        yield found
        position = found.end
