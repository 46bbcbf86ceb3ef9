"""Asks an address of metrics for the clients there.

Any program may answer at that address.  So at most `LONGEST` bytes are
received, and whoever uses the answer does so within `understood`.  Texts may
have any characters: the code that prints them must escape them.
"""

import contextlib
import http.client
import json
from collections.abc import Iterator
from typing import Any

from ..check.terminal import CannotRun
from ..metrics.address import shown

#: Seconds until there must be a connection, or more of the answer.
PATIENCE = 10.0
# An answer of a server has 1,000 clients, of 5,000 bytes at most: each of the
# 100 characters of a label, and of a version, may take 12 in JSON.
LONGEST = 8 << 20

#: The clients, by the names of their storages: as the server has written them.
Answer = dict[str, dict[str, Any]]


def ask(address: tuple[str, int]) -> Answer:
    """CannotRun if there is no answer."""
    where = shown(address)
    try:
        status, body = _received(address)
    except TimeoutError:
        raise CannotRun(
            f'{where}: no answer within {PATIENCE:.0f} s') from None
    except ConnectionResetError:
        raise CannotRun(
            f'{where}: it has closed the connection. Is it the address of'
            ' <metrics>, and not that of ZEO?') from None
    except http.client.HTTPException:
        raise _not_ours(where) from None
    except (OSError, UnicodeError) as error:  # (UnicodeError: no valid name)
        words = getattr(error, 'strerror', None) or error
        raise CannotRun(f'{where}: {words}') from None
    if status == 421:
        raise CannotRun(
            f'{where}: the server was asked by a name that it does not answer'
            ' to (421): ask by an address in numbers, or as it has the name')
    if status != 200 or len(body) > LONGEST:
        raise _not_ours(where)
    with understood(address):
        storages: Answer = json.loads(body)['storages']
        for storage in storages.values():
            storage['clients'] = [*storage['clients']]
    return storages


@contextlib.contextmanager
def understood(address: tuple[str, int]) -> Iterator[None]:
    """CannotRun, if what is done with an answer shows that it is not ours."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError,
            TypeError, ValueError):
        raise _not_ours(shown(address)) from None


def _not_ours(where: str) -> CannotRun:
    return CannotRun(
        f'{where}: what answers there is not the address of metrics of an'
        ' fsyncstorage that can tell of its clients')


def _received(address: tuple[str, int]) -> tuple[int, bytes]:
    """The status, and what follows: a little more than LONGEST at most."""
    with contextlib.closing(http.client.HTTPConnection(
            *address, timeout=PATIENCE)) as connection:
        connection.connect()
        # In numbers: a server may have to refuse other names (metrics.hosts).
        host = shown(connection.sock.getpeername()[:2])
        connection.request('GET', '/clients', headers={'Host': host})
        with connection.getresponse() as response:
            return response.status, response.read(LONGEST + 1)
