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
from collections.abc import Mapping

from ZODB.FileStorage.FileStorage import FileStorageError

from ..history.record import IDENTITY
from ..log.notes import shown
from .presence import Heard

logger = logging.getLogger(__name__)

#: Seconds.
PATIENCE = 60.0


class Others:

    def __init__(self, part: bytes) -> None:
        """`part` is that of this node."""
        self._part = part
        #: The last pulse of each node, and when it was new.
        self._pulses: dict[bytes, tuple[int, float]] = {}

    def is_waited_for(self, heard: Mapping[bytes, Heard]) -> bool:
        """FileStorageError: one has packed to other bytes."""
        now, found = time.monotonic(), False
        for name, (note, since, is_new) in heard.items():
            pulse, part = note.health.pulse, note.health.part
            if part != self._part and (
                    part[:IDENTITY] == self._part[:IDENTITY]):
                raise _differs(name)
            if self._pulses.get(name, (None,))[0] != pulse:
                self._pulses[name] = pulse, now
            found |= (part != self._part and is_new and now - since < PATIENCE
                      and now - self._pulses[name][1] < PATIENCE)
        return found


def _differs(name: bytes) -> FileStorageError:
    error = FileStorageError(
        f'the node {shown(name)} has packed its file to other bytes than this'
        ' node: one of the two has other data. The pack was given up, and'
        ' nothing was changed. fsync-check each of them; then make the one'
        ' that is damaged anew')
    logger.critical('%s', error)
    return error
