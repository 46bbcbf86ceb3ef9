"""The states of a commit: appended -> durable -> published.

A pure state machine: no file, no thread, no lock, no clock.  Its caller, the
sequencer, holds one mutex around every call.  It promises:

- commits become durable and are published in the order of the file, which is
  the order of their tids (I1);
- a commit that is *promised* is never published before it is durable (I4);
- after a failed sync nothing becomes durable and nothing is appended any more;
  the first commit that needed the sync, and all commits behind it, fail (I7).
"""

import collections
import itertools
import operator
import typing
from collections.abc import Callable

from ..errors import WritingStopped
from .wakeable import Sleeper

APPENDED = 'appended'
DURABLE = 'durable'
PUBLISHED = 'published'
FAILED = 'failed'
SETTLED = PUBLISHED, FAILED


class Point(typing.Protocol):
    """The gap between two transactions of the file.

    The points of the storage are views of the file: each is what readers see
    when that point is published.
    """

    end: int    # where the next transaction begins
    tid: bytes  # of the last transaction before it


class Commit:
    """One transaction between its append and its acknowledgement."""

    __slots__ = ('tid', 'start', 'end', 'point', 'status', 'promised',
                 'status_last', 'blobs', 'in_log', 'on_publish',
                 'on_done', 'told', 'orphan', 'state', 'error',
                 'sleepers')

    def __init__(self, start: int, point: Point, status: bytes = b' ',
                 promised: bool = True) -> None:
        self.start = start
        #: Where it ends.
        self.point = point
        self.end = point.end
        self.tid = point.tid
        #: The status byte, which makes the transaction count.
        self.status = status
        #: Published only when durable.
        self.promised = promised
        #: The status byte is written only after a sync of the transaction.
        self.status_last = False
        #: The blobs that must be durable before that, too.
        self.blobs: typing.Any = None
        #: What a log has of these blobs (commit.replica).
        self.in_log: typing.Any = None
        #: Called with the tid, in order, just before readers see the commit.
        self.on_publish: Callable[[bytes], object] | None = None
        #: Called with (tid, error or None) when the commit is settled.
        self.on_done: (
            Callable[[bytes, BaseException | None], object] | None) = None
        #: That was called.
        self.told = False
        #: No thread waits for this commit.
        self.orphan = False
        self.state = APPENDED
        self.error: Exception | None = None
        #: The threads that wait for this commit.
        self.sleepers: list[Sleeper] = []

    def wake(self) -> None:
        """Let all threads that wait for it look at it again."""
        for sleeper in self.sleepers:
            sleeper.wake()

    @property
    def needs_sync(self) -> bool:
        return self.promised and self.state is APPENDED


class Pipeline:

    def __init__(self, start: Point) -> None:
        self.appended = self.durable = self.published = start
        #: Why nothing is appended any more, in words.
        self.stopped: str | None = None
        #: A sync failed.
        self.failed = False
        # Commits that are appended and not settled, in the order of the file.
        self.queue: collections.deque[Commit] = collections.deque()
        #: How many of them need a sync; more, after an interrupt.
        self.needing_sync = 0
        #: Commits that are settled, and whose `on_done` was not called yet.
        self.untold: collections.deque[Commit] = collections.deque()

    # The state

    @property
    def unsynced(self) -> bool:
        return self.appended.end > self.durable.end

    @property
    def visible(self) -> Point:
        """Up to where readers may see: only what is durable, after a failed
        sync."""
        if self.failed:
            return min(self.published, self.durable,
                       key=operator.attrgetter('end'))
        return self.published

    def stats(self) -> dict[str, object]:
        return {
            'last_appended': self.appended.tid,
            'last_durable': self.durable.tid,
            'last_published': self.published.tid,
            'waiting': len(self.queue),
            'failed': self.failed,
            'writing_stopped': self.stopped,
        }

    def refuse_when_stopped(self) -> None:
        if self.stopped is not None:
            raise WritingStopped(self.stopped)

    # Its changes

    def append(self, commit: Commit) -> None:
        if self.stopped is not None:
            self.refuse_when_stopped()
        before = self.appended
        if commit.start != before.end or commit.tid <= before.tid:
            raise AssertionError(
                f'commit {commit.tid.hex()}, at {commit.start}, does not'
                f' follow {before.tid.hex()}, which ends at {before.end}')
        self.appended = commit.point
        self.needing_sync += commit.promised
        self.queue.append(commit)

    def next_batch(self, single: bool, data_first: bool = False
                   ) -> tuple[Point, list[Commit]]:
        """The point to sync to, and the commits that this sync makes durable.

        `single`: the batch has one commit only.

        `data_first`: the commits before the first one with blobs are a batch
        of their own.  They may be acknowledged already, so their sync should
        not wait for blobs.  The commits behind are acknowledged only after the
        blobs are durable.
        """
        batch: list[Commit] = []
        before = self.published
        for commit in self.queue:
            if commit.state is APPENDED:
                if data_first and commit.blobs is not None:
                    if before.end > self.durable.end:
                        return before, batch
                    data_first = False
                batch.append(commit)
                if single:
                    return commit.point, batch
            before = commit.point
        return self.appended, batch

    def synced(self, point: Point) -> None:
        """Everything up to `point` is durable."""
        if self.failed:
            return
        if point.end > self.durable.end:
            self.durable = point
        for commit in self.queue:
            if commit.end > point.end:
                break
            if commit.state is APPENDED:
                commit.state = DURABLE
                self.needing_sync -= commit.promised

    def next_to_publish(self) -> Commit | None:
        """The oldest commit in the queue, if it may be published now."""
        while self.queue:
            commit = self.queue[0]
            if commit.state not in SETTLED:
                if not commit.promised or commit.state is DURABLE:
                    return commit
                break
            self.queue.popleft()  # an interrupt came before that
        return None

    def publish(self, commit: Commit) -> None:
        if self.queue[0] is not commit:
            raise AssertionError(f'{commit.tid.hex()} is not next to publish')
        if commit.on_done is not None:
            self.untold.append(commit)
        self.published = commit.point
        commit.state = PUBLISHED
        self.queue.popleft()

    def stop(self, reason: str) -> None:
        """Refuse to append.  Commits that were appended go on."""
        if self.stopped is None:
            self.stopped = reason

    def fail(self, reason: str,
             make_error: Callable[[], Exception]) -> None:
        """A sync failed, and so do the first commit that needed it, and all
        behind that.

        (Commits before it need no sync, and are acknowledged as promised.)
        """
        self.stop(reason)
        self.failed = True
        lost = list(itertools.dropwhile(
            lambda commit: not commit.needs_sync, self.queue))
        self.untold += [each for each in lost if each.on_done is not None]
        for commit in reversed(lost):
            commit.error = make_error()
            commit.state = FAILED
            self.queue.pop()
        self.needing_sync = 0

    def rebase(self, point: Point) -> None:
        """A pack replaced the file.  No commit may be under way."""
        if self.queue:
            raise AssertionError('a file is replaced while commits wait')
        self.appended = self.durable = self.published = point
