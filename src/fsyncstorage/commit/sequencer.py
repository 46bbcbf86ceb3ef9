"""The sequencer: appended -> durable -> published -> told, in this order.

A committer calls `append` and then `settle`, which is the recipe of a group
commit; its steps follow in this module.  One *leader* at a time syncs, for all
threads that wait:

- A thread that waits for its commit leads if no other thread does.  So a lone
  committer syncs for itself, without a hand-over (I9).
- A leader that has synced wakes a thread that still waits, which leads next,
  and then publishes, while the next sync runs.
- The sequencer's own thread, the flusher, leads for commits that no thread
  waits for: an asynchronous finish, a committer that was interrupted, and the
  background sync of `interval`.

*Publishing* calls the `f(tid)` of each commit, in tid order, and after each
call lets readers see the commit (I5).  During this the *gate* is closed: a
reader that asks for the current state waits until publishing has ended; one
that reads as of a tid that is shown does not ask here at all.  Any thread that
finds something to publish publishes it, even for other threads.  An event loop
that must publish itself takes this over (`owned_by`): it is notified, and
calls `publish` in its own thread.

State and its owner: the pipeline and the leadership belong to `mutex`.  It is
a leaf: nothing is called, waited for, read or written while it is held.
`_one_sync` is held around a sync and the note of its outcome: if two syncs ran
at once, only one would be told that the disk failed.  `_gate` is held while
`f` runs; threads that wait for it hold no other lock of the storage.  So `f`
may read, but must not finish another transaction of the same storage: it would
wait for itself.

Left to others: what a sync does (`sync`), how readers come to see a
transaction (`show`), and what an interrupt leads to (interrupts).
"""

import datetime
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from ..errors import SyncFailed
from ..histogram import Histogram
from .interrupts import WholeOrStopped
from .pipeline import APPENDED
from .pipeline import PUBLISHED
from .pipeline import SETTLED
from .pipeline import Commit
from .pipeline import Pipeline
from .pipeline import Point
from .policies import Company
from .policies import Durability
from .replica import NotReplicated
from .wakeable import Sleeper
from .wakeable import WakeableThread

logger = logging.getLogger(__name__)

SLOW_SYNC = 1.0
#: A sync that takes more seconds hangs: the log says so before it ends.
HANGING_SYNC = 10.0
CHECK_DISK = 'check the disk, then open the storage again'


class Sequencer:

    def __init__(self, name: str, start: Point, durability: Durability,
                 sync: Callable[[Point, list[Commit]], object],
                 show: Callable[[Any], object],
                 tidy: Callable[[], object]) -> None:
        self._name = name
        self._policy = durability.policy
        self._interval = durability.sync_interval
        self._sync = sync    # syncs up to a point, with a batch of commits
        self._show = show    # lets readers see up to a point of the file
        self._tidy = tidy    # the flusher calls it each time it wakes
        self.mutex = threading.Lock()
        self.pipeline = Pipeline(start)
        self.latency = Histogram()
        self.commits = self.committed_bytes = self.syncs = 0
        self.whole_or_stopped = WholeOrStopped(self.stop_after_interrupt)
        # After an interrupt, until the flusher takes over: what it has left.
        self._interrupted: str | None = None

        self._leader: int | None = None  # the number of its thread
        self._company = Company(durability.group_commit_delay)
        self._gathering: Sleeper | None = None  # it waits for company
        self._one_sync = threading.Lock()
        #: When the sync that is under way has begun; None: there is none.
        self._syncing_since: float | None = None
        #: When the sync had begun of which the log said last that it hangs.
        self._said_to_hang: float | None = None
        self._broken: Exception | None = None  # the error of a sync
        # Under `interval`: when the oldest commit that is not durable was
        # appended, or earlier.
        self._exposed_since: float | None = None

        self._gate = threading.RLock()  # `f` may ask for the current state
        #: Is the gate closed?
        self.publishing = False
        self._notify: Callable[[], object] | None = None
        #: The storage starts it, unless it is read-only, and closes it when
        #: all is drained.  A finaliser may wake it, to tidy up.
        self.flusher = WakeableThread(
            f'flusher of {name}', self._work_of_flusher,
            self._until_work_of_flusher)

    # Appended

    def append(self, commit: Commit) -> None:
        """The transaction is in the file: put it into the pipeline.

        The caller has other changes that belong to this one, and makes them
        `whole_or_stopped` together."""
        with self.mutex:
            if self._policy.background:
                self._note_exposure(commit)
            self.pipeline.append(commit)
            self.commits += 1
            self.committed_bytes += commit.end - commit.start
            if commit.orphan and commit.promised and self._leader is None:
                self.flusher.wake()
            if self._gathering is not None:
                self._welcome()

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
        try:
            while commit.state is not PUBLISHED and self._leads_for(commit):
                self._lead_a_batch()
        except BaseException:
            self.abandon(commit)
            raise

    def _lead_a_batch(self) -> None:
        if self._policy.gathers:
            self._gather()
        self._sync_a_batch(self._policy.single)
        self.offer()

    # 1. Wait

    def _leads_for(self, commit: Commit) -> bool:
        """Wait; return true if this thread leads, false if it is settled."""
        me = None
        while commit.state not in SETTLED:
            with self.mutex:
                if commit.state in SETTLED:  # it wakes nobody any more
                    return False
                if (self._leader is None and commit.promised
                        and commit.state is APPENDED):
                    self._leader = threading.get_ident()
                    return True
                if me is None:
                    me = Sleeper()
                    commit.sleepers.append(me)
            me.sleep(self.look_at_sync())
        return False

    # 2. Wait for company

    def _gather(self) -> None:
        patience = self._company.patience(self.pipeline.needing_sync)
        if patience:
            gathering = Sleeper()
            with self.mutex:
                self._gathering = gathering
                self._welcome()  # all may have come by now
            gathering.sleep(patience)
            self._gathering = None

    def _welcome(self) -> None:
        """Wake a leader that waits for company, if all have come."""
        if self._gathering is not None and self._company.complete(
                self.pipeline.needing_sync):
            self._gathering.wake()

    # 3. Sync

    def _sync_a_batch(self, single: bool) -> None:
        """Sync a batch, note the outcome, pass the leadership on."""
        with self._one_sync:
            if self._broken is None:
                begun = time.monotonic()
                with self.mutex:
                    point, batch = self.pipeline.next_batch(
                        single, data_first=self._policy.background)
                    covers_all = point is self.pipeline.appended
                self._syncing_since = begun
                try:
                    self._sync(point, batch)
                except Exception as error:
                    # Note it before anything else: else a failed sync would be
                    # tried again, and succeed (I7).
                    self._broken = error
                    error.__traceback__ = None  # it would keep the file open
                finally:
                    self._syncing_since = None
                if self._broken is None:
                    self._note(point, len(batch), begun, covers_all)
            if self._broken is not None:
                self._fail(self._broken)

    # 4. Note the outcome, pass the leadership on

    def _note(self, point: Point, served: int, begun: float,
              covers_all: bool) -> None:
        seconds = time.monotonic() - begun
        with self.mutex, self.whole_or_stopped:
            self.pipeline.synced(point)
            if self._policy.background:
                if not self.pipeline.unsynced:
                    self._exposed_since = None
                elif covers_all:
                    self._exposed_since = begun
            self.syncs += 1
            self.latency.add(seconds)
            self._company.synced(served, self.pipeline.needing_sync, seconds)
            self._pass_leadership_on()
        if seconds >= SLOW_SYNC:
            logger.warning(
                '%s: a sync took %.1f s; %s is slow or overloaded',
                self._name, seconds, self._where_it_syncs)

    @property
    def _where_it_syncs(self) -> str:
        return 'the log or the disk' if self._policy.replicated else 'the disk'

    # A sync that hangs

    def look_at_sync(self) -> float:
        """Log a sync that hangs, once; return the seconds until the next look.

        Whoever sleeps anyway calls this before: the threads that wait for a
        commit, the flusher, and the thread that writes index files.  One of
        them is free, whichever of them hangs in the sync."""
        begun, now = self._syncing_since, time.monotonic()
        if begun is None or begun == self._said_to_hang:
            return HANGING_SYNC
        if now < begun + HANGING_SYNC:
            return begun + HANGING_SYNC - now
        with self.mutex:
            is_said, self._said_to_hang = begun == self._said_to_hang, begun
            waiting = len(self.pipeline.queue)
        if not is_said:
            logger.warning(
                '%s: a sync has begun at %s, and has not ended for %.0f s: %s'
                ' does not answer, and %d commits wait for it', self._name,
                _clock_at(begun), now - begun, self._where_it_syncs, waiting)
        return HANGING_SYNC

    @property
    def syncing_since(self) -> str | None:
        """When the sync that is under way has begun, by the clock."""
        begun = self._syncing_since
        return None if begun is None else _clock_at(begun)

    def _pass_leadership_on(self) -> None:
        """If this thread leads, let another one lead.  Mutex held.

        A committer that is not here yet leads when it comes."""
        if self._leader != threading.get_ident():
            return
        self._leader = None
        if self.pipeline.needing_sync:
            for commit in self.pipeline.queue:
                if commit.needs_sync and commit.orphan:
                    self.flusher.wake()
                    return
                if commit.needs_sync and commit.sleepers:
                    commit.wake()
                    return
        if self._policy.background:
            self.flusher.wake()  # it may be waiting to lead

    # 5. Publish

    def offer(self) -> None:
        """There may be something to publish: publish it, or notify the owner.
        """
        (self._notify or self.publish)()

    def publish(self) -> None:
        """Publish all that may be published, and call each `on_done`."""
        try:
            with self._gate, self.whole_or_stopped:
                if not self.publishing:  # else this call comes from an `f`
                    try:
                        self.publishing = True
                        self._publish_all()
                    finally:
                        self.publishing = False
        finally:
            if self.pipeline.untold and not self.publishing:
                self._tell_all()

    def _publish_all(self) -> None:
        with self.mutex:
            commit = self.pipeline.next_to_publish()
        while commit is not None:
            if commit.on_publish is not None:
                try:
                    commit.on_publish(commit.tid)
                except Exception as error:
                    # The commit goes on, and its committer gets the error.
                    commit.error = error
                # After an interrupt it is called again: a second invalidation
                # is harmless, a missing one is not.
                commit.on_publish = None
            self._show(commit.point)
            with self.mutex:
                if commit.sleepers:
                    commit.wake()
                self.pipeline.publish(commit)
                commit = (self.pipeline.next_to_publish()
                          if self.pipeline.queue else None)
        if self.pipeline.failed:
            # From now on readers see only what is durable.
            self._show(self.pipeline.visible)

    # 6. Tell

    def _tell_all(self) -> None:
        """Call `on_done` of all settled commits.  No lock is held."""
        while self.pipeline.untold:
            try:
                commit = self.pipeline.untold.popleft()
            except IndexError:  # another thread took the last one
                return
            try:
                if not commit.told and commit.on_done is not None:
                    commit.told = True
                    commit.on_done(commit.tid, commit.error)
            except Exception:
                logger.exception('%s: a finished transaction could not be'
                                 ' reported', self._name)

    # The flusher

    def _work_of_flusher(self) -> None:
        try:
            self._tidy()
            if self._interrupted is not None:
                self._take_over(self._interrupted)
            if self._is_turn_of_flusher():
                self._lead_a_batch()
            with self.mutex:
                is_left = (self.pipeline.next_to_publish() is not None
                           or self.pipeline.untold)
            if is_left:
                self.offer()
        finally:
            with self.mutex:
                self._pass_leadership_on()

    def _is_turn_of_flusher(self) -> bool:
        is_due = self._until_background_sync() == 0.0
        with self.mutex:
            if self._leader is None and (is_due or any(
                    commit.orphan and commit.needs_sync
                    for commit in self.pipeline.queue)):
                self._leader = threading.get_ident()
            return self._leader == threading.get_ident()

    # The background sync of `interval`

    def _note_exposure(self, commit: Commit) -> None:
        """When the oldest commit that is not durable is older than the
        interval, this one is acknowledged only when it is durable, and so are
        all behind it."""
        now = time.monotonic()
        if self._exposed_since is None:
            self._exposed_since = now
            self.flusher.wake()
        if now - self._exposed_since > self._interval:
            commit.promised = True

    def _until_work_of_flusher(self) -> float:
        look, sync = self.look_at_sync(), self._until_background_sync()
        return look if sync is None else min(look, sync)

    def _until_background_sync(self) -> float | None:
        """Seconds until the background sync; None: until it is woken.

        It begins after half of the interval: so a sync of usual length ends in
        time, and no commit has to wait.
        """
        since = self._exposed_since
        if since is None or self._leader is not None or self.pipeline.failed:
            return None
        return max(0.0, since + self._interval / 2 - time.monotonic())

    # Failures and interrupts

    def _fail(self, error: Exception) -> None:
        """A sync failed: that is final for what is not durable (I7)."""
        why, remedy = f'a sync failed ({error})', CHECK_DISK
        if isinstance(error, NotReplicated):
            why, remedy = str(error), error.remedy
        reason = self._because(why, remedy)
        first = not self.pipeline.failed
        with self.mutex, self.whole_or_stopped:
            for commit in self.pipeline.queue:
                commit.wake()
            self.pipeline.fail(reason, lambda: SyncFailed(
                f'{self._name}: {why}: whether this transaction was kept is'
                ' known when the storage is opened again'))
            self._pass_leadership_on()
        if first:
            logger.critical(reason)

    def _because(self, reason: str, remedy: str = CHECK_DISK) -> str:
        return f'{self._name}: writing stopped because {reason}; {remedy}'

    def stop_writing(self, reason: str, remedy: str = CHECK_DISK) -> None:
        """Refuse to append.  Commits that were appended go on."""
        reason = self._because(reason, remedy)
        with self.mutex:
            self.pipeline.stop(reason)
        logger.critical(reason)

    def abandon(self, commit: Commit) -> None:
        """The committer was interrupted: the flusher takes over its work."""
        with self.mutex:
            commit.orphan = True
            self._pass_leadership_on()
        self.flusher.wake()

    def stop_after_interrupt(self, interrupt: BaseException) -> None:
        """Called under a lock of any kind: so the flusher does the rest."""
        self._interrupted = self._because(
            f'an interrupt ({type(interrupt).__name__}) came in the middle of'
            ' a commit', 'open the storage again: its file is whole')
        self.pipeline.stop(self._interrupted)
        self.flusher.wake()

    def _take_over(self, reason: str) -> None:
        """An interrupt has stopped writing: settle all that is appended.

        Who led, published or should have been woken, is not known any more."""
        self._interrupted = None
        with self._gate:  # so nobody publishes now
            self.publishing = False
        with self.mutex:
            for commit in self.pipeline.queue:
                commit.orphan = True
        logger.critical(reason)

    # Others

    def owned_by(self, notify: Callable[[], object] | None) -> None:
        """From now on only call `notify()`, whose owner publishes; None: no
        longer."""
        self._notify = notify

    @property
    def owned(self) -> bool:
        return self._notify is not None

    def pass_gate(self) -> None:
        """Wait while another thread is publishing something."""
        with self._gate:
            pass

    def drain(self) -> None:
        """Wait until every commit that is appended by now is settled."""
        with self.mutex:
            last = self.pipeline.queue[-1] if self.pipeline.queue else None
        if last is not None:  # they are settled in order
            self.settle(last)

    def wait_for(self, tid: bytes) -> None:
        """Wait until the transaction of this tid is settled."""
        with self.mutex:
            found = [each for each in self.pipeline.queue if each.tid == tid]
        for commit in found:
            self.settle(commit)

    def sync_to(self, position: int) -> None:
        """Make everything before the position durable, whatever the policy.

        Other commits go on.  Raises WritingStopped if the sync fails.
        """
        while True:
            with self.mutex:
                # (A pack may replace the file meanwhile by a shorter one.)
                end = min(position, self.pipeline.appended.end)
                if self.pipeline.durable.end >= end:
                    return
                if self.pipeline.failed:
                    self.pipeline.refuse_when_stopped()
            self._sync_a_batch(single=False)
            self.offer()

    def sync_again(self) -> None:
        """Sync once, also if everything is durable: what was cut off the file
        may not be."""
        self._sync_a_batch(single=False)
        self.offer()

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


def _clock_at(moment: float) -> str:
    """What the clock has shown at a moment of `time.monotonic`."""
    ago = datetime.timedelta(seconds=time.monotonic() - moment)
    return (datetime.datetime.now() - ago).isoformat(' ', 'seconds')
