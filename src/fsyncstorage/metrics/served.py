"""`/clients`: who does what, of the storages that are served.

As JSON, for `fsync-top` and other programs: what each client has done since it
registered, and what it holds.  The server counts that and keeps it bounded
(server.clients); here it is only put together.  Labels are text of peers:
whoever shows them has to escape them for its own medium.

There are no more than `MOST` clients in an answer, of all storages together:
those that hold objects for longest, then those that wait for some, and then
the others.  How many more there are, it says.
"""

import collections
import http
import json
import operator
import time
from collections.abc import Iterable
from typing import Any

from .answering import Answer
from .shown import Shown

MOST = 1000


def clients(shown: Iterable[Shown]) -> Answer:
    # (None: no server has it, or it cannot be read.)
    found = {each: seen for each in shown
             if (seen := each.clients()) is not None}
    first = sorted(((rank, each) for each, seen in found.items()
                    for rank in seen.ranks), key=operator.itemgetter(0))
    numbers = collections.Counter(each for _, each in first[:MOST])
    storages: dict[str, Any] = {
        each.name: seen.first(numbers[each]) for each, seen in found.items()}
    # (It was made here, of nothing that contains itself.)
    body = json.dumps({'time': time.time(), 'storages': storages},
                      check_circular=False) + '\n'
    return Answer(http.HTTPStatus.OK, 'application/json', body.encode())
