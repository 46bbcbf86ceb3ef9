"""How numbers are put for people, the same in every table and message."""


def duration(seconds):
    """5 ms, 120 us, 1.5 s: three digits at most."""
    for unit, size in (('s', 1), ('ms', 1e-3), ('us', 1e-6)):
        if seconds >= size:
            break
    return f'{seconds / size:.3g} {unit}'


def number(value):
    return f'{value:,.0f}' if value >= 99.95 else f'{value:#.3g}'


def times(ratio):
    return f'{ratio:.2f}x'


def milliseconds(seconds):
    """Not finer than a microsecond."""
    value = seconds * 1e3
    return f'{value:.3f}' if value < 1 else number(value)


def count(how_many, noun):
    return f'{how_many:,.0f} {noun}' + ('' if how_many == 1 else 's')


def size(how_many):
    """Bytes, as a command line takes them: 500 bytes, 100 KB, 1.5 MB."""
    for unit, scale in (('MB', 1 << 20), ('KB', 1 << 10)):
        if how_many >= scale:
            return f'{how_many / scale:.4g} {unit}'
    return count(how_many, 'byte')


def added(sync_latency):
    if not sync_latency:
        return 'nothing added to the syncs'
    return f'{duration(sync_latency)} added to each sync'


def all_added(sync_latencies):
    """One line that no report may leave out."""
    different = dict.fromkeys(sync_latencies)
    if len(different) == 1:
        return f'{added(*different)}.'.capitalize()
    listed = ', '.join(
        duration(latency) if latency else 'nothing' for latency in different)
    return f'Added to each sync, as each title says: {listed}.'
