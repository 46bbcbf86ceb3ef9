"""The live page: what happens now, what came before, and whether all is well;
and what each client does.

The page consists of four files of this package, and loads nothing from
elsewhere.  It asks for `/now` every two seconds while somebody looks at it:
this is all that it shows, as JSON.  The names in it come from configuration
files, and the words from errors; the page treats them as text.
"""

import collections
import functools
import importlib.resources
import json
import operator
import platform
import time
from collections.abc import Iterable
from typing import Any

from ..version import own_version
from . import probes
from . import verdicts
from .answering import Answer
from .figures import COUNTER
from .figures import FIGURES
from .past import EVERY
from .past import SPAN
from .probes import Pulse
from .reading import Reading
from .shown import Shown

#: Clients in an answer.
MOST = 1000
#: When this process began to show figures, which is when it started.
STARTED = time.time()

#: By path: a file in the directory of this module, and its type.
FILES = {
    '/': ('page.html', 'text/html; charset=utf-8'),
    '/page.css': ('page.css', 'text/css; charset=utf-8'),
    '/page.js': ('page.js', 'text/javascript; charset=utf-8'),
    '/page.svg': ('page.svg', 'image/svg+xml'),
}


@functools.cache
def file(path: str) -> Answer:
    name, content_type = FILES[path]
    body = importlib.resources.files(__package__).joinpath(name).read_bytes()
    return Answer(200, content_type, body)


def now(phase: str, storages: Iterable[Shown],
        pulses: Iterable[Pulse]) -> Answer:
    """`/now`: all that the page shows."""
    return _json({
        'host': platform.node(),
        'version': own_version(),
        'started': STARTED,
        'time': time.time(),
        'process': phase,
        'verdicts': [*verdicts.of_process(phase, probes.oldest(pulses))],
        'every': EVERY,
        'span': SPAN,
        'storages': [_storage(shown) for shown in storages],
    })


def _storage(shown: Shown) -> dict[str, Any]:
    reading, past = shown.now(), shown.past
    shared = {'name': shown.name, 'file': shown.file,
              'past': past.columns(time.monotonic())}
    if reading is None:
        return {**shared, 'figures': {}, 'verdicts': [verdicts.UNREADABLE]}
    return {
        **shared,
        'figures': figures(reading),
        'durability': reading.storage.get('durability'),
        'verdicts': verdicts.of_storage(reading, past),
    }


def figures(reading: Reading) -> dict[str, Any]:
    """By the names that they have as metrics, without the prefix."""
    return {name + '_total' * (kind == COUNTER): value
            for kind, name, path, _ in FIGURES
            if (value := reading.at(path)) not in (None, {})}


def clients(shown: Iterable[Shown]) -> Answer:
    """`/clients`: what each client of the served storages does.

    For `fsync-top` and other programs: what each client has done since it
    registered, and what it holds.  The server counts this and bounds it
    (server.clients).  Labels are text from peers: a program that shows them
    must escape them for its own medium.

    An answer has at most `MOST` clients, of all storages together: first those
    that have held objects for longest, then those that wait for objects, and
    then the others.  It also says how many are left out.
    """
    # (None: no server serves the storage, or its clients cannot be read.)
    found = {each: seen for each in shown
             if (seen := each.clients()) is not None}
    first = sorted(((rank, each) for each, seen in found.items()
                    for rank in seen.ranks), key=operator.itemgetter(0))
    numbers = collections.Counter(each for _, each in first[:MOST])
    storages: dict[str, Any] = {
        each.name: seen.first(numbers[each]) for each, seen in found.items()}
    return _json({'time': time.time(), 'storages': storages})


def _json(found: dict[str, Any]) -> Answer:
    # (What was made here does not contain itself.)
    body = json.dumps(found, allow_nan=False, check_circular=False) + '\n'
    return Answer(200, 'application/json', body.encode())
