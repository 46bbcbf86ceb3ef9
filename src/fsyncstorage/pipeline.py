"""A commit's way: appended -> durable -> published.

A pure state machine: no file, no thread, no lock, no clock.  Whoever drives
it (the flusher) holds one mutex around every call.  It promises:

- commits become durable and are published in the order of the file, which is
  the order of their tids (I1);
- a commit that was promised durable is never published before it is (I4);
- after a failed sync nothing becomes durable and nothing is appended any more,
  and every commit that was not published has failed (I7).
"""

import collections
import itertools
import typing

from .errors import WritingStopped

APPENDED = 'appended'
DURABLE = 'durable'
PUBLISHED = 'published'
FAILED = 'failed'


class Point(typing.NamedTuple):
    """A place between two transactions of the file."""

    end: int    # where the next transaction begins
    tid: bytes  # of the last transaction before it


class Commit:
    """One transaction between its append and its acknowledgement."""

    #: The status byte is written only after a sync of what it makes count.
    status_last = False
    #: What must be durable before that, too.
    blobs = None
    #: Called with the tid, in order, when it becomes visible.
    on_publish = None
    #: Called with (tid, error or None) when all is over.
    on_done = None
    #: No thread of its own waits for it.
    orphan = False
    state = None
    error = None

    def __init__(self, tid, start, end, status=b' ', promised=True):
        self.tid = tid
        self.start = start
        self.end = end
        self.point = Point(end, tid)
        #: The byte that makes it count.
        self.status = status
        #: Published only when durable.
        self.promised = promised
        #: Locks to release, one for each thread that waits for this commit.
        self.waiters = []

    @property
    def settled(self):
        return self.state in (PUBLISHED, FAILED)

    @property
    def needs_sync(self):
        return self.promised and self.state is APPENDED


class Pipeline:

    def __init__(self, start):
        self.appended = self.durable = self.published = start
        #: Why nothing is appended any more, in words.
        self.stopped = None
        #: A sync failed.
        self.failed = False
        self.queue = collections.deque()  # appended, not settled; file order
        # A set, not a number: what an interrupt breaks off is done again.
        self._needing_sync = set()
        self._newest = None

    # What is the state?

    @property
    def unsynced(self):
        return self.appended.end > self.durable.end

    @property
    def needing_sync(self):
        """How many."""
        return len(self._needing_sync)

    @property
    def visible(self):
        """What a reader may see: after a failure only what is durable (I7)."""
        if self.failed:
            return min(self.published, self.durable)
        return self.published

    def find(self, tid):
        """The commit of that tid, if it is not settled."""
        for commit in self.queue:
            if commit.tid == tid:
                return commit

    def refuse_when_stopped(self):
        if self.stopped is not None:
            raise WritingStopped(self.stopped)

    # What happens?

    def append(self, commit):
        """May be called again when an interrupt broke it off."""
        if self._newest is not commit:
            self.refuse_when_stopped()
            if (commit.start != self.appended.end
                    or commit.tid <= self.appended.tid):
                raise AssertionError(
                    f'commit {commit.point} does not follow {self.appended}')
            self._newest = commit
        self.appended = commit.point
        if commit.state is None:
            if not self.queue or self.queue[-1] is not commit:
                self.queue.append(commit)
            if commit.promised:
                self._needing_sync.add(commit)
            commit.state = APPENDED

    def next_batch(self, alone, data_first=False):
        """The point to sync to, and the commits that it makes durable.

        `data_first`: what is not durable yet before the first blobs is a
        batch of its own.  It may be acknowledged already, and shall not wait
        for them; what is behind them is not acknowledged before they are.
        """
        batch, before = [], self.published
        for commit in self.queue:
            if commit.state is APPENDED:
                if data_first and commit.blobs is not None:
                    if before.end > self.durable.end:
                        return before, batch
                    data_first = False
                batch.append(commit)
                if alone:
                    return commit.point, batch
            before = commit.point
        return self.appended, batch

    def synced(self, point):
        """Everything up to `point` is durable."""
        if self.failed:
            return
        if point.end > self.durable.end:
            self.durable = point
        for commit in self.queue:
            if commit.end > point.end:
                break
            if commit.state is APPENDED:
                self._leave_appended(commit, DURABLE)

    def _leave_appended(self, commit, state):
        self._needing_sync.discard(commit)
        commit.state = state

    def next_to_publish(self):
        """The oldest commit, if it may be published now."""
        while self.queue:
            commit = self.queue[0]
            if not commit.promised or commit.state is DURABLE:
                return commit
            if not commit.settled:
                break
            self.queue.popleft()  # an interrupt broke off its publishing

    def publish(self, commit):
        if self.queue[0] is not commit:
            raise AssertionError(f'{commit.point} is not next to publish')
        if commit.state is APPENDED:
            self._leave_appended(commit, DURABLE)
        self.published = commit.point
        commit.state = PUBLISHED
        self.queue.popleft()

    def stop(self, reason):
        """Nothing is appended any more; what was appended goes on."""
        if self.stopped is None:
            self.stopped = reason

    def fail(self, reason, make_error):
        """A sync failed.  Return the commits that fail with it.

        The first that needed it, and all behind it.  (What needs no sync and
        stands before them is acknowledged as it was promised.)
        """
        self.stop(reason)
        self.failed = True
        lost = list(itertools.dropwhile(
            lambda commit: not commit.needs_sync, self.queue))
        for commit in lost:
            commit.error = make_error()
            if commit.state is APPENDED:
                self._leave_appended(commit, FAILED)
            self.queue.remove(commit)
        return lost

    def rebase(self, point):
        """The file was replaced (a pack): nothing may be under way."""
        if self.queue:
            raise AssertionError('a file is replaced while commits wait')
        self.appended = self.durable = self.published = point
