"""What may be undone while a pack is under way.

A pack decides what is kept by what the file has when the pack begins.  An undo
that is appended later is copied with its data, whatever it points back to.
But the objects that these data refer to may be gone, if nothing that the pack
has seen refers to them.  So the revision that an undo restores must be one of
these:

- one that was committed after the pack time, or after the pack has begun: as
  far as its references are kept at all, a later undo does not change that;
- the one that the object had at the pack time, if the pack keeps it: it was
  reached from the root, and so was what it refers to.  This is known when the
  marking has ended;
- none: the creation of the object is undone.

Without garbage collection, every object is kept, and every undo goes on.

The order of events:

1. The pack gives the storage a `Restorable`.  From then on every undo asks it,
   for the last time when the undo holds the append lock.
2. The pack waits for undos that already hold this lock (packing).
3. It reads where the file ends, or is told up to where all nodes read it
   (agreed).
4. It tells the `Restorable` that it has begun.

So each undo either is before this end, where the pack sees it, or has asked.
What was allowed once stays allowed up to the swap.  After the swap, undos do
not ask any more: what is left in the new file is whole.  An undo that was
allowed before the swap, and is voted after it, is worked out again (undoing).

The oids of the objects that go are in a file without a name, sorted, 8 bytes
each.  The process that packs writes this file.
"""

import bisect
import os
import sys
from collections.abc import Iterable

from ZODB.POSException import UndoError

from ..datafile import Descriptor
from .marking import Kept
from .progress import Tell

_NUMBER = 8

DISABLED = 'Undo is disabled while the database is packed'
_NOT_KNOWN = ('the database is being packed, and it is not known yet whether'
              ' what this would restore is kept whole: try again later')
_FINAL = ('the database is being packed to a later time than that of this'
          ' transaction')
_GOES = ('the database is being packed, and does not keep all that this would'
         ' restore: nothing referred to the object at the pack time')


class NothingRestorable:
    """For a packer of the user's own: nobody knows what it keeps."""

    def refuse(self, undone: bytes,
               restored: Iterable[tuple[bytes, bytes]]) -> None:
        """Raise UndoError if the transaction `undone` must not be undone now.

        `restored` has the oid of each object that it has changed, and the tid
        of the transaction with the revision before that change; or b'' if that
        revision has no data.
        """
        raise UndoError(DISABLED)

    def begin(self, stop: bytes) -> None:
        """The pack has begun, and packs what was committed up to this tid."""

    def learn(self, gone: Descriptor) -> None:
        """The objects that go are known now, and are listed in this file."""


class Restorable(NothingRestorable):

    def __init__(self, collects_garbage: bool) -> None:
        self._collects_garbage = collects_garbage
        self._stop: bytes | None = None
        self._gone: _Oids | None = None

    def begin(self, stop: bytes) -> None:
        self._stop = stop

    def learn(self, gone: Descriptor) -> None:
        self._gone = _Oids(gone)

    def refuse(self, undone: bytes,
               restored: Iterable[tuple[bytes, bytes]]) -> None:
        if self._collects_garbage:
            for oid, tid in restored:
                self._refuse_one(undone, oid, tid)

    def _refuse_one(self, undone: bytes, oid: bytes, tid: bytes) -> None:
        stop, gone = self._stop, self._gone
        if not tid:
            return
        if stop is None:
            raise UndoError(_NOT_KNOWN, oid)
        if tid > stop:
            return
        if undone <= stop:  # what it restores is not that of the pack time
            raise UndoError(_FINAL, oid)
        if gone is None:
            raise UndoError(_NOT_KNOWN, oid)
        if oid in gone:
            raise UndoError(_GOES, oid)


# The objects that go

def write_gone(kept: Kept, number: int, tell: Tell) -> None:
    """Write them into the empty file with this descriptor; it stays open."""
    with open(number, 'wb', closefd=False) as file:
        for oids in kept.gone(tell):
            if sys.byteorder == 'little':
                oids.byteswap()
            file.write(oids)


class _Oids:
    """A sorted row of oids in a file.

    The row is searched in the file, since it may be large.  The descriptor is
    closed when nobody refers to it any more: an undo may search while the pack
    ends.
    """

    def __init__(self, descriptor: Descriptor) -> None:
        self._descriptor = descriptor
        self._count = os.fstat(descriptor.number).st_size // _NUMBER

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> bytes:
        return os.pread(self._descriptor.number, _NUMBER, index * _NUMBER)

    def __contains__(self, oid: bytes) -> bool:
        at = bisect.bisect_left(self, oid)
        return at < len(self) and self[at] == oid
