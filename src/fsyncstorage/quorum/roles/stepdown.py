"""A planned change: the node that leads lets another one lead.

An operator requests it from any machine, by a note in the log under a name
that no node can have (`ask`).  The note names the process that has the lease,
so a request to one process is never followed by the next one.  The primary
looks for it among the notes that it reads anyway (presence).

When there is one (primary), it goes on as usual until the note of another
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

from ..log.interface import RESERVED
from ..log.interface import Log

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


def refuse(log: Log, holder: bytes, reason: str) -> None:
    """The process that was asked goes on to lead."""
    log.note(REQUEST, holder + _BECAUSE + reason.encode())


def answer(log: Log) -> str | None:
    """Why a node that was asked has not stepped down; None: no reason is
    noted."""
    said = log.notes().get(REQUEST, b'')
    return said.partition(_BECAUSE)[2].decode('utf-8', 'replace') or None


_BECAUSE = b': '
