"""The packs of the other nodes: the node that leads swaps when they have their
files, too.

Without its file, a node that meets the swap comes no further before it has
packed, and the log must keep what it needs.  So each note has a pulse, which
changes as long as its node's pack gets on, and then a *part*: size and
checksum of the new file up to the end that was announced.  A node whose part
is another one has other data, and would be refused at the swap: then nobody
swaps.

A node that says nothing, or whose pack does not get on, is waited for no
longer than PATIENCE.
"""

import logging
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping

from ZODB.FileStorage.FileStorage import FileStorageError

from ..history.record import IDENTITY
from ..log.notes import shown
from .presence import Heard

logger = logging.getLogger(__name__)

#: Seconds.
PATIENCE = 60.0


def waiting(heard: Callable[[], Mapping[bytes, Heard]],
            part: bytes) -> Iterator[None]:
    """As long as another node is to be waited for; `part` is that of this
    node.  Raise FileStorageError if another one has packed otherwise."""
    #: The last pulse of each node, and when it was new.
    pulses: dict[bytes, tuple[int, float]] = {}
    while True:
        now, is_waiting = time.monotonic(), False
        for name, (note, since, is_new) in heard().items():
            pulse, found = note.health.pulse, note.health.part
            if found != part and found[:IDENTITY] == part[:IDENTITY]:
                raise _differs(name)
            if name not in pulses or pulses[name][0] != pulse:
                pulses[name] = pulse, now
            is_waiting |= (
                found != part and is_new and now - since < PATIENCE
                and now - pulses[name][1] < PATIENCE)
        if not is_waiting:
            return
        yield


def _differs(name: bytes) -> FileStorageError:
    error = FileStorageError(
        f'the node {shown(name)} has packed its file to other bytes than this'
        ' node: one of the two has other data. The pack was given up, and'
        ' nothing was changed. fsync-check each of them; then make the one'
        ' that is damaged anew')
    logger.critical('%s', error)
    return error
