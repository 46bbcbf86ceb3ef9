"""Is it alive, is it ready, has it started?  For programs that restart servers
or route requests to them.

`/startup`  the process has opened its storages, and serves; or it follows
            another node, and is ready to take over
`/live`     its event loop answers; otherwise only a restart helps.  A server
            that is ending has no loop to watch, and counts as alive
`/ready`    its storages are open, and writing has not stopped; otherwise
            clients should be sent elsewhere, and a restart may not help

Each answers with 200 or 503, and says why in JSON.  A process without a server
has no event loop, and is alive as long as it answers at all.
"""

import http
import json
from collections.abc import Iterable

from .answering import Answer
from .pulse import Pulse
from .shown import Shown

# Seconds without an answer after which a loop is stuck.
STUCK_AFTER = 5.0

#: What the process is doing.  One that follows opens its storage only when it
#: leads (storage.host).
STARTING, FOLLOWING = 'starting', 'following'
SERVING, STOPPING = 'serving', 'stopping'


def startup(phase: str) -> Answer:
    return _answer(phase != STARTING, process=phase)


def live(pulses: Iterable[Pulse]) -> Answer:
    age = max((pulse.age for pulse in pulses), default=0.0)
    return _answer(age <= STUCK_AFTER, loop_answered_seconds_ago=round(age, 3))


def ready(phase: str, storages: Iterable[Shown]) -> Answer:
    states = {shown.name: shown.trouble() for shown in storages}
    return _answer(
        phase == SERVING and bool(states) and not any(states.values()),
        process=phase,
        storages={name: trouble or 'ready'
                  for name, trouble in states.items()})


def _answer(is_well: bool, **why: object) -> Answer:
    status = (http.HTTPStatus.OK if is_well
              else http.HTTPStatus.SERVICE_UNAVAILABLE)
    body = json.dumps({'ok': is_well, **why}) + '\n'
    return Answer(status, 'application/json', body.encode())
