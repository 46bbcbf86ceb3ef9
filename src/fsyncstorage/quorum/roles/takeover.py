"""A node that has got the lease becomes the one that writes.

1. It reads to the head of the log, and applies that.
2. Its writer offers the record of the next epoch behind it (`Writer.lead`).
   If another record came in between, it reads on.
3. When that record is in the log, what the node has is all that was
   acknowledged before (I16).  Only then the file is handed over to a storage,
   which cuts off what the epoch has given up.

Each writer has a server's instance of its own, which is in the record of its
epoch: so no two epochs have the same (record.Epoch).

It gives up when the node may not go on, as the lease is lost.  A record that
was offered then may come into the log later.  That does no harm: it is there
only if no other node has led, and then its epoch is empty.
"""

import os
import threading
import typing
from collections.abc import Callable

from ..following.follower import Follower
from ..history.record import IDENTITY
from ..leading.writer import Fenced
from ..leading.writer import Writer
from ..log.interface import Log
from ..log.interface import Unanswered
from ..log.outage import FIRST_PAUSE
from ..log.outage import Outage
from ..log.outage import Patience
from ..log.reading import Reader


class Led(typing.NamedTuple):
    """A writer that leads, and the instance that its server is to have."""

    writer: Writer
    instance: bytes


def lead(follower: Follower, log: Log, node: bytes,
         may_go_on: Callable[[], bool],
         stopping: threading.Event) -> Led | None:
    """None: it may not go on.

    It waits for a log that does not answer, also when the lease is lost
    meanwhile.  Raise Unanswered when it is stopped; Refused, OSError if the
    follower cannot come to the end of the log.
    """
    # Those of the standby have ended with it.
    follower.log, follower.stopping = log, stopping
    while may_go_on():
        patience = Patience(
            Outage('the takeover waits', follower.name), stopping)
        for applied in Reader(log, follower.state).to_the_end(patience):
            if not may_go_on():
                return None
            patience.answer(follower.apply, applied)
        follower.sync()
        writer = Writer(log, follower.state, has_lease=may_go_on)
        instance = os.urandom(IDENTITY)
        writer.lead(node, instance)
        if _is_first(writer, may_go_on, stopping):
            return Led(writer, instance)
    return None


def _is_first(writer: Writer, may_go_on: Callable[[], bool],
              stopping: threading.Event) -> bool:
    """Does it lead?  If not, there is more to be read, or it may not go on."""
    while may_go_on():
        try:
            return writer.advance()
        except Fenced:
            return False
        except Unanswered:
            if stopping.wait(FIRST_PAUSE):
                raise
    return False
