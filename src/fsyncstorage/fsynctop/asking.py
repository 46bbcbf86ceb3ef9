"""Asks an address of metrics for the clients there.

Any program may answer at that address.  So at most `LONGEST` bytes are
received, within `PATIENCE` seconds in all, and each value is checked for its
type and its range before it is used.  Texts may still have any characters: the
code that prints them must escape them.
"""

import contextlib
import json
import socket
import time
from typing import Any
from typing import NamedTuple

from ..check.terminal import CannotRun
from ..metrics.address import shown

PATIENCE = 10.0
# An answer of a server has 1,000 clients, of 5,000 bytes at most: each of the
# 100 characters of a label, and of a version, may take 12 in JSON.
LONGEST = 8 << 20
MOST_CLIENTS = 1000
LONGEST_TEXT = 1000
# Most items of a list in a client.
MOST_LISTED = 10

_PIECE = 1 << 16


class Transaction(NamedTuple):
    """A transaction that has asked for its vote."""

    state: str
    #: It has its objects.  False: it waits for them, or for something else.
    holds: bool
    seconds: float
    objects: int
    oids: list[str]


class Client(NamedTuple):

    number: int
    label: str
    address: str
    version: str | None
    read_only: bool
    reads_locally: bool | None
    seconds: float
    messages: int
    received: int
    sent: int
    loads: int
    commits: int
    conflicts: int
    transactions: list[Transaction]
    transactions_left_out: int


class Storage(NamedTuple):

    clients: list[Client]
    left_out: int


def ask(address: tuple[str, int]) -> dict[str, Storage]:
    """The clients, by the names of their storages.  CannotRun if it fails."""
    where = shown(address)
    try:
        answer = _received(address)
    except TimeoutError:
        raise CannotRun(
            f'{where}: no answer within {PATIENCE:.0f} s') from None
    except ConnectionResetError as error:
        raise CannotRun(
            f'{where}: {error.strerror}. Is it the address of <metrics>, and'
            ' not that of ZEO?') from None
    except (OSError, UnicodeError) as error:  # (UnicodeError: no valid name)
        words = getattr(error, 'strerror', None) or error
        raise CannotRun(f'{where}: {words}') from None
    status, body = _taken_apart(answer)
    if status == b'200':
        with contextlib.suppress(ValueError, RecursionError):
            return _storages(json.loads(body))
    if status == b'421':
        raise CannotRun(
            f'{where}: the server was asked by a name that it does not answer'
            ' to (421): ask by an address in numbers, or as it has the name')
    raise CannotRun(
        f'{where}: what answers there is not the address of metrics of an'
        ' fsyncstorage that can tell of its clients')


def _received(address: tuple[str, int]) -> bytes:
    """All that is received, up to LONGEST bytes."""
    end = time.monotonic() + PATIENCE
    answer = bytearray()
    with _connected(address, end) as connection:
        # In numbers: a server may have to refuse other names (metrics.hosts).
        host = shown(connection.getpeername()[:2])
        connection.settimeout(_left(end))
        connection.sendall(
            f'GET /clients HTTP/1.0\r\nHost: {host}\r\n\r\n'.encode())
        while len(answer) <= LONGEST:
            connection.settimeout(_left(end))
            piece = connection.recv(_PIECE)
            if not piece:
                break
            answer += piece
    return bytes(answer)


def _connected(address: tuple[str, int], end: float) -> socket.socket:
    """A connection to the first address of this name that answers.

    The addresses share the time that is left.
    """
    found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
    failed = OSError('the name has no address')
    for number, (family, kind, protocol, _, peer) in enumerate(found):
        with contextlib.ExitStack() as tried:
            try:
                connection = socket.socket(family, kind, protocol)
                tried.callback(connection.close)
                connection.settimeout(_left(end) / (len(found) - number))
                connection.connect(peer)
            except OSError as error:  # the system may not have the family
                failed = error
            else:
                tried.pop_all()
                return connection
    raise failed


def _left(end: float) -> float:
    """Seconds that are left.  TimeoutError: there are none."""
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _taken_apart(answer: bytes) -> tuple[bytes, bytes]:
    """The status, which is empty if the answer is not HTTP, and the body."""
    head, _, body = answer.partition(b'\r\n\r\n')
    words = head.partition(b'\r\n')[0].split(b' ', 2)
    if len(answer) > LONGEST or not words[0].startswith(b'HTTP/1.'):
        return b'', b''
    return words[1] if len(words) > 1 else b'', body


# Checks: they raise ValueError

def _storages(found: Any) -> dict[str, Storage]:
    storages = {
        _text(name): Storage(
            [_client(each) for each in _list(
                _of(each, 'clients'), MOST_CLIENTS)],
            _count(_of(each, 'left_out')))
        for name, each in _items(_of(found, 'storages'))}
    return storages


def _client(found: Any) -> Client:
    checks = {
        'number': _count, 'label': _text, 'address': _text,
        'version': _or_none(_text), 'read_only': _flag,
        'reads_locally': _or_none(_flag), 'seconds': _seconds,
        'messages': _count, 'received': _count, 'sent': _count,
        'loads': _count, 'commits': _count, 'conflicts': _count,
        'transactions': lambda value: [
            _transaction(each) for each in _list(value)],
        'transactions_left_out': _count}
    return Client(**{
        name: check(_of(found, name)) for name, check in checks.items()})


def _transaction(found: Any) -> Transaction:
    return Transaction(
        _text(_of(found, 'state')), _flag(_of(found, 'holds')),
        _seconds(_of(found, 'seconds')), _count(_of(found, 'objects')),
        [_text(each) for each in _list(_of(found, 'oids'))])


def _of(found: Any, name: str) -> Any:
    if not isinstance(found, dict) or name not in found:
        raise ValueError(name)
    return found[name]


def _items(value: Any) -> Any:
    if not isinstance(value, dict) or len(value) > MOST_CLIENTS:
        raise ValueError('no table')
    return value.items()


def _list(value: Any, most: int = MOST_LISTED) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise ValueError('no list, or a long one')
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > LONGEST_TEXT:
        raise ValueError('no text, or a long one')
    return value


def _count(value: Any) -> int:
    if value.__class__ is not int or not 0 <= value < 1 << 64:
        raise ValueError('no count')
    return int(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError('neither true nor false')
    return value


def _seconds(value: Any) -> float:
    # (This excludes infinities and NaN, too.)
    if value.__class__ not in (int, float) or not 0 <= value < 1e12:
        raise ValueError('no duration')
    return float(value)


def _or_none(check: Any) -> Any:
    return lambda value: None if value is None else check(value)
