"""A planned change: the node that leads lets another one lead.

An operator requests it from any machine, by a note in the log under a name
that no node can have (`ask`).  The note names the process that has the lease,
so a request to one process is never followed by the next one.  The primary
looks for it once a second (`Requests`).

What it does then (`step_down`):

1. It waits until the note of another node shows that this node has kept all
   that was in the log when the request was read: so there is a node that
   follows now.  The primary goes on as usual.  If there is no such note in
   time, it stays the primary, and says so.
2. The process ends as at a signal, and begins anew (storage.host): what is on
   its way to the disk and the log gets there, then the lease is given back.

What is voted and not finished by then ends with its connection, as at every
change of the leader: nothing of it is stored, and it can be tried again at the
next node.

After step 1 the primary does not wait for the other node again: that one reads
to the head before it leads, and is only a moment behind.  Its note would
arrive a second later.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable

from ...commit.wakeable import WakeableThread
from ...storage.host import Host
from ..history.record import Damaged
from ..history.record import node_name
from ..log.interface import RESERVED
from ..log.interface import Log
from ..log.interface import Unanswered
from ..log.notes import of_nodes
from ..log.notes import parse_note

logger = logging.getLogger(__name__)

REQUEST = RESERVED + b'step-down'

#: In seconds: how often the primary looks; how long it waits for a note of
#: another node, and how often it looks for that.
LOOK_EVERY = 1.0
LONGEST_WAIT, NOTES_EVERY = 15.0, 0.2


def ask(log: Log) -> bool:
    """Ask the node that leads to step down; false: no node has the lease."""
    holder = log.holder()
    if holder is None:
        return False
    log.note(REQUEST, holder)
    return True


def answer(log: Log) -> str | None:
    """Why a node that was asked has not stepped down; None: no reason is
    noted."""
    said = log.notes().get(REQUEST, b'')
    return said.partition(_BECAUSE)[2].decode('utf-8', 'replace') or None


_BECAUSE = b': '


class Requests:
    """The thread of a primary that looks for a request."""

    def __init__(self, log: Log, holder: bytes, node: str,
                 head: Callable[[], int], host: Host) -> None:
        """`log` is the log of the lease, which two threads then use.

        `head()` is the number of the last record.
        """
        self._log = log
        self._holder = holder
        self._node = node
        self._head = head
        self._host = host
        self._closing = threading.Event()
        self._thread = WakeableThread(
            f'requests to {node}', self._look, lambda: LOOK_EVERY)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.close()

    def _look(self) -> None:
        with contextlib.suppress(Unanswered):
            if self._log.notes().get(REQUEST) == self._holder:
                self.step_down()

    def step_down(self) -> str | None:
        """Return why not, if it does not step down."""
        reason = self._step_down()
        if reason is None or self._closing.is_set():
            return None
        logger.warning('%s: it was asked to step down, and goes on to lead:'
                       ' %s', self._node, reason)
        self._log.note(REQUEST, self._holder + _BECAUSE + reason.encode())
        return reason

    def _step_down(self) -> str | None:
        logger.warning('%s: it was asked to step down', self._node)
        if not self._host.may_leave:
            return ('this process is no server, and cannot begin anew: end it,'
                    ' and another node leads')
        if not self._another_follows():
            return ('no other node has kept what was in the log'
                    f' {LONGEST_WAIT:.0f} s ago')
        with contextlib.suppress(Unanswered):
            self._log.forget(REQUEST)
        self._host.end('it was asked to step down', again=True)
        return None

    def _another_follows(self) -> bool:
        head = self._head()
        deadline = time.monotonic() + LONGEST_WAIT
        while time.monotonic() < deadline:
            with contextlib.suppress(Unanswered):
                if self._latest_kept() >= head:
                    return True
            if self._closing.wait(NOTES_EVERY):
                break
        return False

    def _latest_kept(self) -> int:
        """The last record that any other node has kept: its number."""
        latest, own = -1, node_name(self._node)
        for node, raw in of_nodes(self._log).items():
            if node != own:
                with contextlib.suppress(Damaged):
                    latest = max(latest, parse_note(raw).place.sequence)
        return latest
