"""By which names a request may call an address of this process.

A page from anywhere can give its own name the address 127.0.0.1 while a
browser of this machine shows it.  What it asks under that name is its own, to
the browser, and so it could read the figures (DNS rebinding).  The header Host
then has that name.

So at an address of the loopback network a name is answered only if no stranger
can have it: localhost, an address in numbers, or the name that the operator
has written.  Programs that send no header Host are no browsers.

Any other address is called by the names that its network has for it, of which
nobody has told us.  Programs that watch a server and restart it must not be
refused for them: so `FOR_ANY_NAME` are answered there by any name.  What only
people and fsync-top ask for is answered as on loopback: a browser within a
closed network shows pages of strangers, too, and `/clients` names the peers.
"""

import ipaddress
import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator

from .address import is_loopback

#: What programs ask for.  It says nothing of single clients.
FOR_ANY_NAME = frozenset({'/live', '/ready', '/startup', '/metrics'})

_HOST = re.compile(r'(\[[^\]]*\]|[^:]*)(?::\d*)?')


def named_in(headers: Iterable[bytes]) -> Iterator[str]:
    """What the headers Host say."""
    for header in headers:
        name, _, value = header.partition(b':')
        if name.strip().lower() == b'host':
            yield value.strip().decode('latin-1')


def those_of(written: str, host: str) -> Callable[[str, str], bool]:
    """Says of a header Host whether it is answered, for a path.

    The address is `host`, in numbers, and `written` as it was configured.
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
