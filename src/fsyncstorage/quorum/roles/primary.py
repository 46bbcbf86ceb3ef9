"""The replica of a node that has the lease, and what ends its leadership.

A `Primary` is the Replicator of a storage, and has the lease as well.

*It answers nobody* while its lease has expired by its own clock
(`may_answer`).  A server asks before each answer, as a process that was frozen
continues in the middle of anything.  A separate thread, the *watch*, then ends
all connections, because of clients that read from their caches and ask
nothing, and retires the object map, because of clients that read the file.  If
the lease is renewed in the same term, the primary goes on.

A second thread logs the trouble of other nodes, and steps down when it is
asked to (stepdown).  Each minute it finds out which member leads the log, so
that appends take the shortest way.

*It retreats*, for good, when the lease is lost, also because the disk hangs or
is full and another node could lead (holding), when its writer is fenced, and
when writing has stopped because of the disk.  The order is: nothing
more is written; the host closes its port, and the connections of all clients;
the lease is given back; the host closes the storage, and begins anew as a node
that follows.  Until the lease is given back, nothing waits for a disk, nor for
a handler of the log, which may wait for one.

After a failure of the disk the process ends instead: an operator should look
first.  A process that is no server cannot begin anew; it goes on to read, and
commits fail.

*At a close*, and so when it is asked to step down (stepdown), it gives the
lease back as soon as nothing more is on its way to the log.

Another term ends the leadership, too, though perhaps nobody has led in
between.  That is rare, and to start again is the one way to find out that is
used every day.
"""

import contextlib
import logging
import threading
import time
import typing
from collections.abc import Callable
from collections.abc import Mapping

from ...commit.replica import NotReplicated
from ...commit.wakeable import WakeableThread
from ...storage.host import Host
from ..leading.loglimit import Trims
from ..leading.replicator import START_AGAIN
from ..leading.replicator import Replicator
from ..leading.replicator import told
from ..leading.writer import Writer
from ..log.interface import Log
from ..log.interface import Unanswered
from . import packs
from . import stepdown
from .holding import Holding
from .presence import Presence

logger = logging.getLogger(__name__)

#: The most seconds between two checks of the lease; seconds between two looks
#: at what other nodes say, and between two searches for the log's leader.
LOOK_EVERY = 0.25
ASK_EVERY = 1.0
FIND_EVERY = 60.0

_DISK = 'writing has stopped: check the disk'


class Storage(typing.Protocol):
    """What is needed of the storage whose replica this is."""

    @property
    def has_stopped(self) -> bool: ...

    @property
    def damage(self) -> str | None: ...

    def retire_map(self) -> None: ...


class Primary(Replicator):

    _storage: Storage | None = None

    def __init__(self, log: Log, writer: Writer, trims: Trims,
                 holding: Holding, presence: Presence, node: str,
                 host: Host) -> None:
        """The log, the lease and the presence belong to the primary: `close`
        ends them."""
        super().__init__(log, writer, trims)
        self._holding = holding
        self._presence = presence
        self._node = node
        self._host = host
        #: Why it writes no more, once it has begun its retreat.
        self._over: str | None = None
        self._retreating = threading.Lock()
        self._is_silent = self._logged_silent = False
        #: The head when a request to step down was found, and until when
        #: another node may take to come there; None: nothing is requested.
        self._requested: tuple[int, float] | None = None
        self._looked_at: Mapping[bytes, bytes] | None = None
        self._looking = WakeableThread(
            f'watch of {node}', self._look, self._until_the_next_look)
        #: When to look for the log's leader.
        self._find_due = time.monotonic()
        self._asking = WakeableThread(
            f'questions of {node}', self._ask_the_log, lambda: ASK_EVERY)

    def serve(self, storage: Storage) -> None:
        """The storage is open, and this is its replica."""
        logger.info('%s: this node leads, in epoch %d', self._node,
                    self._writer.state.epoch)
        self._storage = storage
        self._holding.serves = True
        self._looking.start()
        self._asking.start()

    def may_answer(self) -> bool:
        """(Not after a fence or a failed sync either: a client that would be
        told that its outcome is not known can ask the node that leads.)"""
        return (self._holding.is_believed and self._over is None
                and self._writer.fenced is None
                and (self._storage is None or not self._storage.has_stopped))

    # The watch

    def _until_the_next_look(self) -> float:
        """The next check is due when the lease expires."""
        return min(LOOK_EVERY, self._holding.seconds_left or LOOK_EVERY)

    def _look(self) -> None:
        if self._over is not None:
            return
        ends = self._why_it_ends()
        if ends is not None:
            self.retreat(*ends)
            return
        self._be_silent(not self.may_answer())

    def _why_it_ends(self) -> tuple[str, bool] | None:
        """The reason, and whether the process should begin anew."""
        assert self._storage is not None
        if self._holding.lost is not None:
            return self._holding.lost, True
        if self._writer.fenced is not None:
            return f'its log takes nothing more ({self._writer.fenced})', True
        return (_DISK, False) if self._storage.has_stopped else None

    def _be_silent(self, silent: bool) -> None:
        assert self._storage is not None
        if silent:
            self._storage.retire_map()  # even if it was made just now
        if silent is self._is_silent:
            return
        self._is_silent = silent
        # (Another thread logs it: a handler of the log may wait for a disk.)
        (self._host.hang_up if silent else self._host.go_on)()

    # Questions to the log

    def _ask_the_log(self) -> None:
        self._log_silence()
        if self._over is None:
            self._presence.log_trouble()
            with contextlib.suppress(Unanswered):
                self._step_down_if_asked()
        if time.monotonic() >= self._find_due:
            self._find_due = time.monotonic() + FIND_EVERY
            self._log.find_leader()

    def _step_down_if_asked(self) -> None:
        notes, before = self._presence.notes, self._looked_at
        self._looked_at, holder = notes, self._holding.holder
        if notes is before or notes.get(stepdown.REQUEST) != holder:
            return
        if self._requested is None:
            logger.warning('%s: it was asked to step down', self._node)
            self._requested = (self._writer.state.place.sequence,
                               time.monotonic() + stepdown.LONGEST_WAIT)
        head, deadline = self._requested
        if not self._host.may_leave:
            self._refuse_to_step_down(
                'this process is no server, and cannot begin anew: end it, and'
                ' another node leads')
        elif self._presence.latest_kept >= head:
            with contextlib.suppress(Unanswered):
                self._holding.log.forget(stepdown.REQUEST)
            self._host.end('it was asked to step down', again=True)
        elif time.monotonic() >= deadline:
            self._refuse_to_step_down(
                'no other node that could lead has kept what was in the log'
                f' {stepdown.LONGEST_WAIT:.0f} s ago')

    def _refuse_to_step_down(self, reason: str) -> None:
        stepdown.refuse(self._holding.log, self._holding.holder, reason)
        self._requested = None
        logger.warning('%s: it was asked to step down, and goes on to lead:'
                       ' %s', self._node, reason)

    def _log_silence(self) -> None:
        if self._is_silent is self._logged_silent:
            return
        self._logged_silent = self._is_silent
        if self._logged_silent:
            logger.warning(
                '%s: the lease of this node is over, and could not be renewed'
                ' (%s): no client is answered until it is', self._node,
                self._holding.trouble or 'no answer')
        else:
            logger.warning('%s: the lease was renewed, and clients are'
                           ' answered again', self._node)

    # A pack

    def ready(self, part: bytes, look: Callable[[], object]) -> None:
        assert self._pack is not None
        others = packs.Others(self._pack.id + part)
        while others.is_waited_for(self._presence.heard):
            look()
            with told():
                self._refuse_when_stopped()
            self._stopped.wait(LOOK_EVERY)
        others.log_late(self._presence.heard)

    # The retreat

    def retreat(self, reason: str, again: bool) -> None:
        """Write nothing more, answer nobody, let another node lead."""
        with self._retreating:
            if self._over is not None:
                return
            self._over = reason
        self._host.hang_up()
        if self._storage is not None:
            self._storage.retire_map()
        self._holding.close()
        logger.critical(
            '%s: this node does not lead any more: %s', self._node, reason)
        self._host.end(reason, again)

    @property
    def _why_no_more(self) -> str | None:
        if self._over is not None:
            return f'this node does not lead any more: {self._over}'
        return super()._why_no_more

    def _refuse_when_stopped(self) -> None:
        if self._over is not None:
            raise NotReplicated(self._over, START_AGAIN)
        super()._refuse_when_stopped()

    # What others may know of it

    @property
    def trouble(self) -> str | None:
        if self._over is None and self._storage is not None and (
                not self.may_answer()):
            why = self._holding.trouble
            return _SILENT if why is None else f'{_SILENT} ({why})'
        return super().trouble or self._presence.disk_trouble

    @property
    def damage(self) -> str | None:
        """What the scrub has found in its file; commits do not wait for it."""
        return None if self._storage is None else self._storage.damage

    def stats(self) -> dict[str, object]:
        return {**super().stats(), 'role': 'primary', 'node': self._node,
                'lease_left': self._holding.seconds_left,
                'lease_trouble': self._holding.trouble,
                'others': self._presence.stats()}

    # The close

    def close(self) -> None:
        # In reverse, and each one even if another raises.
        with contextlib.ExitStack() as stack:
            stack.callback(super().close)
            stack.callback(self._asking.close)
            stack.callback(self.stop)
            stack.callback(self._presence.close)
            stack.callback(self.keep)  # the disk may hang
            stack.callback(self._holding.close)  # another node may lead now
            stack.callback(self._looking.close)


_SILENT = 'its lease is over, and no client is answered until it is renewed'
