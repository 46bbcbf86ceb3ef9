"""How much memory a member of etcd has, by its own metrics.

They are at its client URL, unless etcd was told otherwise: then nobody knows.
What answers there may be anything: a bound of time and bytes is kept.
"""

import contextlib
import http.client
import re
from urllib.parse import urlsplit

from ..quorum.etcd.settings import Settings

SECONDS, BYTES = 2.0, 1 << 20

_RESIDENT = re.compile(
    rb'^process_resident_memory_bytes ([0-9.e+]{1,30})$', re.MULTILINE)


def resident(address: str, settings: Settings) -> int | None:
    """Bytes; None if its metrics cannot be read."""
    with contextlib.suppress(OSError, ValueError, OverflowError,
                             http.client.HTTPException):
        with contextlib.closing(_connection(address, settings)) as connection:
            connection.request('GET', '/metrics')
            answer = connection.getresponse()
            found = _RESIDENT.search(answer.read(BYTES))
            return None if found is None else int(float(found[1]))
    return None


def _connection(address: str,
                settings: Settings) -> http.client.HTTPConnection:
    place = urlsplit(address)
    if place.scheme == 'http':
        return http.client.HTTPConnection(place.netloc, timeout=SECONDS)
    return http.client.HTTPSConnection(
        place.netloc, timeout=SECONDS, context=settings.context())
