"""By which names a request may call an address of this process.

A page from anywhere can give its own name the address 127.0.0.1 while a
browser of this machine shows it.  What it asks under that name is its own, to
the browser, and so it could read the figures (DNS rebinding).  The header Host
then has that name.

So at an address of the loopback network a name is answered only if no stranger
can have it: localhost, an address in numbers, or the name that the operator
has written.  Programs that send no header Host are no browsers.

Any other address is called by the names that its network has for it, of which
nobody has told us; and those who reach it may read the figures in any case.
"""

import ipaddress
import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator

from .address import is_loopback

_HOST = re.compile(r'(\[[^\]]*\]|[^:]*)(?::\d*)?')


def named_in(headers: Iterable[bytes]) -> Iterator[str]:
    """What the headers Host say."""
    for header in headers:
        name, _, value = header.partition(b':')
        if name.strip().lower() == b'host':
            yield value.strip().decode('latin-1')


def those_of(written: str, host: str) -> Callable[[str], bool]:
    """Says of a header Host whether it is answered.

    The address is `host`, in numbers, and `written` as it was configured.
    """
    if not is_loopback(host):
        return lambda named: True
    names = {'localhost', written.lower()}

    def is_ours(named: str) -> bool:
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
