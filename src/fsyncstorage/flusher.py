"""Brings appended commits to the disk, and wakes each committer by itself.

One *leader* at a time syncs, for itself and for all that wait:

- A thread that waits for its commit leads when nobody does.  A lone committer
  therefore syncs for itself, without a hand-over (I9).
- A leader that has synced hands on to one of those that still wait, and then
  publishes: the next sync runs meanwhile.
- The flusher's own thread leads when a commit has no thread of its own: an
  asynchronous finish, a committer that was interrupted, or the background
  sync of `interval`.

State and its owner: the pipeline, the leadership and the waiters belong to
`mutex`.  It is a leaf: nothing is called, waited for, read or written while it
is held.  `_one_sync` is held around a sync and the note of its outcome: of two
syncs at once, only one would be told that the disk failed.

An interrupt (KeyboardInterrupt) may come between any two lines.  What it
leaves is such that it can be done again: a waiter that is woken for nothing
waits again, and the thread takes over what was left undone (I10).

Left to others: what a sync does (`sync`), what publishing does (`publish`).
"""

import collections
import contextlib
import logging
import threading
import time

from . import pipeline
from .durability import Company
from .errors import OutcomeUnknown
from .stats import Histogram

logger = logging.getLogger(__name__)

SLOW_SYNC = 1.0

# Who leads, when it is no committer.
THREAD = object()


class Flusher:

    def __init__(self, name, start, durability, sync, publish, tidy):
        self._name = name
        self._durability = durability
        self._policy = durability.policy
        self._sync = sync          # called with a batch of commits
        self._publish = publish    # called when something became publishable,
                                   # with this flusher
        self._tidy = tidy          # called in the thread after each wake
        self.mutex = threading.Lock()
        self.pipeline = pipeline.Pipeline(start)
        self.latency = Histogram()
        self.commits = self.syncs = 0

        self._one_sync = threading.Lock()
        self._broken = None        # the error of a sync
        self._leader = None
        self._company = Company(durability.group_commit_delay)
        self._gathering = None     # a lock: the leader waits for company
        # Settled; `on_done` is not called.
        self.untold: collections.deque[pipeline.Commit] = collections.deque()
        # When the oldest commit was appended that is not durable, and the
        # oldest that the running sync does not cover.
        self._unsynced_since = self._uncovered_since = None

        self._wake = threading.Lock()  # released to wake the thread
        self._wake.acquire()
        self._abandoned = False    # somebody went away in the middle
        self._closing = False
        self._thread = threading.Thread(
            target=self._run, daemon=True, name=f'flusher of {name}')
        self._thread.start()

    # Committers

    def append(self, commit):
        """The transaction is in the file: put it into the pipeline."""
        with self.mutex:
            if self._policy.background:
                self._note_age(commit)
            self.pipeline.append(commit)
            self.commits += 1
            if commit.orphan and commit.promised and self._leader is None:
                self._elect()
            if self._gathering is not None:
                self._welcome()

    def wait(self, commit):
        """Return when the commit, which was appended, is settled.

        The calling thread syncs when nobody else does.  Any number of threads
        may wait for one commit.
        """
        me = threading.Lock()
        me.acquire()
        try:
            while (commit.state is not pipeline.PUBLISHED
                   and self._attend(commit, me)):
                self._lead_a_batch(me)
        except BaseException:
            with self.mutex:
                with contextlib.suppress(ValueError):
                    commit.waiters.remove(me)
                if self._leader is me:
                    self._leader = None
            self.abandon(commit)
            raise

    def _attend(self, commit, me):
        """Wait until it is our turn to lead (true) or all is over (false).

        Nobody is elected for a commit that is settled: to see that, and that
        we were not elected before, needs no mutex.
        """
        while True:
            with self.mutex:
                if commit.settled:
                    if self._leader is me:  # elected too late to be of use
                        self._elect()
                    return False
                if self._leader is None and commit.needs_sync:
                    self._leader = me
                if self._leader is me:
                    return True
                commit.waiters.append(me)
            me.acquire()
            if commit.settled and self._leader is not me:
                return False

    def abandon(self, commit):
        """The committer goes away: the thread takes over all it leaves."""
        with self.mutex:
            commit.orphan = True
            self._abandoned = True
            if self._leader is None:
                self._elect()
        _release(self._wake)

    def _elect(self):
        """Give the leadership to somebody who needs a sync.  Mutex held."""
        self._leader = None
        if self.pipeline.needing_sync:
            self._elect_one_of(
                [each for each in self.pipeline.queue if each.needs_sync])
        if self._leader is None and self._policy.background:
            _release(self._wake)  # the thread may have waited for its turn

    def _elect_one_of(self, commits):
        for commit in commits:
            if commit.waiters:
                self._leader = commit.waiters.pop(0)
                _release(self._leader)
                return
        if any(commit.orphan for commit in commits):
            self._leader = THREAD
            _release(self._wake)

    def _step_down(self, leader):
        with self.mutex:
            if self._leader is leader is not None:
                self._elect()

    # Leading

    def _lead_a_batch(self, me):
        if self._policy.gathers:
            self._gather()
        self._sync_a_batch(self._policy.alone, me)
        self._publish(self)

    def _sync_a_batch(self, alone, leader=None):
        """Sync what is there, note the outcome, and hand on."""
        with self._one_sync:
            if self._broken is None:
                with self.mutex:
                    point, batch = self.pipeline.next_batch(
                        alone, data_first=self._policy.background)
                    uncovered = self._uncovered_since
                    if point == self.pipeline.appended:
                        self._uncovered_since = None
                begun = time.monotonic()
                try:
                    self._sync(batch)
                except Exception as error:
                    # Nothing may come before this: a failed sync that nobody
                    # noted would be tried again, and succeed (I7).
                    # (Its traceback would keep the file open.)
                    self._broken = error.with_traceback(None)
                except BaseException:
                    self._uncovered_since = uncovered
                    raise
                else:
                    self._note(
                        point, len(batch), time.monotonic() - begun, leader)
            if self._broken is not None:
                self._fail(self._broken)
                self._step_down(leader)

    def _note(self, point, served, seconds, leader):
        with self.mutex:
            self.pipeline.synced(point)
            if self.pipeline.unsynced:
                self._unsynced_since = self._uncovered_since
            else:
                self._unsynced_since = self._uncovered_since = None
            self.syncs += 1
            self.latency.add(seconds)
            self._company.synced(
                served, len(self.pipeline.needing_sync), seconds)
            if self._leader is leader is not None:
                self._elect()
        if seconds >= SLOW_SYNC:
            logger.warning(
                '%s: a sync took %.1f s; the disk is slow or overloaded',
                self._name, seconds)

    def _gather(self):
        """Wait for company, when that is worth it."""
        patience = self._company.patience(len(self.pipeline.needing_sync))
        if not patience:
            return
        gathering = threading.Lock()
        gathering.acquire()
        with self.mutex:
            self._gathering = gathering
            self._welcome()  # if they came by now
        gathering.acquire(timeout=patience)
        with self.mutex:
            self._gathering = None

    def _welcome(self):
        """Somebody joined: let a gathering leader go on if all are there."""
        if self._company.complete(len(self.pipeline.needing_sync)):
            _release(self._gathering)
            self._gathering = None

    def _fail(self, error):
        """A sync failed: final for everything that is not durable (I7)."""
        reason = self._because(f'a sync failed ({error})')
        first = not self.pipeline.failed
        with self.mutex:
            for commit in self.pipeline.queue:
                self._wake_waiters(commit)
            lost = self.pipeline.fail(reason, lambda: OutcomeUnknown(
                f'{self._name}: a sync failed ({error}): whether this'
                ' transaction was kept is known when the storage is opened'
                ' again'))
            self.untold += [each for each in lost if each.on_done is not None]
        if first:
            logger.critical(reason)

    def stop_writing(self, reason):
        """Append nothing any more; what was appended goes on."""
        reason = self._because(reason)
        with self.mutex:
            self.pipeline.stop(reason)
        logger.critical(reason)

    def _because(self, reason):
        return (f'{self._name}: writing stopped because {reason}; check the'
                ' disk, then open the storage again')

    # Settling

    def next_to_publish(self):
        with self.mutex:
            return self.pipeline.next_to_publish()

    def published(self, commit):
        """It is published; return the next one."""
        with self.mutex:
            if commit.waiters:
                self._wake_waiters(commit)
            self.pipeline.publish(commit)
            if commit.on_done is not None:
                self.untold.append(commit)
            return self.pipeline.next_to_publish()

    def _wake_waiters(self, commit):
        """Mutex held: they look at the commit when we are done with it."""
        while commit.waiters:
            _release(commit.waiters[-1])
            commit.waiters.pop()

    def tell(self):
        """Call what is to be called of settled commits; no lock is held."""
        while self.untold:
            with contextlib.suppress(IndexError):  # another thread was quicker
                self._tell(self.untold.popleft())

    def _tell(self, commit):
        try:
            commit.on_done(commit.tid, commit.error)
        except Exception:
            logger.exception('%s: a finished transaction could not be'
                             ' reported', self._name)

    def drain(self):
        """Return when every commit that was appended by now is settled."""
        with self.mutex:
            queue = self.pipeline.queue
            last = queue[-1] if queue else None
        if last is not None:  # they are settled in order
            self.wait(last)

    def wait_for(self, tid):
        """Return when the transaction of that tid is settled."""
        with self.mutex:
            commit = self.pipeline.find(tid)
        if commit is not None:
            self.wait(commit)

    def sync_to(self, position):
        """Make everything before the position durable, whatever the policy.

        Others go on.  Raises WritingStopped when it cannot be.
        """
        position = min(position, self.appended.end)
        while True:
            with self.mutex:
                if self.pipeline.durable.end >= position:
                    return
                self.pipeline.refuse_when_stopped()
            self._sync_a_batch(alone=False)
            self._publish(self)

    # The background

    def _note_age(self, commit):
        """`interval`: since when is something not durable?

        If that is longer than was promised, this commit, and all behind it,
        are acknowledged only when they are durable: never is more at stake
        than one interval of commits.
        """
        now = time.monotonic()
        if self._unsynced_since is None:
            self._unsynced_since = now
            _release(self._wake)
        elif now - self._unsynced_since > self._durability.sync_interval:
            commit.promised = True
        if self._uncovered_since is None:
            self._uncovered_since = now

    def _run(self):
        while not self._closing:
            seconds = self._until_background_sync()
            self._wake.acquire(timeout=-1 if seconds is None else seconds)
            try:
                self._tidy()
                if self._my_turn():
                    self._lead_a_batch(THREAD)
                if self._abandoned:
                    self._abandoned = False
                    self._publish(self)
            except BaseException:  # nobody to tell: keep serving the others
                logger.exception('%s: flusher', self._name)
            self._step_down(THREAD)

    def _until_background_sync(self):
        """Seconds until the background sync; None: until somebody calls.

        It begins when half of the interval is over, so that a sync of usual
        length ends in time, and nobody has to wait.
        """
        with self.mutex:
            if (not self._policy.background
                    or self._unsynced_since is None
                    or self._leader is not None
                    or self.pipeline.failed):
                return None
            due = self._unsynced_since + self._durability.sync_interval / 2
        return max(0.0, due - time.monotonic())

    def _my_turn(self):
        due = self._until_background_sync()
        with self.mutex:
            if due == 0.0 and self._leader is None:
                self._leader = THREAD
            return self._leader is THREAD

    def wake(self):
        """Let the thread tidy up; from anywhere, even from a finaliser."""
        _release(self._wake)

    def close(self):
        """Stop the thread.  Drain first."""
        self._closing = True
        _release(self._wake)
        if self._thread is not threading.current_thread():
            self._thread.join()

    # The state, for those who do not wait

    def refuse_when_stopped(self):
        self.pipeline.refuse_when_stopped()

    @property
    def appended(self):
        return self.pipeline.appended

    @property
    def durable(self):
        return self.pipeline.durable

    @property
    def visible(self):
        with self.mutex:
            return self.pipeline.visible

    def rebase(self, point):
        """A pack replaced the file; nothing is under way."""
        with self._one_sync, self.mutex:
            self.pipeline.rebase(point)

    def stats(self):
        with self.mutex:
            line = self.pipeline
            return {
                'commits': self.commits,
                'syncs': self.syncs,
                'commits_per_sync':
                    self.commits / self.syncs if self.syncs else 0.0,
                'sync_latency': self.latency.summary(),
                'last_appended': line.appended.tid,
                'last_durable': line.durable.tid,
                'last_published': line.published.tid,
                'waiting': len(line.queue),
                'failed': line.failed,
                'writing_stopped': line.stopped,
            }


def _release(lock):
    """Wake who waits for it; harmless if it was woken before."""
    try:
        lock.release()
    except RuntimeError:
        pass
