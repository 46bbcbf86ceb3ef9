"""The pack of a node that follows: it packs its own file while it follows.

`goes_by(state)` is called with each state.  While the state names a pack, the
file is packed in parallel with the caller's own work, by a process of low
priority (pack.unopened).  The process ends with the pack: at a PackEnd,
another epoch, or a close.

`made` is called at the swap.  It returns the packed file, if that became the
one that the log names.  If not, the file is packed once more, while the caller
waits.  That needs nothing but the file and what the state says of the pack;
the node need not have been there when the pack began.  A node whose file then
differs, or which has another version of the packer, cannot go on.  (Later it
will copy the file of another node here, so that it need not be made anew.)

`is_stopped` ends a wait, because the caller has to end.  One thread calls.
"""

import logging
import time
import typing
from collections.abc import Callable

from ...pack.agreed import Becoming
from ...pack.agreed import Begin
from ...pack.unopened import BlobDirectory
from ...pack.unopened import Made
from ...pack.unopened import NotMade
from ...pack.unopened import OtherVersion
from ...pack.unopened import UnopenedPack
from ..history.fold import Pack
from ..history.fold import State
from ..log.interface import Unanswered
from ..log.reading import ANEW
from ..log.reading import Refused

logger = logging.getLogger(__name__)

#: Seconds between two checks whether to stop.
LOOK_EVERY = 0.1
#: A pack that has failed for want of room is retried after a pause, which is
#: `PAUSES` times as long as the pack took.
PAUSES = 10


class Options(typing.NamedTuple):
    """How a node packs: `pack-process`, `pack-rate` and `pack-keep-old`."""

    own_process: bool = True
    rate: int | None = None
    keep_old: bool = True


USUAL = Options()


class Repacking:

    def __init__(self, path: str, size: Callable[[], int],
                 is_stopped: Callable[[], bool], options: Options,
                 blobs: BlobDirectory | None) -> None:
        """`size()` is the position up to which the file is whole."""
        self._blobs = blobs
        self._path = path
        self._size = size
        self._is_stopped = is_stopped
        self._options = options
        #: The pack that the state names, and the one that is running for it.
        self._wanted: Pack | None = None
        self._pack: UnopenedPack | None = None
        #: The error of the disk because of which the file could not be packed
        #: again, and when to retry.
        self._failed: OSError | None = None
        self._again_at = 0.0

    def goes_by(self, state: State) -> None:
        """Begin, or end, the pack that this state names."""
        if state.pack != self._wanted:
            self.close()
            if state.pack is not None:
                self._begin(state.pack, self._options.rate)

    def _begin(self, pack: Pack, rate: int | None) -> None:
        self.close()
        self._pack = UnopenedPack(
            self._path,
            Begin(pack.end, pack.time, pack.collects, pack.version),
            self._size, self._options.own_process, rate, self._blobs)
        self._wanted = pack

    def catch_up(self) -> None:
        """Call it now and then, so that the swap has little to copy."""
        if self._pack is not None:
            self._pack.catch_up()

    def made(self, state: State, becoming: Becoming) -> Made:
        """The file that takes the place of this one, which ends where `state`
        does.

        Raise Unanswered if the caller has to end; OSError if it may be
        retried; Refused.
        """
        assert state.pack is not None
        try:
            return self._made(state, becoming)
        except OtherVersion as failure:
            raise self._refused(state, failure) from None
        except NotMade as failure:
            logger.warning(
                '%s: the log replaces it by a packed file, and this node has'
                ' none to replace it by (%s): it is packed now',
                self._path, failure)
        if self._failed is not None and time.monotonic() < self._again_at:
            raise self._failed
        begun = time.monotonic()
        self._begin(state.pack, None)
        try:
            return self._made(state, becoming)
        except NotMade as failure:
            if not isinstance(failure.__cause__, OSError):
                raise self._refused(state, failure) from None
            self._failed, now = failure.__cause__, time.monotonic()
            self._again_at = now + PAUSES * (now - begun)
            raise self._failed from None

    def _made(self, state: State, becoming: Becoming) -> Made:
        pack = self._pack
        if pack is None:
            raise NotMade('this node has not packed it')
        while not pack.wait(LOOK_EVERY):
            if self._is_stopped():
                pack.cancel()
        if self._is_stopped():
            raise Unanswered('this node was stopped within a pack')
        return pack.made(state.end, becoming)

    def _refused(self, state: State, failure: NotMade) -> Refused:
        return Refused(
            f'{self._path}: the log replaces this file, of generation'
            f' {state.generation}, by a packed one, and this node cannot make'
            f' that ({failure}). The file is what the log had before; {ANEW}')

    def replace(self, made: Made) -> None:
        """Give the new file the name, durably: this ends the pack."""
        assert self._pack is not None
        self._pack.replace(made, self._options.keep_old)
        self._pack = self._wanted = None

    def close(self) -> None:
        """End the pack that is under way, if there is one."""
        pack, self._pack, self._wanted = self._pack, None, None
        if pack is not None:
            pack.close()
