"""The replica of a node that has the lease, and what ends its time.

A `Primary` is the Replicator of a storage, with the lease beside it.

*It answers nobody* while its lease is over by its own clock (`may_answer`): a
server asks before each answer, as a process that was frozen goes on in the
middle of anything.  A thread of its own, the *watch*, retires the object map
then, for those that read without asking.  If the lease comes back in the same
term, it goes on.

*It retreats*, for good: when the lease is lost, when its writer is fenced, and
when writing has stopped because of the disk.  In this order: nothing more is
written; the host hangs up on all that are connected; the lease is given back;
the host closes the storage, and begins anew as a node that follows.  After a
failure of the disk it ends: a person should look first.  A process that is no
server cannot begin anew by itself; it goes on to read, and commits fail.

*At a close*, and so when it is asked to step down (stepdown), the lease is
given back as soon as nothing is on its way to the log any more.

Another term ends it too, though it may be that nobody has led in between: that
is rare, and to start again is the one way to find out that is used every day.
"""

import logging
import threading
import typing

from ...commit.replica import NotReplicated
from ...commit.wakeable import WakeableThread
from ...storage.host import Host
from ..history.fates import Fates
from ..leading.loglimit import Trims
from ..leading.replicator import START_AGAIN
from ..leading.replicator import Replicator
from ..log.interface import Log
from .holding import Holding
from .stepdown import Requests
from .takeover import Led

logger = logging.getLogger(__name__)

#: Seconds from one look to the next.
LOOK_EVERY = 0.25

_DISK = 'writing has stopped: check the disk'


class Storage(typing.Protocol):
    """What is asked of the storage whose replica this is."""

    @property
    def has_stopped(self) -> bool: ...

    def retire_map(self) -> None: ...

    def stop_writing(self, reason: str, remedy: str) -> None: ...


class Primary(Replicator):

    _storage: Storage | None = None

    def __init__(self, log: Log, led: Led, fates: Fates, trims: Trims,
                 holding: Holding, node: str, host: Host) -> None:
        """The log and the lease belong to it: `close` ends them."""
        super().__init__(log, led.writer, fates, trims)
        self.instance = led.instance
        self._holding = holding
        self._node = node
        self._host = host
        #: Why it writes no more, once it retreats.
        self._over: str | None = None
        self._retreating = threading.Lock()
        self._is_silent = False
        self._requests: Requests | None = None
        self._looking = WakeableThread(
            f'watch of {node}', self._look, lambda: LOOK_EVERY)

    def serve(self, storage: Storage) -> None:
        """The storage is open, and this is its replica."""
        logger.info('%s: this node leads, in epoch %d', self._node,
                    self._writer.state.epoch)
        self._storage = storage
        self._requests = Requests(
            self._holding.log, self._holding.holder, self._node, storage,
            lambda: self._writer.state.place.sequence, self._host)
        self._looking.start()
        self._requests.start()

    def may_answer(self) -> bool:
        """Not after a fence or a failed sync either: who is to be told that
        the outcome is not known can learn it from the node that leads."""
        return (self._holding.is_believed and self._over is None
                and self._writer.fenced is None
                and not (self._storage and self._storage.has_stopped))

    # In the thread

    def _look(self) -> None:
        if self._over is not None:
            return
        ends = self._why_it_ends()
        if ends is not None:
            self.retreat(*ends)
            return
        self._be_silent(not self.may_answer())

    def _why_it_ends(self) -> tuple[str, bool] | None:
        """And whether the process should begin anew."""
        assert self._storage is not None
        if self._holding.lost is not None:
            return self._holding.lost, True
        if self._writer.fenced is not None:
            return f'its log takes nothing more ({self._writer.fenced})', True
        if self._storage.has_stopped:
            return _DISK, False
        return None

    def _be_silent(self, silent: bool) -> None:
        assert self._storage is not None
        if silent:
            self._storage.retire_map()  # also one that was made just now
        if silent is self._is_silent:
            return
        self._is_silent = silent
        if silent:
            self._staging.may_be_full()  # then a lease cannot be renewed
            logger.warning(
                '%s: the lease of this node is over, and could not be renewed:'
                ' no client is answered until it is', self._node)
        else:
            logger.warning('%s: the lease was renewed, and clients are'
                           ' answered again', self._node)

    # The retreat

    def retreat(self, reason: str, again: bool) -> None:
        """Write nothing more, answer nobody, let another node lead."""
        with self._retreating:
            if self._over is not None:
                return
            self._over = reason
        logger.critical(
            '%s: this node does not lead any more: %s', self._node, reason)
        self._host.hang_up()
        self._holding.close()
        if self._storage is not None:
            self._storage.retire_map()
            self._storage.stop_writing(reason, START_AGAIN)
        self._host.end(reason, again)

    def _refuse_when_stopped(self) -> None:
        if self._over is not None:
            raise NotReplicated(self._over, START_AGAIN)
        super()._refuse_when_stopped()

    # What is said of it

    @property
    def trouble(self) -> str | None:
        if self._over is not None:
            return f'this node does not lead any more: {self._over}'
        if self._storage is not None and not self.may_answer():
            return _SILENT
        return super().trouble

    def stats(self) -> dict[str, object]:
        return {**super().stats(), 'role': 'primary', 'node': self._node,
                'lease_left': self._holding.seconds_left}

    # The close

    def closing(self) -> None:
        """The lease is kept until the close, as commits may be under way."""
        self._look_no_more()
        super().closing()

    def keep(self) -> None:
        """From here on another node may lead: nothing is under way any more,
        and to write the index may take a while."""
        super().keep()
        self._holding.close()

    def close(self) -> None:
        self._look_no_more()
        self._holding.close()
        super().close()

    def _look_no_more(self) -> None:
        if self._requests is not None:
            self._requests.close()
        self._looking.close()


_SILENT = 'its lease is over, and no client is answered until it is renewed'
