"""The live page: what happens now, what came before, and whether all is well.

The page consists of four files of this package, and loads nothing from
elsewhere.  It asks for `/now` every two seconds while somebody looks at it:
this is all that it shows, as JSON.  The names in it come from configuration
files, and the words from errors; the page treats them as text.
"""

import functools
import importlib.resources
import json
import time
from collections.abc import Callable
from typing import Any

from ..version import own_version
from . import verdicts
from .answering import Answer
from .figures import COUNTER
from .figures import FIGURES
from .figures import HISTOGRAMS
from .past import EVERY
from .past import SPAN
from .past import Past
from .past import percentiles
from .past import seen_by
from .pulse import Serving
from .shown import Reading
from .shown import Shown

#: By path: the files, in the directory of this module.
FILES = {'/': 'page.html', '/page.css': 'page.css', '/page.js': 'page.js',
         '/page.svg': 'page.svg'}
_TYPES = {'html': 'text/html; charset=utf-8', 'css': 'text/css; charset=utf-8',
          'js': 'text/javascript; charset=utf-8', 'svg': 'image/svg+xml'}


def page_file(path: str) -> Answer | None:
    return _read(FILES[path]) if path in FILES else None


@functools.cache
def _read(name: str) -> Answer:
    body = importlib.resources.files(__package__).joinpath(name).read_bytes()
    return Answer(200, _TYPES[name.rpartition('.')[2]], body)


class Page:
    """Used only by the thread that answers."""

    def __init__(self, phase: Callable[[], str],
                 storages: Callable[[], list[Shown]],
                 servers: Callable[[], list[Serving]]) -> None:
        """`phase()` is what the process is doing; the others, what is shown.
        """
        self._phase = phase
        self._storages = storages
        self._servers = servers
        self._pasts: dict[Shown, Past] = {}

    def sample(self) -> None:
        """Called every EVERY seconds."""
        # The past of what is not shown any more is forgotten.
        self._pasts = {shown: self._past(shown) for shown in self._storages()}
        for shown, past in self._pasts.items():
            reading = shown.now()
            if reading is not None:
                past.add(reading, time.monotonic())

    def now(self) -> Answer:
        servers = self._servers()
        age = max((each.pulse.age for each in servers), default=0.0)
        body = json.dumps({
            'version': own_version(),
            'time': time.time(),
            'process': self._phase(),
            'verdicts': _as_json(verdicts.of_process(self._phase(), age)),
            'received_bytes_total': sum(
                each.traffic.received for each in servers),
            'sent_bytes_total': sum(each.traffic.sent for each in servers),
            'every': EVERY,
            'span': SPAN,
            'storages': [self._storage(shown) for shown in self._storages()],
        }, allow_nan=False)
        return Answer(200, 'application/json', body.encode())

    def _past(self, shown: Shown) -> Past:
        return self._pasts.get(shown) or Past()

    def _storage(self, shown: Shown) -> dict[str, Any]:
        reading, past = shown.now(), self._past(shown)
        shared = {'name': shown.name, 'past': past.columns(time.monotonic())}
        if reading is None:
            return {**shared, 'figures': {}, 'durations': {},
                    'verdicts': _as_json([verdicts.UNREADABLE])}
        return {
            **shared,
            'figures': figures(reading),
            'durations': durations(reading),
            'durability': reading.storage.get('durability'),
            'local_clients': reading.server.get('local-clients'),
            'pack_share': (reading.packs.get('pack') or {}).get('share'),
            'verdicts': _as_json(verdicts.of_storage(reading, past)),
        }


def figures(reading: Reading) -> dict[str, Any]:
    """By the names that they have as metrics, without the prefix."""
    return {name + '_total' * (kind == COUNTER): value
            for kind, name, _, read, _ in FIGURES
            if (value := read(reading)) is not None}


def durations(reading: Reading) -> dict[str, dict[str, float | None]]:
    """How many there were since the start, and how long they took."""
    return {name: {'count': seen[-1], **percentiles(seen)}
            for name, _, key in HISTOGRAMS
            if (seen := seen_by(reading.histograms.get(key, [])))}


def _as_json(found: list[verdicts.Verdict]) -> list[dict[str, str]]:
    return [each._asdict() for each in found]
