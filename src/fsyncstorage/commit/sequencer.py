"""The sequencer: appended -> durable -> published -> told, in this order.

A committer calls `append` and then `settle`, which is the recipe of a group
commit; its steps follow in this module.  One *leader* at a time syncs, for all
threads that wait:

- A thread that waits for its commit leads if no other thread does.  So a lone
  committer syncs for itself, without a hand-over (I9).
- A leader that has synced passes the leadership to a thread that still waits,
  and then publishes, while the next sync runs.
- The sequencer's own thread, the flusher, leads when no committer does: for an
  asynchronous finish, for a committer that was interrupted, and for the
  background sync of `interval`.

*Publishing* calls the `f(tid)` of each commit, in tid order, and after each
call lets readers see the commit (I5).  During this the *gate* is closed: a
reader that asks for the current state waits until publishing has ended; one
that reads as of a tid that is shown does not ask here at all.  Any thread that
finds something to publish publishes it, even for other threads.  An event loop
that must publish itself takes this over (`owned_by`): it is notified, and
calls `publish` in its own thread.

`f` is called once, except when an interrupt (KeyboardInterrupt) ends it early:
then it is called again.  A second invalidation is harmless, a missing one is
not.

State and its owner: the pipeline, the leadership and the waiters belong to
`mutex`.  It is a leaf: nothing is called, waited for, read or written while it
is held.  `_one_sync` is held around a sync and the note of its outcome: if two
syncs ran at once, only one would be told that the disk failed.  `_gate` is
held while `f` runs; threads that wait for it hold no other lock of the
storage.  So `f` may read, but must not finish another transaction of the same
storage: it would wait for itself.

An interrupt may come between any two lines.  Every step can be repeated after
it: a waiter that is woken too early waits again, and the flusher does the work
that was left undone (I10).

Left to others: what a sync does (`sync`), and how readers come to see a
transaction (`show`).
"""

import collections
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from ..errors import SyncFailed
from ..histogram import Histogram
from .exposure import Exposure
from .pipeline import PUBLISHED
from .pipeline import Commit
from .pipeline import Pipeline
from .pipeline import Point
from .policies import Company
from .policies import Durability
from .replica import NotReplicated
from .wakeable import WakeableThread
from .wakeable import let_go
from .wakeable import taken_lock

logger = logging.getLogger(__name__)

SLOW_SYNC = 1.0
CHECK_DISK = 'check the disk, then open the storage again'

# Stands for the flusher as the leader.
FLUSHER = object()


class Sequencer:

    def __init__(self, name: str, start: Point, durability: Durability,
                 sync: Callable[[Point, list[Commit]], object],
                 show: Callable[[Any], object],
                 tidy: Callable[[], object]) -> None:
        self._name = name
        self._policy = durability.policy
        self._sync = sync    # syncs up to a point, with a batch of commits
        self._show = show    # lets readers see up to a point of the file
        self._tidy = tidy    # the flusher calls it each time it wakes
        self.mutex = threading.Lock()
        self.pipeline = Pipeline(start)
        self.latency = Histogram()
        self.commits = self.committed_bytes = self.syncs = 0

        self._leader: object = None  # a waiter's lock, or FLUSHER
        self._company = Company(durability.group_commit_delay)
        # The lock with which a leader waits for company; None: none waits.
        self._gathering: threading.Lock | None = None
        self._one_sync = threading.Lock()
        self._broken: Exception | None = None  # the error of a sync
        self._exposure = Exposure(durability.sync_interval)

        self._gate = threading.RLock()  # `f` may ask for the current state
        #: Is the gate closed?
        self.publishing = False
        self._notify: Callable[[], object] | None = None
        # Settled commits whose `on_done` was not called yet.
        self._untold: collections.deque[Commit] = collections.deque()

        self._abandoned = False    # a committer was interrupted
        #: The storage starts it, unless it is read-only, and closes it when
        #: all is drained.  A finaliser may wake it, to tidy up.
        self.flusher = WakeableThread(
            f'flusher of {name}', self._work_of_flusher,
            self._until_background_sync)

    # Appended

    def append(self, commit: Commit) -> None:
        """The transaction is in the file: put it into the pipeline."""
        with self.mutex:
            if self._policy.background:
                self._note_age(commit)
            self.pipeline.append(commit)
            self.commits += 1
            self.committed_bytes += commit.end - commit.start
            if commit.orphan and commit.promised and self._leader is None:
                self._elect()
            if self._gathering is not None:
                self._welcome(self._gathering)

    def _note_age(self, commit: Commit) -> None:
        if self._exposure.since is None:
            self.flusher.wake()
        if self._exposure.appended(time.monotonic()):
            commit.promised = True

    # The recipe

    def settle(self, commit: Commit) -> None:
        """Return when the commit, which was appended, is settled.

        1. Wait until others have settled it, or this thread leads.
        2. Wait for company, if that saves time.
        3. Sync all that is appended by now.
        4. Note the outcome; pass the leadership on.
        5. Publish what is durable: call each `f`, and show it to readers.
        6. Wake the threads that wait for a commit, and call each `on_done`.

        Any number of threads may wait for one commit.
        """
        me = taken_lock()
        try:
            while (commit.state is not PUBLISHED
                   and self._wait_to_lead(commit, me)):
                self._lead_a_batch(me)
        except BaseException:
            self.abandon(commit, me)
            raise

    def _lead_a_batch(self, me: object) -> None:
        if self._policy.gathers:
            self._gather()
        self._sync_a_batch(self._policy.alone, me)
        self.offer()

    # 1. Wait

    def _wait_to_lead(self, commit: Commit, me: threading.Lock) -> bool:
        """Wait; return true if this thread leads, false if it is settled.

        A thread whose commit is settled is not elected any more, so the last
        check needs no mutex.
        """
        while True:
            with self.mutex:
                if self._leader is None and commit.needs_sync:
                    self._leader = me
                    return True
                if commit.settled:
                    if self._leader is me:  # not needed any more: pass it on
                        self._elect()
                    return False
                if self._leader is me:
                    return True
                commit.waiters.append(me)
            me.acquire()
            if commit.settled and self._leader is not me:
                return False

    def abandon(self, commit: Commit,
                me: 'threading.Lock | None' = None) -> None:
        """The committer was interrupted: the flusher takes over its work."""
        with self.mutex:
            with contextlib.suppress(ValueError):
                commit.waiters.remove(me)
            if self._leader is me:
                self._leader = None
            commit.orphan = True
            self._abandoned = True
            if self._leader is None:
                self._elect()
        self.flusher.wake()

    # 2. Wait for company

    def _gather(self) -> None:
        patience = self._company.patience(len(self.pipeline.needing_sync))
        if not patience:
            return
        gathering = taken_lock()
        with self.mutex:
            self._gathering = gathering
            self._welcome(gathering)  # all may have come by now
        gathering.acquire(timeout=patience)
        with self.mutex:
            self._gathering = None

    def _welcome(self, gathering: threading.Lock) -> None:
        """Let a leader that waits for company go on, if all have come."""
        if self._company.complete(len(self.pipeline.needing_sync)):
            let_go(gathering)
            self._gathering = None

    # 3. Sync

    def _sync_a_batch(self, alone: bool, leader: object = None) -> None:
        """Sync a batch, note the outcome, pass the leadership on."""
        with self._one_sync:
            if self._broken is None:
                point, batch, uncovered_since = self._next_batch(alone)
                begun = time.monotonic()
                try:
                    self._sync(point, batch)
                except Exception as error:
                    # Note it before anything else: else a failed sync would be
                    # tried again, and succeed (I7).
                    # (The traceback would keep the file open.)
                    self._broken = error.with_traceback(None)
                except BaseException:
                    self._exposure.sync_broken_off(uncovered_since)
                    raise
                else:
                    self._note(
                        point, len(batch), time.monotonic() - begun, leader)
            if self._broken is not None:
                self._fail(self._broken)
                self._step_down(leader)

    def _next_batch(self,
                    alone: bool) -> tuple[Point, list[Commit], float | None]:
        with self.mutex:
            point, batch = self.pipeline.next_batch(
                alone, data_first=self._policy.background)
            return point, batch, self._exposure.sync_begins(
                point is self.pipeline.appended)

    # 4. Note the outcome, pass the leadership on

    def _note(self, point: Point, served: int, seconds: float,
              leader: object) -> None:
        with self.mutex:
            self.pipeline.synced(point)
            if self._policy.background:
                self._exposure.synced(not self.pipeline.unsynced)
            self.syncs += 1
            self.latency.add(seconds)
            self._company.synced(
                served, len(self.pipeline.needing_sync), seconds)
            if self._leader is leader is not None:
                self._elect()
        if seconds >= SLOW_SYNC:
            logger.warning(
                '%s: a sync took %.1f s; %s is slow or overloaded',
                self._name, seconds,
                'the log or the disk' if self._policy.replicated
                else 'the disk')

    def _fail(self, error: Exception) -> None:
        """A sync failed: that is final for what is not durable (I7)."""
        why, remedy = f'a sync failed ({error})', CHECK_DISK
        if isinstance(error, NotReplicated):
            why, remedy = str(error), error.remedy
        reason = self._because(why, remedy)
        first = not self.pipeline.failed
        with self.mutex:
            for commit in self.pipeline.queue:
                self._wake_waiters(commit)
            lost = self.pipeline.fail(reason, lambda: SyncFailed(
                f'{self._name}: {why}: whether this transaction was kept is'
                ' known when the storage is opened again'))
            self._untold += [each for each in lost if each.on_done is not None]
        if first:
            logger.critical(reason)

    def _because(self, reason: str, remedy: str = CHECK_DISK) -> str:
        return f'{self._name}: writing stopped because {reason}; {remedy}'

    def _elect(self) -> None:
        """Give the leadership to a thread that needs a sync.  Mutex held."""
        self._leader = None
        if self.pipeline.needing_sync:
            self._elect_one_of(
                [each for each in self.pipeline.queue if each.needs_sync])
        if self._leader is None and self._policy.background:
            self.flusher.wake()  # it may be waiting to lead

    def _elect_one_of(self, commits: list[Commit]) -> None:
        for commit in commits:
            if commit.waiters:
                # Wake it first: an interrupt must not leave a leader asleep.
                let_go(commit.waiters[0])
                self._leader = commit.waiters[0]
                del commit.waiters[0]
                return
        if any(commit.orphan for commit in commits):
            self._leader = FLUSHER
            self.flusher.wake()

    def _step_down(self, leader: object) -> None:
        with self.mutex:
            if self._leader is leader is not None:
                self._elect()

    # 5. Publish

    def owned_by(self, notify: Callable[[], object] | None) -> None:
        """From now on only call `notify()`, whose owner publishes; None: no
        longer."""
        self._notify = notify

    @property
    def owned(self) -> bool:
        return self._notify is not None

    def offer(self) -> None:
        """There may be something to publish: publish it, or notify the owner.
        """
        (self._notify or self.publish)()

    def publish(self) -> None:
        """Publish all that may be published, and call each `on_done`."""
        try:
            with self._gate:
                if not self.publishing:  # else this call comes from an `f`
                    try:
                        self._publish_all()
                    finally:  # again: an interrupt may have come before
                        self.publishing = False
        finally:
            if self._untold and not self.publishing:
                self._tell_all()

    def _publish_all(self) -> None:
        try:
            self.publishing = True
            with self.mutex:
                commit = self.pipeline.next_to_publish()
            while commit is not None:
                if commit.on_publish is not None:
                    self._announce(commit, commit.on_publish)
                self._show(commit.point)
                commit = self._published(commit)
            if self.pipeline.failed:
                # From now on readers see only what is durable.
                self._show(self.pipeline.visible)
        finally:
            self.publishing = False

    def _announce(self, commit: Commit,
                  on_publish: Callable[[bytes], object]) -> None:
        try:
            on_publish(commit.tid)
        except Exception as error:
            # The commit goes on all the same; its committer gets the error.
            commit.error = error
        commit.on_publish = None

    def pass_gate(self) -> None:
        """Wait while another thread is publishing something."""
        with self._gate:
            pass

    # 6. Wake and tell

    def _published(self, commit: Commit) -> Commit | None:
        """The commit is published; return the next one."""
        with self.mutex:
            if commit.waiters:
                self._wake_waiters(commit)
            self.pipeline.publish(commit)
            if commit.on_done is not None:
                self._untold.append(commit)
            return self.pipeline.next_to_publish()

    def _wake_waiters(self, commit: Commit) -> None:
        """Mutex held: when it is free, the threads look at the commit."""
        while commit.waiters:
            let_go(commit.waiters[-1])
            commit.waiters.pop()

    def _tell_all(self) -> None:
        """Call `on_done` of all settled commits.  No lock is held."""
        while self._untold:
            with contextlib.suppress(IndexError):  # another thread took it
                self._tell(self._untold.popleft())

    def _tell(self, commit: Commit) -> None:
        assert commit.on_done is not None
        try:
            commit.on_done(commit.tid, commit.error)
        except Exception:
            logger.exception('%s: a finished transaction could not be'
                             ' reported', self._name)

    # Waiting for others

    def drain(self) -> None:
        """Wait until every commit that is appended by now is settled."""
        with self.mutex:
            last = self.pipeline.queue[-1] if self.pipeline.queue else None
        if last is not None:  # they are settled in order
            self.settle(last)

    def wait_for(self, tid: bytes) -> None:
        """Wait until the transaction of this tid is settled."""
        with self.mutex:
            commit = self.pipeline.find(tid)
        if commit is not None:
            self.settle(commit)

    def sync_to(self, position: int) -> None:
        """Make everything before the position durable, whatever the policy.

        Other commits go on.  Raises WritingStopped if the sync fails.
        """
        position = min(position, self.appended.end)
        while True:
            with self.mutex:
                if self.pipeline.durable.end >= position:
                    return
                self.pipeline.refuse_when_stopped()
            self._sync_a_batch(alone=False)
            self.offer()

    def sync_again(self) -> None:
        """Sync once, also if everything is durable: what was cut off the file
        may not be."""
        self._sync_a_batch(alone=False)
        self.offer()

    # The flusher

    def _work_of_flusher(self) -> None:
        try:
            self._tidy()
            if self._is_flushers_turn():
                self._lead_a_batch(FLUSHER)
            if self._abandoned:
                self._abandoned = False
                self.offer()
        finally:
            self._step_down(FLUSHER)

    def _until_background_sync(self) -> float | None:
        """Seconds until the background sync; None: until it is woken."""
        with self.mutex:
            if not self._policy.background or self.pipeline.failed:
                return None
            due = self._exposure.due
            if due is None or self._leader is not None:
                return None
        return max(0.0, due - time.monotonic())

    def _is_flushers_turn(self) -> bool:
        due = self._until_background_sync()
        with self.mutex:
            if due == 0.0 and self._leader is None:
                self._leader = FLUSHER
            return self._leader is FLUSHER

    # The state

    def stop_writing(self, reason: str, remedy: str = CHECK_DISK) -> None:
        """Refuse to append.  Commits that were appended go on."""
        reason = self._because(reason, remedy)
        with self.mutex:
            self.pipeline.stop(reason)
        logger.critical(reason)

    @property
    def appended(self) -> Point:
        return self.pipeline.appended

    @property
    def durable(self) -> Point:
        return self.pipeline.durable

    def rebase(self, point: Point) -> None:
        """A pack replaced the file; nothing is under way."""
        with self._one_sync, self.mutex:
            self.pipeline.rebase(point)
