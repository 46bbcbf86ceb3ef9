"""Which names a request may use for an address of this process.

While a browser on this machine shows a page of a stranger, the stranger can
give the name of the page the address 127.0.0.1.  To the browser, all requests
under that name belong to the page, and so the page could read the figures (DNS
rebinding).  The header Host then has that name.

So at an address of the loopback network, a request is answered only if no
stranger can have its name: localhost, an address in numbers, or the name that
the operator has configured.  Programs that send no header Host are not
browsers.

Any other address may be called by names which its network has for it, and
which we do not know.  Programs that watch a server and restart it must not be
refused because of such a name: so the paths `FOR_ANY_NAME` are answered there
for any name.  The paths that only people and fsync-top ask for are answered as
on loopback: a browser within a closed network shows pages of strangers, too,
and `/clients` names the peers.
"""

import ipaddress
import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator

from .address import is_loopback

#: Paths that programs ask for.  They say nothing about single clients.
FOR_ANY_NAME = frozenset({'/live', '/ready', '/startup', '/metrics'})

_HOST = re.compile(r'(\[[^\]]*\]|[^:]*)(?::\d*)?')


def named_in(headers: Iterable[bytes]) -> Iterator[str]:
    """The values of the headers Host."""
    for header in headers:
        name, _, value = header.partition(b':')
        if name.strip().lower() == b'host':
            yield value.strip().decode('latin-1')


def those_of(written: str, host: str) -> Callable[[str, str], bool]:
    """A function that says whether a request is answered, by its header Host
    and its path.

    `host` is the address in numbers, and `written` as it was configured.
    """
    names = {'localhost', written.lower()}
    for_any_name = frozenset() if is_loopback(host) else FOR_ANY_NAME

    def is_ours(named: str, path: str) -> bool:
        if path in for_any_name:
            return True
        found = _HOST.fullmatch(named.lower())
        return found is not None and (
            found[1] in names or _is_in_numbers(found[1]))
    return is_ours


def _is_in_numbers(host: str) -> bool:
    try:
        ipaddress.ip_address(host.removeprefix('[').removesuffix(']'))
    except ValueError:
        return False
    return True
