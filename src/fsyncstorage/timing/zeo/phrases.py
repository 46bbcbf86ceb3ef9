"""How settings of `fsync-time zeo`, and what was added, are put for people."""

from .. import pinning
from ..wording import added
from ..wording import count
from ..wording import duration
from . import reading

_PINNED = {
    pinning.SAME: 'server and clients on the same processor',
    pinning.ACROSS: 'server and clients on different processors',
}


def title(settings, what):
    return ', '.join([
        what, *conditions(settings), added(settings['sync_latency'])])


def conditions(settings):
    return [
        *_of_reads(settings),
        f'{settings["loop"]} over {_transport(settings)}',
        *_pinned(settings)]


def network(delay, round_trip):
    return (
        f'Server and clients are in two networks, {duration(delay)} added each'
        f' way: a round trip takes {duration(round_trip)} (measured).')


def cold_disk(read_latency):
    dropped = 'Objects were dropped from the page cache before cold reads'
    if not read_latency:
        return f'{dropped}.'
    return (
        f'{dropped}, and {duration(read_latency)} added to each read of one.')


def _transport(settings):
    if settings['socket']:
        return 'a unix socket'
    if 'network_delay' in settings:
        return f'TCP with {duration(settings["network_delay"])} each way'
    return 'TCP'


def _of_reads(settings):
    if 'access' in settings:
        yield f'by {reading.ACCESSES[settings["access"]]}'
    if 'objects' in settings:
        yield f'{count(settings["objects"], "object")} a transaction'
    if 'read_latency' in settings:
        yield ('from a cold disk with'
               f' {duration(settings["read_latency"])} added')


def _pinned(settings):
    if settings['pin'] != pinning.FREE:
        yield _PINNED[settings['pin']]
