"""`/clients`: what each client of the served storages does.

As JSON, for `fsync-top` and other programs: what each client has done since it
registered, and what it holds.  The server counts this and bounds it
(server.clients); here it is only put together.  Labels are text from peers: a
program that shows them must escape them for its own medium.

An answer has at most `MOST` clients, of all storages together: first those
that have held objects for longest, then those that wait for objects, and then
the others.  It also says how many are left out.
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
    # (None: no server serves the storage, or its clients cannot be read.)
    found = {each: seen for each in shown
             if (seen := each.clients()) is not None}
    first = sorted(((rank, each) for each, seen in found.items()
                    for rank in seen.ranks), key=operator.itemgetter(0))
    numbers = collections.Counter(each for _, each in first[:MOST])
    storages: dict[str, Any] = {
        each.name: seen.first(numbers[each]) for each, seen in found.items()}
    # (What was made here does not contain itself.)
    body = json.dumps({'time': time.time(), 'storages': storages},
                      check_circular=False) + '\n'
    return Answer(http.HTTPStatus.OK, 'application/json', body.encode())
