"""Records and identities for tests."""

import itertools

from fsyncstorage.quorum.history.record import Data
from fsyncstorage.quorum.history.record import Record
from fsyncstorage.quorum.history.record import pack

LOG = b'the log'.ljust(16)
OTHER = b'another log'.ljust(16)
#: The identity of a node.
SELF = b'this node'.ljust(16)
#: The file begins with the magic of a Data.fs.
MAGIC = b'FS30'


def identify(front):
    """Makes identities, as a writer wants them, always the same ones."""
    numbers = itertools.count()
    return lambda: f'{front} {next(numbers)}'.encode().ljust(16)


def following(state, body, position=None, **fields):
    """The bytes of a record that follows a state, but for these fields."""
    return pack(Record(**{
        'log': state.log, 'sequence': state.place.sequence + 1,
        'previous': state.place.link, 'epoch': state.epoch,
        'writer': state.writer, 'batch': b'batch'.ljust(16),
        'generation': state.generation,
        'position': state.next if position is None else position,
        'body': body, **fields}))


def data(state, content, end=None, blobs=()):
    """The next chunk of a batch: its last one, unless it ends later."""
    return Data(
        state.end, state.next + len(content) if end is None else end,
        blobs, content)


def settle(writer, tries=20):
    """Let it write what it has begun to."""
    for _ in range(tries):
        if writer.advance():
            return
    raise AssertionError('it takes too long')
