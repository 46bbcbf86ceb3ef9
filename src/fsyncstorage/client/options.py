"""What the options of a client may be, in its sections and for programs.

Each function takes the text of a section or the value of a program, and
returns the value, or raises a ValueError that says what it may be.
"""

from collections.abc import Sequence
from typing import Any

#: Which kind of server a client is opened for (opening).
AUTO, OURS, STOCK = SERVER_KINDS = 'auto', 'ours', 'stock'
FILLS = 'commit', 'load'
LOCAL_READS = 'auto', 'off'
MODES = 0o400, 0o440, 0o444
#: Seconds.
SHORTEST_SERVER_TIMEOUT = 1


def server_kind(value: str) -> str:
    return _one_of('server-kind', value, SERVER_KINDS)


def blob_cache_fill(value: str) -> str:
    return _one_of('blob-cache-fill', value, FILLS)


def local_reads(value: str) -> str:
    return _one_of('local-reads', value, LOCAL_READS)


def _one_of(key: str, value: str, possible: Sequence[str]) -> str:
    if value.lower() not in possible:
        raise ValueError(f'{key} is {" or ".join(possible)}, not {value!r}')
    return value.lower()


def blob_cache_mode(value: str | int) -> int:
    mode = int(value, 8) if isinstance(value, str) else value
    if mode not in MODES:
        raise ValueError(
            f'blob-cache-mode is 0400, 0440 or 0444, not {mode:04o}')
    return mode


def read_channels(value: str | int) -> int:
    if int(value) < 1:
        raise ValueError(f'read-channels is at least 1, not {value}')
    return int(value)


def server_timeout(value: Any) -> float | None:
    """Of a program: seconds; None: never."""
    if value is not None and (
            isinstance(value, str) or value < SHORTEST_SERVER_TIMEOUT):
        raise ValueError(
            f'server-timeout is off or at least {SHORTEST_SERVER_TIMEOUT}s,'
            f' not {value}')
    return value


def addresses_of(addr: Any) -> list[Any]:
    """The addresses of an `addr` as ClientStorage takes it: a port of this
    machine, a host and a port, the path of a socket, or several of these."""
    if isinstance(addr, int):
        addr = '127.0.0.1', addr
    if isinstance(addr, str) or (
            isinstance(addr, tuple) and len(addr) == 2
            and isinstance(addr[0], str) and isinstance(addr[1], int)):
        return [addr]
    return list(addr)
