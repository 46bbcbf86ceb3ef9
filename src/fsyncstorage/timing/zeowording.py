"""How the settings of a race of `fsync-time zeo` are put for people."""

from . import pinning
from . import reading
from .wording import added
from .wording import count

_PINNED = {
    pinning.SAME: 'server and clients on the same processor',
    pinning.ACROSS: 'server and clients on different processors',
}


def title(settings, what):
    transport = 'a unix socket' if settings['socket'] else 'TCP'
    return ', '.join([
        what, *_of_reads(settings), f'{settings["loop"]} over {transport}',
        *_pinned(settings), added(settings['sync_latency'])])


def _of_reads(settings):
    if 'access' in settings:
        yield f'by {reading.ACCESSES[settings["access"]]}'
    if 'objects' in settings:
        yield f'{count(settings["objects"], "object")} a transaction'


def _pinned(settings):
    if settings['pin'] != pinning.FREE:
        yield _PINNED[settings['pin']]
