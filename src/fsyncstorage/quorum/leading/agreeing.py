"""The packs of a node that writes: what it tells the other nodes, and when.

A pack of the storage calls `PackHooks` (pack.agreed).  At the swap, what the
file becomes is kept first, then the PackSwap is offered, and then there is no
way back: while nobody knows whether that record is in the log, nothing may be
appended to the old file.  If that cannot be found out (the storage is closed,
an interrupt), nothing more is offered to the log, and the next start asks the
log (unfinished).

The order of the locks is: the append lock, which the caller of `swaps` holds;
the lock of the syncs; the lock of what is kept (keeping).  No thread waits for
one of them while it holds a later one.
"""

import typing
from collections.abc import Callable

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


class PackHooks:

    def __init__(self, replicator: typing.Any) -> None:
        """(Of a Replicator, which imports this module.)"""
        self._replicator = replicator
        #: The pack that is under way.
        self._pack: Pack | None = None
        #: The state after its swap.
        self._behind: State | None = None

    def begins(self, stop: bytes, collects_garbage: bool) -> int:
        try:
            state: State = self._replicator.say(
                PackBegin(stop, collects_garbage, VERSION))
        except (Fenced, NotReplicated) as error:
            raise _not_told(error) from error
        assert state.pack is not None
        self._pack = state.pack
        return state.pack.end

    def ready(self, part: bytes, look: Callable[[], object]) -> None:
        assert self._pack is not None
        try:
            self._replicator.wait_for_packs(self._pack.id + part, look)
        except NotReplicated as error:
            raise _not_told(error) from error

    def swaps(self, becoming: Becoming) -> None:
        assert self._pack is not None
        try:
            self._replicator.keep_becoming(becoming)
        except (Fenced, NotReplicated) as error:
            raise _not_told(error) from error
        try:
            self._behind = self._replicator.say(
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
                self._replicator.offer_no_more(
                    'a pack could not tell the other nodes that it replaces'
                    ' the file')

    def over(self, swapped: bool) -> None:
        pack, behind = self._pack, self._behind
        self._pack = self._behind = None
        assert pack is not None and swapped == (behind is not None)
        self._replicator.keep_on(behind)
        if not swapped:
            self._replicator.say(PackEnd(pack.id))


def _not_told(error: Exception) -> FileStorageError:
    return FileStorageError(
        f'the other nodes could not be told of the pack ({error}). It was'
        ' given up, and nothing was changed')
