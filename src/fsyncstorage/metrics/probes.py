"""Is it alive, is it ready, has it started?  For programs that restart servers
or route requests to them.

`/startup`  the process has opened its storages, and serves; or it follows
            another node, and is ready to take over
`/live`     its event loop answers; otherwise only a restart helps.  A server
            that is ending has no loop to watch, and counts as alive
`/ready`    its storages are open, and writing has not stopped; otherwise
            clients should be sent elsewhere, and a restart may not help
`/node`     the same, or it follows another node of a quorum without trouble;
            otherwise no other node should be ended now

Each answers with 200 or 503, and says why in JSON.  A process without a server
has no event loop, and is alive as long as it answers at all.
"""

import asyncio
import http
import json
import time
from collections.abc import Iterable
from typing import Any

from ..histogram import Histogram
from .answering import Answer

# Seconds between two beats of a pulse.
BEAT = 0.5
# Seconds without an answer after which a loop is stuck.
STUCK_AFTER = 5.0

#: What the process is doing.  One that follows opens its storage only when it
#: leads (storage.host).
STARTING, FOLLOWING = 'starting', 'following'
SERVING, STOPPING = 'serving', 'stopping'


def startup(phase: str) -> Answer:
    return _answer(phase != STARTING, process=phase)


def live(pulses: Iterable['Pulse']) -> Answer:
    age = oldest(pulses)
    return _answer(age <= STUCK_AFTER, loop_answered_seconds_ago=round(age, 3))


def oldest(pulses: Iterable['Pulse']) -> float:
    """Seconds since the slowest of their loops has answered."""
    return max((each.age for each in pulses), default=0.0)


def ready(phase: str, states: dict[str, str | None]) -> Answer:
    """`states` has the trouble of each storage, by its name."""
    return _answer(
        phase == SERVING and bool(states) and not any(states.values()),
        process=phase,
        storages={name: trouble or 'ready'
                  for name, trouble in states.items()})


def node(phase: str, states: dict[str, str | None]) -> Answer:
    """`states` has the trouble of each storage or node, by its name."""
    return _answer(
        phase in (SERVING, FOLLOWING) and bool(states)
        and not any(states.values()), process=phase,
        storages={name: trouble or 'well' for name, trouble in states.items()})


def _answer(is_well: bool, **why: object) -> Answer:
    status = (http.HTTPStatus.OK if is_well
              else http.HTTPStatus.SERVICE_UNAVAILABLE)
    body = json.dumps({'ok': is_well, **why}) + '\n'
    return Answer(status, 'application/json', body.encode())


class Pulse:
    """A timer in the event loop of a server, which notes by how much it is
    late: this is how long something else has blocked the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, traffic: Any) -> None:
        """May be called in any thread, before the loop runs."""
        self.lag = Histogram()
        self.loop = loop
        #: Has the bytes `received` and `sent` on the server's connections.
        self.traffic = traffic
        self._last = time.monotonic()
        self._is_over = False
        loop.call_soon_threadsafe(self._beat)

    @property
    def age(self) -> float:
        """Seconds since the loop has last answered."""
        return time.monotonic() - self._last

    def end(self) -> None:
        """May be called in any thread; the timer may fire once more."""
        self._is_over = True

    # In the loop

    def _beat(self, due: float | None = None) -> None:
        """`due`: when it should have been called; None: at the beginning."""
        if not self._is_over:
            self._last = time.monotonic()
            if due is not None:
                self.lag.add(max(0.0, self._last - due))
            self.loop.call_later(BEAT, self._beat, self._last + BEAT)
