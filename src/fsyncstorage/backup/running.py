"""Ships until it is told to end, whatever the store or the server does.

What may pass is logged when it begins, and when it has ended.  A `Stopped` of
the uploader ends it, and so does damage in the store.

After each round, a file beside the data file says how it stands; a server that
shows the storage reads it (metrics.backups).
"""

import contextlib
import logging
import math
import threading
import time

from ..metrics import backups
from ..metrics.backups import Said
from . import content
from .prefix import Unreachable
from .segment import NotShipped
from .store import StoreError
from .uploader import Uploader

logger = logging.getLogger(__name__)

#: Seconds from the begin of a round to that of the next, and at most while
#: nothing works.
PERIOD, LONGEST_PERIOD = 1.0, 60.0
#: Seconds from one heartbeat to the next.
BEAT = 60.0
#: Seconds to ship what was committed at the end.
LAST_ROUND = 10.0

#: The next try may succeed.
MAY_PASS = StoreError, Unreachable, NotShipped, content.Changed, OSError


def once(uploader: Uploader) -> None:
    """Ship what is durable now; any error is raised."""
    began = time.time()
    uploader.start()
    uploader.ship()
    while uploader.put_more_of_base(time.monotonic() + PERIOD):
        uploader.ship()
    uploader.beat()
    _say(uploader, began)


class _ToldToEnd(Exception):
    """In the middle of a long round."""


def run(uploader: Uploader, stop: threading.Event) -> None:
    has_started, next_beat, pause = False, 0.0, PERIOD
    trouble: type[Exception] | None = None
    shipped: float | None = None
    next_note = end = math.inf

    def meanwhile() -> None:
        """What a round must not delay that has much to ship."""
        nonlocal next_note, end
        now = time.monotonic()
        if stop.is_set():
            end = min(end, now + LAST_ROUND)
            if now >= end:
                raise _ToldToEnd
        if now >= next_note:
            uploader.note()
            _say(uploader, shipped)
            next_note = now + BEAT

    uploader.meanwhile = meanwhile
    while not stop.is_set():
        began, due = time.time(), time.monotonic() + PERIOD
        next_note = due + BEAT
        try:
            if not has_started:
                uploader.start()
                has_started = True
                logger.info('%s: goes on at position %d', uploader,
                            uploader.tip.position)
            uploader.ship()
            uploader.put_more_of_base(due)
            if time.monotonic() >= next_beat:
                uploader.beat()
                next_beat = time.monotonic() + BEAT
        except _ToldToEnd:
            break
        except MAY_PASS as error:
            if trouble is not type(error):
                logger.warning('%s: nothing is shipped now: %s', uploader,
                               error)
            trouble = type(error)
            # To ask for a server costs nothing; it may be back at once.
            pause = (PERIOD if isinstance(error, Unreachable)
                     else min(2 * max(pause, PERIOD), LONGEST_PERIOD))
        else:
            if trouble is not None:
                logger.info('%s: it works again', uploader)
            trouble, pause = None, max(0.0, due - time.monotonic())
            shipped = began
        _say(uploader, shipped)
        stop.wait(pause)
    if has_started:
        # What was committed at the end.
        with contextlib.suppress(_ToldToEnd, *MAY_PASS):
            uploader.ship()


def _say(uploader: Uploader, shipped: float | None) -> None:
    # Whoever may only read there can ship all the same.
    with contextlib.suppress(OSError):
        backups.write(uploader.path, Said(
            shipped, uploader.behind, uploader.drilled))
