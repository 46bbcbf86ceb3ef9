"""How fast blobs are staged: slowly, while a member is behind.

A member that was away for some seconds is sent a snapshot, and for half a
minute from then on etcd's leader keeps all new entries in memory, also when
the member is no longer behind.  At full speed those would be a gigabyte.
"""

import logging
import threading
import time

from .cluster import Cluster
from .messages import Status

logger = logging.getLogger(__name__)

#: Entries of etcd's log; bytes a second, of all votes together.
MOST_BEHIND, RATE = 50, 5 << 20
#: Seconds from one look at the members to the next, and for the answer of one.
LOOK_EVERY, SOON = 1.0, 0.2
#: For so many seconds it stays slow.
AFTERWARDS = 30.0


class Pace:

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._due = self._slow_until = 0.0
        #: Votes wait one after the other.
        self._lock = threading.Lock()

    def keep(self, size: int) -> None:
        """Call it behind each chunk, which has so many bytes."""
        with self._lock:
            if time.monotonic() >= self._due:
                if self._is_one_behind():
                    self._say_if_new()
                    self._slow_until = time.monotonic() + AFTERWARDS
                self._due = time.monotonic() + LOOK_EVERY
            if time.monotonic() < self._slow_until:
                self._cluster.pause(size / RATE)

    def _say_if_new(self) -> None:
        if time.monotonic() >= self._slow_until:
            logger.warning(
                'etcd: a member is behind the others. While it is, and for'
                ' %.0f s after that, blobs get into the log at %d MB/s',
                AFTERWARDS, RATE >> 20)

    def _is_one_behind(self) -> bool:
        """Of those that answer.  (One of another cluster would be behind for
        ever.)"""
        applied = [each.applied for each in self._cluster.statuses(
            SOON).values() if isinstance(each, Status)]
        return bool(applied) and max(applied) - min(applied) > MOST_BEHIND
