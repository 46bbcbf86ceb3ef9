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
from .past import EVERY
from .past import SPAN
from .past import Past
from .pulse import Serving
from .shown import Reading
from .shown import Shown

#: By path: a file in the directory of this module, and its type.
FILES = {
    '/': ('page.html', 'text/html; charset=utf-8'),
    '/page.css': ('page.css', 'text/css; charset=utf-8'),
    '/page.js': ('page.js', 'text/javascript; charset=utf-8'),
    '/page.svg': ('page.svg', 'image/svg+xml'),
}


@functools.cache
def page_file(path: str) -> Answer:
    name, content_type = FILES[path]
    body = importlib.resources.files(__package__).joinpath(name).read_bytes()
    return Answer(200, content_type, body)


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
        age = max((each.pulse.age for each in self._servers()), default=0.0)
        body = json.dumps({
            'version': own_version(),
            'time': time.time(),
            'process': self._phase(),
            'verdicts': _as_json(verdicts.of_process(self._phase(), age)),
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
            return {**shared, 'figures': {},
                    'verdicts': _as_json([verdicts.UNREADABLE])}
        return {
            **shared,
            'figures': figures(reading),
            'durability': reading.storage.get('durability'),
            'local_clients': reading.server.get('local-clients'),
            'pack_share': (reading.packs.get('pack') or {}).get('share'),
            'verdicts': _as_json(verdicts.of_storage(reading, past)),
        }


def figures(reading: Reading) -> dict[str, Any]:
    """By the names that they have as metrics, without the prefix."""
    return {name + '_total' * (kind == COUNTER): value
            for kind, name, path, _ in FIGURES
            if (value := reading.at(path)) is not None}


def _as_json(found: list[verdicts.Verdict]) -> list[dict[str, str]]:
    return [each._asdict() for each in found]
