"""A planned change: the node that leads lets another one lead.

An operator requests it from any machine, by a note in the log under a name
that no node can have (`ask`).  The note names the process that has the lease,
so a request to one process is never followed by the next one.  The primary
looks for it among the notes that it reads anyway (presence).

When there is one (`Requests`), it goes on as usual until the note of another
node shows that this node has kept all that was in the log when the request was
read: so there is a node that follows now.  If there is no such note in time,
it stays the primary, and says so.

Then the process ends as at a signal, and begins anew (storage.host): what is
on its way to the disk and the log gets there, then the lease is given back.
What is voted and not finished by then ends with its connection, as at every
change of the leader: nothing of it is stored, and it can be tried again at the
next node.

The primary does not wait for the other node again: that one reads to the head
before it leads, and is only a moment behind.
"""

import contextlib
import logging
import time
from collections.abc import Callable
from collections.abc import Mapping

from ...storage.host import Host
from ..log.interface import RESERVED
from ..log.interface import Log
from ..log.interface import Unanswered
from .presence import Presence

logger = logging.getLogger(__name__)

REQUEST = RESERVED + b'step-down'

#: The most seconds until the note of another node shows that it follows.
LONGEST_WAIT = 15.0


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
    """What a primary does about them."""

    def __init__(self, log: Log, holder: bytes, node: str, presence: Presence,
                 head: Callable[[], int], host: Host) -> None:
        """`head()` is the number of the last record."""
        self._log = log
        self._holder = holder
        self._node = node
        self._presence = presence
        self._head = head
        self._host = host
        #: The head when a request was found, and until when another node may
        #: take to come there; None: nothing is requested.
        self._wanted: tuple[int, float] | None = None
        self._looked_at: Mapping[bytes, bytes] | None = None

    def look(self) -> None:
        """Called again and again.  Raise Unanswered."""
        notes, before = self._presence.notes, self._looked_at
        self._looked_at = notes
        if notes is before or notes.get(REQUEST) != self._holder:
            return
        if self._wanted is None:
            logger.warning('%s: it was asked to step down', self._node)
            self._wanted = self._head(), time.monotonic() + LONGEST_WAIT
        head, deadline = self._wanted
        if not self._host.may_leave:
            self._refuse('this process is no server, and cannot begin anew:'
                         ' end it, and another node leads')
        elif self._presence.latest_kept >= head:
            with contextlib.suppress(Unanswered):
                self._log.forget(REQUEST)
            self._host.end('it was asked to step down', again=True)
        elif time.monotonic() >= deadline:
            self._refuse('no other node that could lead has kept what was in'
                         f' the log {LONGEST_WAIT:.0f} s ago')

    def _refuse(self, reason: str) -> None:
        self._log.note(REQUEST, self._holder + _BECAUSE + reason.encode())
        self._wanted = None
        logger.warning('%s: it was asked to step down, and goes on to lead:'
                       ' %s', self._node, reason)
