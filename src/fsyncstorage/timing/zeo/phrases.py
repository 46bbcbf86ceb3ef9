"""How settings of `fsync-time zeo` are put for people."""

from .. import pinning
from ..wording import added
from ..wording import count
from . import reading

_PINNED = {
    pinning.SAME: 'server and clients on the same processor',
    pinning.ACROSS: 'server and clients on different processors',
}


def title(settings, what):
    return ', '.join([
        what, *conditions(settings), added(settings['sync_latency'])])


def conditions(settings):
    transport = 'a unix socket' if settings['socket'] else 'TCP'
    return [
        *_of_reads(settings),
        f'{settings["loop"]} over {transport}',
        *_pinned(settings)]


def _of_reads(settings):
    if 'access' in settings:
        yield f'by {reading.ACCESSES[settings["access"]]}'
    if 'objects' in settings:
        yield f'{count(settings["objects"], "object")} a transaction'


def _pinned(settings):
    if settings['pin'] != pinning.FREE:
        yield _PINNED[settings['pin']]
