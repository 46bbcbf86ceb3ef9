"""Room in etcd: compacts what was removed, and shrinks full databases.

A compaction leaves free pages in the database file of a member, which keeps
its size.  Once the file has reached the quota, free pages do not help: each
member has to write a smaller file (defragment).
"""

import logging
import time
from collections.abc import Callable
from collections.abc import Iterable

from ..log.interface import Full
from ..log.interface import Unanswered
from . import messages
from .cluster import Cluster
from .keys import Keys
from .trouble import Said
from .trouble import Trouble

logger = logging.getLogger(__name__)

#: Seconds for a member to write its database anew, seconds until the next try,
#: and the number of tries.
DEFRAGMENTING, BETWEEN_TRIES, TRIES = 60.0, 1.0, 3


class Room:

    def __init__(self, cluster: Cluster, keys: Keys) -> None:
        self._cluster = cluster
        self._keys = keys
        self._may_compact = True

    def compact(self) -> None:
        now = self._cluster.ask(
            messages.pairs_of(self._keys.head, 1), messages.revision)
        asked = self._cluster.begin(messages.compaction(now))
        try:
            asked.answer()
        except Trouble as error:
            if isinstance(error, Said) and error.about('permission denied'):
                self._may_not_compact(error)
            # (That error: nothing has changed since the last compaction.)
            elif not (isinstance(error, Said)
                      and error.about('has been compacted')):
                raise self._cluster.failed(asked.member, error) from error

    def _may_not_compact(self, error: Said) -> None:
        if self._may_compact:
            self._may_compact = False
            logger.warning(
                'etcd: this user may not compact (%s): without'
                ' --auto-compaction-mode=periodic'
                ' --auto-compaction-retention=1h each member will be full'
                ' one day', error)

    def make(self, is_there_any: Callable[[], bool]) -> bool:
        """Do what `etcdctl defrag` and `etcdctl alarm disarm` do.

        While a member defragments, it answers nobody.  But while one member
        has no room, none of them takes anything in any case.
        """
        full = self._cluster.ask(messages.ALARMS, messages.full_members)
        if not full:
            return False
        words = ''
        for _ in range(TRIES):
            self.compact()
            words = self._shrink(full)
            if is_there_any():
                return True
            # An earlier compaction may still be under way.
            self._cluster.pause(BETWEEN_TRIES)
        raise Full(
            'the log needs all the room that etcd has. Raise'
            f' --quota-backend-bytes of each member{words}')

    def _shrink(self, full: Iterable[int]) -> str:
        """Defragment each member in turn; return what went wrong."""
        words = ''
        for member in self._cluster.members:
            try:
                member.ask(messages.DEFRAGMENTATION,
                           time.monotonic() + DEFRAGMENTING)
            except Trouble as error:
                words += f'; {member} does not defragment: {error}'
        try:
            for id in full:
                self._cluster.ask(messages.room_for(id), messages.revision)
        except Unanswered as error:
            words += f'; the alarm is not taken back: {error}'
        return words
