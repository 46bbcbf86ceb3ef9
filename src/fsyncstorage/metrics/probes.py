"""Does it live, is it ready, has it started?  For whoever restarts and routes.

`/startup`  the process has opened its storages, and serves; or it follows
            another node, and is ready to take over
`/live`     its event loop answers; else only a restart helps.  A server that
            ends has no loop to watch, and is given the time that this takes
`/ready`    its storages are open, and writing has not stopped; else clients
            should be sent elsewhere, and a restart may not help

Each answers with 200 or 503, and says why in JSON.  A process without a server
has no event loop, and lives as long as it answers at all.
"""

import http
import json
from collections.abc import Iterable

from .answering import Answer
from .pulse import Pulse
from .shown import Shown

# A loop that has not answered for so many seconds is stuck.
STUCK_AFTER = 5.0

#: What the process does.  One that follows has its storage when it leads
#: (storage.host).
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
