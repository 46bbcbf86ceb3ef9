"""The questions that tables answer.

A question is about the races of one workload, and about one or several of
their figures.  Each group of races that differ in one setting alone is an
answer: each value of the setting is a column in `tables`, and a place on an
axis in `pictures`.  Both use the same words for what the races share.
"""

import dataclasses
import typing

from .wording import added
from .wording import count
from .wording import duration
from .wording import size


@dataclasses.dataclass(frozen=True)
class Question:
    #: The name of its pictures.
    name: str
    words: str
    workload: str
    #: The setting along the axis, or None; and the label of the axis.
    setting: str | None
    along: str
    #: The label of the other axis, with the unit.
    up: str
    #: Figures by their titles; the title of a single one is empty.
    figures: dict
    #: Figures are multiplied by this, to get that unit.
    scale: float = 1
    #: Called with a value of the setting: the text for it.
    put: typing.Callable = str


#: Only campaigns have this setting.
_PINNED = {
    'same': 'server and clients on the same processor',
    'across': 'server and clients on different processors',
}
_ACCESS = {'get': 'by Connection.get', 'ghosts': 'by a walk over ghosts'}

#: The text for each setting that a reader has to know, in this order.
_SETTINGS = {
    'shared': lambda shared: (
        'one shared tree' if shared else 'one tree a thread'),
    'committers': lambda number: f'{number} threads commit',
    'threads': lambda number: count(number, 'thread'),
    'clients': lambda number: count(number, 'client'),
    'connections': lambda number: count(number, 'connection'),
    'access': _ACCESS.get,
    'objects': lambda number: f'{count(number, "object")} a transaction',
    'loop': str,
    'socket': lambda is_unix: 'over a unix socket' if is_unix else 'over TCP',
    'pin': _PINNED.get,
    'sync_latency': added,
    'seconds': lambda seconds: f'{duration(seconds)} a sample',
    # Older results may have this instead.
    'transactions': lambda number: (
        f'{count(number, "transaction")} a sample'),
}


def conditions(settings):
    """The text for these settings, which some races share."""
    return ', '.join(filter(None, (
        put(settings[name]) for name, put in _SETTINGS.items()
        if name in settings)))


TIMES = {
    'the median': 'p50_seconds',
    '99 of 100 are faster': 'p99_seconds',
    'the slowest': 'max_seconds',
}
READS = 'cold', 'hot', 'steamin', 'prefetch'
BLOBS = {
    'cold: the blob cache is empty': 'cold',
    'cached: the file is in the blob cache': 'cached',
    'direct: the file is where the storage has it': 'direct',
}

SYNCS = Question(
    'syncs', 'How long does it take to write 1000 bytes and sync?', 'sync',
    None, '', 'milliseconds', TIMES, 1e3)

COMMITS = Question(
    'commits', 'How many commits a second?', 'commits',
    'threads', 'threads that commit', 'commits a second',
    {'': 'txn_per_second'})

QUESTIONS = (
    SYNCS, COMMITS,
    Question(
        'zeo-commits', 'How many commits a second, over ZEO?', 'write',
        'clients', 'client processes', 'commits a second',
        {'': 'txn_per_second'}),
    Question(
        'zeo-reads', 'How many objects can be read a second?', 'read',
        'clients', 'client processes', 'objects a second, all clients',
        {how: f'{how}_per_second' for how in READS}),
    Question(
        'blob-reads', 'How many blobs can be read a second?', 'blob-read',
        'size', 'size of a blob', 'blobs a second, all clients',
        {title: f'{how}_per_second' for title, how in BLOBS.items()},
        put=size),
    Question(
        'blob-writes', 'How many blobs can be written a second?',
        'blob-write', 'size', 'size of a blob', 'blobs a second, all clients',
        {'': 'write_per_second'}, put=size),
)
