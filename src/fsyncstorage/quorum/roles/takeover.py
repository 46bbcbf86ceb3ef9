"""A node that has got the lease becomes the node that writes.

1. It reads to the head of the log, and applies the records.
2. Its writer offers the record of the next epoch (`Writer.lead`).  If another
   record got in between, it reads on.
3. When the record of the epoch is in the log, the node has all that was
   acknowledged before (I16).  Only then the file is handed over to a storage,
   and what the epoch has given up is cut off.

It gives up when the node may not go on, because the lease is lost.  A record
that was offered by then may get into the log later.  That does no harm: it is
there only if no other node has led, and then its epoch is empty.  It also
gives up at a swap for which its file is not packed: a pack may take hours, and
another node may have its file.
"""

import threading
from collections.abc import Callable

from ..following.follower import Follower
from ..following.rejoin import LONGEST_WAIT
from ..following.repacking import Late
from ..leading.writer import Fenced
from ..leading.writer import Writer
from ..log.interface import Log
from ..log.interface import Unanswered
from ..log.outage import FIRST_PAUSE
from ..log.outage import Outage
from ..log.outage import Patience
from ..log.reading import Reader


def lead(follower: Follower, log: Log, node: bytes,
         may_go_on: Callable[[], bool],
         stopping: threading.Event) -> Writer | None:
    """The writer that leads; None if the node may not go on, or would have to
    wait for its pack.

    While the log does not answer, it waits, even if the lease is lost by then.
    Raise Unanswered when it is stopped; Refused, OSError if the follower
    cannot get to the end of the log.
    """
    # The log of the standby has ended with it.
    follower.goes_on_with(log)
    while may_go_on():
        patience = Patience(
            Outage('the takeover waits', follower.name), stopping)
        reader = Reader(follower.log, follower.state)
        for applied in reader.to_the_end(patience):
            if not may_go_on():
                return None
            try:
                patience.answer(follower.apply, applied, LONGEST_WAIT)
            except Late:
                return None
        follower.sync()
        writer = Writer(log, follower.state, has_lease=may_go_on)
        writer.lead(node)
        if _is_first(writer, may_go_on, stopping):
            return writer
    return None


def _is_first(writer: Writer, may_go_on: Callable[[], bool],
              stopping: threading.Event) -> bool:
    """Does it lead?  If not, there is more to read, or it may not go on."""
    while may_go_on():
        try:
            return writer.advance()
        except Fenced:
            return False
        except Unanswered:
            if stopping.wait(FIRST_PAUSE):
                raise
    return False
