"""The packs of the other nodes: the node that leads swaps when they have their
files, too.

Without its file, a node that meets the swap comes no further before it has
packed, and the log must keep what it needs.  So each note has a pulse, which
changes as long as its node's pack gets on, and then a *part*: size and
checksum of the new file up to the end that was announced.

A node that has another part, or says that it cannot pack its file, has other
data, or packs in another way.  It would be refused at the swap, and until it
was made anew there would be a copy less.  A pack can wait, and a copy cannot.
So nobody swaps, and an operator looks first.

A node that says nothing, or whose pack does not get on, is waited for no
longer than PATIENCE.  It may be away for good, or have no room; the log says
that the pack went on without it.
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
        """FileStorageError: one has other data."""
        now, found = time.monotonic(), False
        for name, (note, since, is_new) in self._late(heard).items():
            pulse, part = note.health.pulse, note.health.part
            if part[:IDENTITY] == self._part[:IDENTITY]:
                raise _has_other_data(name)
            if self._pulses.get(name, (None,))[0] != pulse:
                self._pulses[name] = pulse, now
            found |= (is_new and now - since < PATIENCE
                      and now - self._pulses[name][1] < PATIENCE)
        return found

    def log_late(self, heard: Mapping[bytes, Heard]) -> None:
        """Nobody is waited for any more: say who has no file."""
        for name in self._late(heard):
            logger.warning(
                'a pack goes on without the node %s: it says nothing, or its'
                ' own pack does not get on. It packs later, and cannot take'
                ' over before', shown(name))

    def _late(self, heard: Mapping[bytes, Heard]) -> dict[bytes, Heard]:
        return {name: each for name, each in heard.items()
                if each.note.health.part != self._part}


def _has_other_data(name: bytes) -> FileStorageError:
    error = FileStorageError(
        f'the node {shown(name)} cannot pack its file (its log says why), or'
        ' has packed it to other bytes than this node: one of the two has'
        ' other data, or is of another release. The pack was given up, and'
        ' nothing was changed. fsync-check each of them; then make the one'
        ' that is damaged anew')
    logger.critical('%s', error)
    return error
