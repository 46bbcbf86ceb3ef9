"""How numbers are written, the same in every table and message."""

from typing import Any

_UNITS = (
    ('ns', 1e-9), ('us', 1e-6), ('ms', 1e-3), ('s', 1), ('min', 60),
    ('h', 3600))


def duration(seconds: float) -> str:
    """5 ms, 120 us, 1.5 s: three digits at most."""
    for unit, size in _UNITS:
        if seconds / size < 999.5:  # more is rounded to four digits
            break
    return f'{seconds / size:.3g} {unit}'


def number(value: float) -> str:
    return f'{value:,.0f}' if value >= 99.95 else f'{value:#.3g}'


def span(least: str, most: str) -> str:
    """A range: its unit once, if both have it."""
    number, _, unit = least.partition(' ')
    if unit and most.endswith(f' {unit}'):
        least = number
    return f'{least}-{most}'


def times(ratio: float) -> str:
    return f'{ratio:.2f}x' if ratio >= 0.1 else f'{ratio:#.2g}x'


def count(how_many: float, noun: str, plural: str | None = None) -> str:
    return f'{how_many:,.0f} ' + (
        noun if how_many == 1 else plural or f'{noun}s')


def listed(settings: dict[str, Any]) -> str:
    return ', '.join(f'{name} {value}' for name, value in settings.items())


def size(how_many: int) -> str:
    """Bytes, as a command line takes them: 500 bytes, 100 KB, 1.5 MB."""
    for unit, scale in (('GB', 1 << 30), ('MB', 1 << 20), ('KB', 1 << 10)):
        if how_many >= scale:
            return f'{how_many / scale:.4g} {unit}'
    return count(how_many, 'byte')


def added(sync_latency: float) -> str:
    if not sync_latency:
        return 'nothing added to the syncs'
    return f'{duration(sync_latency)} added to each sync'
