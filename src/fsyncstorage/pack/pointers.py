"""Which record of the old file has the data that a back pointer leads to.

An undo writes a record without data, which points back to an earlier record,
and that one may point back, too.  The ends of these chains are remembered, so
that a long chain is not walked again and again.
"""

from ..format import scan
from ..format.window import Window


class Chains:

    def __init__(self, window: Window) -> None:
        self._window = window
        self._ends: dict[int, scan.Record] = {}

    def source(self, record: scan.Record) -> scan.Record:
        """The record that has the data of this one.

        If the creation of the object is undone, the returned record has no
        data.  scan.Damage if a pointer does not lead to a record of the
        object.
        """
        if not record.back:
            return record
        source = record
        try:
            for source in scan.backward(self._window, record):
                end = self._ends.get(source.position)
                if end is not None:
                    source = end
                    break
        except ValueError as wrong:
            raise scan.Damage(
                record.position, record.tid, scan.DAMAGED, str(wrong)
            ) from None
        self._ends[record.position] = source
        return source
