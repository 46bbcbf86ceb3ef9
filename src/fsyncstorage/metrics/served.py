"""`/clients`: who does what, of the storages that are served.

As JSON, for `fsync-top` and other programs: what each client has done since it
registered, and what it holds.  The server counts that and keeps it bounded
(server.clients); here it is only put together.  Labels are text of peers:
whoever shows them has to escape them for its own medium.

There are no more than `MOST` clients in an answer, of all storages together.
How many others there are, it says.
"""

import http
import json
import time
from collections.abc import Iterable
from typing import Any

from .answering import Answer
from .shown import Shown

MOST = 1000


def clients(shown: Iterable[Shown]) -> Answer:
    storages: dict[str, Any] = {}
    left = MOST
    for each in shown:
        found = each.clients(left)
        if found is not None:  # else no server has it, or it cannot be read
            storages[each.name] = found
            left -= len(found['clients'])
    body = json.dumps({'time': time.time(), 'storages': storages}) + '\n'
    return Answer(http.HTTPStatus.OK, 'application/json', body.encode())
