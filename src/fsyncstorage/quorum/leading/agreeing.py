"""The packs of a node that writes: what it tells the others, and when.

`PackHooks` is what a pack of the storage asks (pack.agreed):

- `begins` writes a PackBegin behind all that the log has by then.  Its place
  in the file is the end of the pack, for each node.
- `swaps` keeps, durably, what the file becomes, and then writes the PackSwap.
  From the offer on there is no way back: while nobody knows whether the record
  is in the log, nothing may be appended to the old file.  So if that is not
  found out (the storage is closed, an interrupt), nothing more is offered to
  the log, and the next start asks the log (unfinished).
- `over` lets the state behind the swap be kept, which is read from the new
  file; or writes a PackEnd, so that the others do not go on to pack.

Records of a pack are offered between two syncs, in any thread (`Speaker.say`).
Locks, in their order: the append lock, which `swaps` is called with; that of
the syncs; that of what is kept (keeping).  None of them is waited for with a
later one in hand.

Left to others: what a record does to a node (fold), and the nodes that follow
(repacking).
"""

import typing

from ZODB.FileStorage.FileStorage import FileStorageError

from ...commit.replica import NotReplicated
from ...errors import OutcomeUnknown
from ...pack.agreed import VERSION
from ...pack.agreed import Becoming
from ..history.fold import Pack
from ..history.fold import State
from ..history.record import PackBegin
from ..history.record import PackEnd
from ..history.record import PackSwap
from .writer import Fenced


class Speaker(typing.Protocol):
    """What a pack needs of the replicator.

    Each call waits for the log.  NotReplicated: it has given up; Fenced: what
    was to be written is not in the log, and never will be.
    """

    def say(self, body: PackBegin | PackEnd | PackSwap) -> State:
        """Bring this record into the log; return the state behind it."""

    def keep_becoming(self, becoming: Becoming) -> None:
        """Keep what the file becomes, durably."""

    def keep_on(self, replaced: State | None) -> None:
        """The file was replaced, durably, and this is the state behind that;
        or it never will be.  From now on the state is kept as ever."""

    def offer_no_more(self, why: str) -> None:
        """From now on nothing is offered to the log."""


class PackHooks:

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker
        #: The one that is under way, and the state behind its swap.
        self._pack: Pack | None = None
        self._behind: State | None = None

    def begins(self, stop: bytes, collects_garbage: bool,
               version: bytes) -> int:
        if version != VERSION:
            # (No other node could make the same file from its own.)
            raise FileStorageError(
                'under durability quorum a storage is not packed through a'
                ' wrapper that reads references in its own way: the other'
                ' nodes would not make the same file. Nothing was changed')
        try:
            state = self._speaker.say(
                PackBegin(stop, collects_garbage, version))
        except (Fenced, NotReplicated) as error:
            raise _not_told(error) from error
        assert state.pack is not None
        self._pack = state.pack
        return state.pack.end

    def swaps(self, becoming: Becoming) -> None:
        assert self._pack is not None
        try:
            self._speaker.keep_becoming(becoming)
        except (Fenced, NotReplicated) as error:
            raise _not_told(error) from error
        try:
            self._behind = self._speaker.say(
                PackSwap(self._pack.id, *becoming))
        except Fenced as error:
            raise _not_told(error) from error
        except Exception as error:
            raise OutcomeUnknown(
                f'whether the log has the swap of a pack is not known'
                f' ({error}): the next start of this node finds out'
            ) from error
        finally:
            if self._behind is None:
                self._speaker.offer_no_more(
                    'a pack could not tell the other nodes that it replaces'
                    ' the file')

    def over(self, swapped: bool) -> None:
        pack, behind = self._pack, self._behind
        self._pack = self._behind = None
        assert pack is not None and swapped == (behind is not None)
        self._speaker.keep_on(behind)
        if not swapped:
            self._speaker.say(PackEnd(pack.id))


def _not_told(error: Exception) -> FileStorageError:
    return FileStorageError(
        f'the other nodes could not be told of the pack ({error}). It was'
        ' given up, and nothing was changed')
