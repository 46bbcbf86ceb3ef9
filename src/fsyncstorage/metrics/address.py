"""A configured address, and whether other machines can reach it."""

import ipaddress

LOOPBACK = '127.0.0.1'
HIGHEST_PORT = (1 << 16) - 1


def checked(text: str) -> tuple[str, int]:
    """Host and port, from PORT, HOST:PORT or [HOST]:PORT.

    A port alone is on loopback: other machines must not see the figures unless
    an operator configures it.
    """
    host, _, port = text.strip().rpartition(':')
    if host.startswith('[') and host.endswith(']'):
        host = host[1:-1]
    elif ':' in host:
        host = port = ''  # an IPv6 address without brackets
    if not (port.isdecimal() and port.isascii()
            and int(port) <= HIGHEST_PORT):
        raise ValueError(
            'the address of the metrics is PORT, HOST:PORT or [HOST]:PORT,'
            f' not {text!r}')
    return host or LOOPBACK, int(port)


def shown(address: tuple[str, int]) -> str:
    host, port = address
    return f'[{host}]:{port}' if ':' in host else f'{host}:{port}'


def is_loopback(host: str) -> bool:
    """Is this host, given in numbers, on the loopback network?"""
    address = ipaddress.ip_address(host.partition('%')[0])  # %: the interface
    mapped = getattr(address, 'ipv4_mapped', None)
    loopback: bool = (mapped or address).is_loopback
    return loopback
