"""A node that does not write: a thread brings the log into its file.

The thread reads, applies, syncs, and keeps the index in memory, so that a
storage can be opened on the file without reading it (`Follower.hand_over`).

- It looks for the next record four times a second.  (A watch of etcd would
  cost as much, and be one more mechanism.)
- While its pack is late for a swap, it keeps what follows that (spool).
- It syncs after each answer, and saves up to a second later; a change of the
  epoch or of the generation at once.  (Its place is noted in the log by
  roles.presence.)
- It tries again, after pauses of up to a second, while the log does not
  answer, the disk is full, or the file has lost its name.  `trouble` reports
  it.
- What is refused ends the thread, and so does a sync that fails: `ended` says
  why, and what to do.  If that was after a state that is not kept, one member
  may have shown what the others do not have: the standby `is_misled`, and its
  node begins anew with what it has kept.

The standby owns the follower, and its log, which `stop` stops.  `stop` may be
called by any thread, at any time, and again.
"""

import contextlib
import logging
import threading
import time
import typing
from collections.abc import Callable
from collections.abc import Sequence

from ZODB.POSException import StorageError

from ...scrub.scrubbing import File
from ...scrub.scrubbing import Scrub
from ..history import record as records
from ..history.fold import Apply
from ..history.fold import State
from ..history.fold import Why
from ..history.record import Data
from ..history.record import PackSwap
from ..log.interface import Missing
from ..log.interface import Trimmed
from ..log.interface import Unanswered
from ..log.outage import FIRST_PAUSE
from ..log.outage import LONGEST_PAUSE
from ..log.reading import Reader
from ..log.reading import Refused
from .follower import Follower
from .repacking import Late

logger = logging.getLogger(__name__)

#: In seconds: how often to look for a record that follows; the longest delay
#: of saving; how often to ask how far the log is.
LOOK_EVERY = 0.25
SAVED_AFTER = 1.0
MEASURED_EVERY = 1.0
#: Seconds for which a swap waits for its pack without a spool.
SOON = 0.5


class Lag(typing.NamedTuple):
    """What the log has and this node has not synced."""

    records: int
    bytes: int


class Standby:

    def __init__(self, follower: Follower, index_every: int,
                 on_end: Callable[[], object] = lambda: None) -> None:
        """`on_end` is called in the thread, if it ends without `stop`."""
        self._follower = follower
        self._log = follower.log
        self._index_every = index_every
        self._on_end = on_end
        self._reader = Reader(self._log, follower.state)
        #: A swap that waits for the pack of this node, or nothing.
        self._late: list[Apply] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._run, daemon=True, name=f'standby of {follower.name}')
        #: Where the log has ended at the last look, and where its file ends.
        self._head, self._head_end = follower.state.place.sequence, 0
        self._measured = self._heard = time.monotonic()
        self._save_due: float | None = None
        self._pause = FIRST_PAUSE
        rate = follower.packs.scrub_rate
        self._scrub = None if rate is None else Scrub(File(
            # (What is kept is that of the old file, for a while after a swap.)
            follower.name, follower.reopened, lambda: follower.synced.end,
            self._stopping.is_set), rate)
        #: It was at the end of the log, once since it began.
        self.has_caught_up = False
        #: Why it does not advance for now, or None.
        self.trouble: str | None = None
        #: Why it has ended without `stop`, or None; and whether what it has
        #: kept may be sound all the same.
        self.ended: str | None = None
        self.is_misled = False

    # For others

    def start(self) -> None:
        self._thread.start()
        if self._scrub is not None:
            self._scrub.start()

    def stop(self) -> None:
        """Return when the thread has ended."""
        self._stopping.set()
        if self._scrub is not None:
            self._scrub.end()
        self._log.stop()
        if self._thread.ident not in (None, threading.get_ident()):
            self._thread.join()
        if self._scrub is not None:
            self._scrub.close()

    @property
    def damage(self) -> str | None:
        """What the scrub has found in the file."""
        return None if self._scrub is None else self._scrub.damage

    @property
    def state(self) -> State:
        """The state after the last record that was applied."""
        return self._follower.state

    @property
    def lag(self) -> Lag:
        synced = self._follower.synced
        records = max(0, self._head - synced.place.sequence)
        # (An end may be that of a file which a pack has replaced since.)
        return Lag(records, max(0, self._head_end - synced.end)
                   if records else 0)

    @property
    def why_not_ready(self) -> str | None:
        """Why it cannot take over, or should not."""
        if self._follower.waits_for_its_pack:
            return ': '.join(filter(None, (
                'the log has replaced its file by a packed one, and its own'
                ' pack is not ready: it cannot take over',
                self._follower.pack_trouble)))
        return self.trouble or self.damage

    @property
    def seconds_without_contact(self) -> float:
        """How long the log has not answered."""
        return time.monotonic() - self._heard

    @property
    def follower(self) -> Follower:
        """For a node that takes over.  The thread has ended before."""
        return self._follower

    def close(self) -> None:
        """Stop, and close the file, unless it was handed over."""
        self.stop()
        try:
            if self.ended is None:
                self._follower.save_index()
        finally:
            self._follower.close()

    # The thread

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._turn()
        except BaseException as error:  # no caller to raise it to
            self.is_misled = isinstance(error, Refused) and (
                self.state != self._follower.kept)
            self.ended = str(error) or repr(error)
            if not self.is_misled:  # else the node says what it does
                logger.critical(
                    '%s: the standby has stopped: %s', self._follower.name,
                    self.ended, exc_info=not isinstance(error, StorageError))
            self._on_end()

    def _turn(self) -> None:
        """Advance a step, or wait."""
        try:
            self._step()
        except Unanswered as error:
            self._try_again(f'the log does not answer: {error}')
        except OSError as error:
            self._try_again(f'the file cannot be written: {error}')
        except Refused as error:
            if error.why is not Why.DAMAGED:
                raise
            self._try_again(str(error))
        else:
            self._heard = time.monotonic()
            if self.trouble is not None:
                logger.warning('%s: the standby goes on', self._follower.name)
            self.trouble, self._pause = None, FIRST_PAUSE

    def _try_again(self, trouble: str) -> None:
        # What was read, and not applied, is read again, from the next member.
        # (The log may have been out of sight for long.)
        self._log.turn()
        self._reader = Reader(self._log, self._follower.state, asks_all=True)
        self._late = []
        if self._stopping.wait(self._pause):
            return
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        if self._pause == LONGEST_PAUSE:
            if self.trouble is None:
                logger.warning('%s: the standby comes no further for now: %s',
                               self._follower.name, trouble)
            self.trouble = trouble  # it may have changed

    def _step(self) -> None:
        self._follower.check_its_name()
        now = time.monotonic()
        given = self._late or self._reader.read()
        if given:
            self._measure_if_due(now)
            self._take(given)
        else:
            self.has_caught_up = True
        self._save_if_due(now)
        if not given:
            self._stopping.wait(LOOK_EVERY)

    def _take(self, given: Sequence[Apply]) -> None:
        follower = self._follower
        patience, self._late = 0.0 if self._late else SOON, []
        for applied in given:
            try:
                follower.apply(applied, patience)
            except Late:
                self._wait_for_pack(applied)
                return
            if self._scrub is not None and isinstance(
                    applied.record.body, PackSwap):
                self._scrub.begin_anew()
        follower.sync()
        if _era(follower.synced) != _era(follower.kept):
            self._save_due = 0.0
        elif follower.synced is not follower.kept and self._save_due is None:
            self._save_due = time.monotonic() + SAVED_AFTER

    def _wait_for_pack(self, swap: Apply) -> None:
        """Keep what follows the swap, and apply that again later."""
        self._late = [swap]
        self._reader = Reader(self._log, swap.state)
        if not self._follower.spool_on():
            self._stopping.wait(LOOK_EVERY)

    def _measure_if_due(self, now: float) -> None:
        """Ask how far the log is."""
        if now < self._measured + MEASURED_EVERY:
            return
        self._measured = now
        # (This is only a figure: reading finds what is wrong.)
        with contextlib.suppress(Missing, Trimmed, ValueError):
            self._head, self._head_end = self._log.ends().head.sequence, 0
            for raw in self._log.read(self._head)[:1]:
                last = records.parse(raw)
                if last.generation == self.state.generation:
                    self._head_end = last.position + (
                        len(last.body.data) if isinstance(last.body, Data)
                        else 0)

    def _save_if_due(self, now: float) -> None:
        follower = self._follower
        if self._save_due is not None and now >= self._save_due:
            self._save_due = now + SAVED_AFTER  # if it fails
            # A majority may not confirm this state now, but may confirm a
            # later one: reading goes on.
            with contextlib.suppress(Unanswered):
                follower.save()
                self._save_due = None
                follower.save_index(self._index_every)


def _era(state: State) -> tuple[int, int]:
    """What is saved at once when it changes."""
    return state.epoch, state.generation
