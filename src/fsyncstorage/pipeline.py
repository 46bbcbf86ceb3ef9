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

    __slots__ = ('tid', 'start', 'end', 'status', 'status_last', 'blobs',
                 'promised', 'on_publish', 'on_done', 'state', 'error',
                 'waiters', 'orphan')

    def __init__(self, tid, start, end, status=b' ', promised=True,
                 on_publish=None, on_done=None):
        self.tid = tid
        self.start = start
        self.end = end
        #: The byte that makes it count.
        self.status = status
        #: It is written only after a sync of what it makes count.
        self.status_last = False
        #: What must be durable before that, too.
        self.blobs = None
        #: Published only when durable.
        self.promised = promised
        #: Called once with the tid, in order, when it becomes visible.
        self.on_publish = on_publish
        #: Called with (tid, error or None) when all is over.
        self.on_done = on_done
        self.state = None
        self.error = None
        #: Locks to release, one for each thread that waits for this commit.
        self.waiters = []
        #: No thread of its own waits for it.
        self.orphan = on_done is not None

    @property
    def settled(self):
        return self.state in (PUBLISHED, FAILED)

    @property
    def needs_sync(self):
        return self.promised and self.state is APPENDED

    @property
    def point(self):
        return Point(self.end, self.tid)


class Pipeline:

    def __init__(self, start):
        self.appended = self.durable = self.published = start
        #: Why nothing is appended any more, in words.
        self.stopped = None
        #: A sync failed.
        self.failed = False
        self.queue = collections.deque()  # appended, not settled; file order

    # What is the state?

    @property
    def unsynced(self):
        return self.appended.end > self.durable.end

    @property
    def visible(self):
        """What a reader may see: after a failure only what is durable (I7)."""
        if self.failed:
            return min(self.published, self.durable)
        return self.published

    def waiting(self):
        """The number of commits that are not durable and must be."""
        return sum(commit.needs_sync for commit in self.queue)

    def find(self, tid):
        """The commit of that tid, if it is not settled."""
        for commit in self.queue:
            if commit.tid == tid:
                return commit

    # What happens?

    def refuse_when_stopped(self):
        if self.stopped is not None:
            raise WritingStopped(self.stopped)

    def append(self, commit):
        self.refuse_when_stopped()
        if commit.start != self.appended.end or commit.tid <= self.appended.tid:
            raise AssertionError(
                f'commit {commit.point} does not follow {self.appended}')
        commit.state = APPENDED
        self.queue.append(commit)
        self.appended = commit.point

    def next_batch(self, alone):
        """The point to sync to, and the commits that it makes durable."""
        batch = [commit for commit in self.queue if commit.state is APPENDED]
        if alone and batch:
            batch = batch[:1]
            return batch[0].point, batch
        return self.appended, batch

    def synced(self, point):
        """Everything up to `point` is durable."""
        if self.failed or point.end <= self.durable.end:
            return
        self.durable = point
        for commit in self.queue:
            if commit.end > point.end:
                break
            commit.state = DURABLE

    def next_to_publish(self):
        """The oldest commit, if it may be published now."""
        if self.queue:
            commit = self.queue[0]
            if commit.state is DURABLE or not commit.promised:
                return commit

    def publish(self, commit):
        if self.next_to_publish() is not commit:
            raise AssertionError(f'{commit.point} is not next to publish')
        self.queue.popleft()
        self.published = commit.point
        commit.state = PUBLISHED

    def stop(self, reason):
        """Nothing is appended any more; what was appended goes on."""
        if self.stopped is None:
            self.stopped = reason

    def fail(self, reason, make_error):
        """A sync failed.  Return the commits that fail with it."""
        self.stop(reason)
        self.failed = True
        lost = [commit for commit in self.queue if commit.state is APPENDED]
        for commit in lost:
            commit.state = FAILED
            commit.error = make_error()
            self.queue.remove(commit)
        return lost

    def rebase(self, point):
        """The file was replaced (a pack): nothing may be under way."""
        if self.queue:
            raise AssertionError('a file is replaced while commits wait')
        self.appended = self.durable = self.published = point
