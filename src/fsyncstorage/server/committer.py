"""Votes and finishes ballots, many side by side.

The states of a ballot, and what may follow each, are in `ballot`; here is when
they change.  All of it belongs to the event loop.  A thread gets one step of
one ballot: its vote, its finish, its abort.

No vote blocks a thread while it waits: for its objects (Occupied), or *aside*,
for a transaction that it conflicts with and that is not published (I6).  But a
log that gets the blobs of a vote may have no room for a minute: votes with
blobs have room and threads of their own there.  Small steps that wait for
nothing are done in the loop.  docs/internals/session.rst ("Commits") says
who waits for what, and why there are so many threads.

`close` may be called in another thread.  So `_lock` is held by it, and
whenever the loop changes something.
"""

import contextlib
import functools
import resource
import threading
import time

from ZODB.utils import maxtid

from ..errors import ConflictsLeft
from ..errors import Occupied
from ..errors import Unpublished
from ..errors import Unresolved
from ..storage import AsyncFinish
from .ballot import ASIDE
from .ballot import BEGUN
from .ballot import FINISHING
from .ballot import OUTSIDE
from .ballot import OVER
from .ballot import VOTED
from .ballot import VOTING
from .ballot import WAITING
from .fairline import FairLine
from .hosting import replica_of
from .oneatatime import OneAtATime
from .threads import Threads
from .threads import attempt

# After a step that waited, and took this many seconds ...
LONG = 0.02
# ... threads carry out all steps for this many seconds.
RETREAT = 2

# Threads that vote; as many more vote blobs into a log.
VOTERS = 4
# Bytes of all ballots that are in a storage; of those whose blobs a log gets.
ROOM = 128 << 20
ROOM_FOR_THE_LOG = ROOM // 2

# A step that took long may have waited for a slow disk, or only for a
# processor that others were using.  So its waits are counted, of its thread
# where the system does that, else of the process.
_COUNTED = getattr(resource, 'RUSAGE_THREAD', resource.RUSAGE_SELF)


class Committer:

    def __init__(self, name, storage, service, post):
        self._service = service
        self._post = post
        self._side_by_side = service.votes_side_by_side
        #: That of all ballots.
        self.storage = storage if self._side_by_side else OneAtATime(storage)
        self._lock = threading.RLock()
        self._closing = False
        #: From their votes to their ends.
        self._ballots = set()
        #: Does a log get the blobs of votes?
        self._has_log = replica_of(storage) is not None
        #: In front of the storage: for most ballots, for those whose blobs a
        #: log gets, and for those that weigh more than all of the room, which
        #: go in one at a time.
        self._room = FairLine(ROOM if self._side_by_side else 0)
        self._room_for_the_log = FairLine(ROOM_FOR_THE_LOG)
        self._giants = FairLine(0)
        #: In front of the threads that vote: for most ballots, for those with
        #: a conflict to resolve, and for those whose blobs a log gets.
        self._lines = self._votes, self._conflicts, self._for_the_log = (
            FairLine(VOTERS), FairLine(1), FairLine(VOTERS))
        self._aside = {}  # ballot -> tid that it waits for
        #: How often a transaction that was appended may never be published.
        self._failures = 0
        self._not_before = 0
        # (No thread is started before it is needed.)
        self._appender = Threads(1, f'appender of {name}', post)
        self._voters = (Threads(
            sum(line.size for line in self._lines), f'voter of {name}', post)
            if self._side_by_side else self._appender)

    # From sessions

    def vote(self, ballot, done):
        """Call `done(result, error)`, perhaps before this returns.

        The result has the oids whose conflicts were resolved; or, if the
        ballot is BEGUN again, the conflicts that the client has to resolve.
        """
        with self._lock:
            if not self._closing:
                ballot.done = done
                if ballot.asked_at is None:  # else its conflicts are resolved
                    ballot.asked_at = time.monotonic()
                self._ballots.add(ballot)
                self._come(ballot)

    def finish(self, ballot, done):
        """Call `done(tid, error)`, perhaps before this returns.

        If there is a tid, the call is made while that transaction is
        announced, in the place of the invalidation for this client.
        """
        if ballot.timer is not None:
            ballot.end_timer()
        with self._lock:
            if self._closing:
                return
            ballot.done = done
            ballot.finish_at = time.monotonic()
            ballot.becomes(FINISHING)
            if ballot.is_small and self._may_do_it_here():
                _, error = self._here(self._finish, ballot, False)
                if not isinstance(error, Occupied):
                    self._finished(ballot, None, error)
                    return
                # Its traceback has this frame, and the file: that would stay
                # open behind a pack, until cycles are collected.
                del error
            self._there(
                self._appender, self._finished, ballot, self._finish, ballot)

    def abort(self, ballot):
        """End it, unless it is finishing; nobody is told any more."""
        ballot.done = None
        with self._lock:
            waiting = self._line_of(ballot).waiting
            if ballot.state is VOTING and ballot not in waiting:
                ballot.is_dropped = True  # when its thread is done
            elif ballot.state not in (FINISHING, OVER):
                self._drop(ballot)

    # From the service

    def published(self):
        """Transactions were published, or never will be: ballots that are put
        aside may go on."""
        if self._aside:
            self._repeat_those_aside(maxtid if self.storage.has_stopped
                                     else self.storage.lastTransaction())

    def failed(self):
        """A transaction that ballots put aside wait for may never be
        published."""
        self._failures += 1
        self._repeat_those_aside(maxtid)

    def close(self):
        """Abort all ballots that are not finishing; vote and finish no more.
        """
        with self._lock:
            self._closing = True
            for line in self._lines:
                line.clear()
        about_to_close = getattr(self.storage, 'about_to_close', None)
        if about_to_close is not None:  # ends what the threads may wait for
            attempt(about_to_close)
        if self._voters is not self._appender:
            self._voters.shutdown()
        if not self._appender.do(lambda *_: None, self._abort_all):
            self._abort_all()  # there is no thread, so nothing is finishing
        self._appender.shutdown()

    def _abort_all(self):
        # (Abort each of them, even if an error in another ends the thread.)
        with self._lock, contextlib.ExitStack() as stack:
            for ballot in self._ballots:
                stack.callback(self._post, ballot.forget)
                stack.callback(attempt, ballot.withdraw)
            self._ballots.clear()

    # Statistics, from anywhere

    @property
    def waiting(self):
        return self._count(OUTSIDE, WAITING, ASIDE)

    def _count(self, *states):
        return sum(ballot.state in states for ballot in self.ballots())

    def ballots(self):
        """Those that have asked for their vote and have not ended."""
        return self._ballots.copy()

    def voted_since(self):
        """The time of the oldest vote whose ballot is not finished."""
        since = min((ballot.held_since for ballot in self.ballots()
                     if ballot.state is VOTED), default=None)
        return since and time.time() - (time.monotonic() - since)

    def is_alive(self):
        return not self._closing

    # Steps, here or in a thread

    def _may_do_it_here(self):
        return self._side_by_side and time.monotonic() >= self._not_before

    def _here(self, step, *arguments):
        """Return the result and the error, of which one is None."""
        begun = time.monotonic()
        waited = resource.getrusage(_COUNTED).ru_nvcsw
        try:
            return step(*arguments), None
        except Exception as error:
            return None, error
        finally:
            ended = time.monotonic()
            if (ended - begun > LONG
                    and resource.getrusage(_COUNTED).ru_nvcsw > waited):
                self._not_before = ended + RETREAT

    def _there(self, threads, then, ballot, step, *arguments):
        """Carry out a step in a thread; `then(ballot, result, error)` follows
        in the loop."""
        if not threads.do(functools.partial(then, ballot), step, *arguments):
            attempt(ballot.withdraw)

    # Voting

    def _come(self, ballot):
        weight = ballot.weight
        ballot.room = (
            self._giants if weight > self._room.size
            else self._room_for_the_log if self._needs_log(ballot)
            else self._room)
        if ballot.room.come(ballot, ballot.session, weight):
            self._vote(ballot)
        else:
            ballot.becomes(OUTSIDE)

    def _go_on(self, ballot, *states):
        """Posted when there is room for it, or when it is its turn.  By now it
        may have ended, or wait for the other one."""
        with self._lock:
            if ballot.state in states and not self._closing:
                self._vote(ballot)

    def _vote(self, ballot):
        """Vote it, from the start or from the step at which it had to wait."""
        ballot.becomes(VOTING)
        ballot.began_at = time.monotonic()
        ballot.failures = self._failures
        if self._may_do_it_here() and ballot.is_light():
            self._voted(ballot, *self._here(ballot.vote, False))
        else:
            self._leave_to_a_thread(ballot)

    def _leave_to_a_thread(self, ballot):
        # If it has got its objects, others wait for it.
        if self._line_of(ballot).come(
                ballot, ballot.session, ahead=ballot.is_asked):
            self._vote_there(ballot)

    def _line_of(self, ballot):
        return (self._conflicts if ballot.has_to_resolve
                else self._for_the_log if self._needs_log(ballot)
                else self._votes)

    def _needs_log(self, ballot):
        return self._has_log and ballot.may_have_blobs

    def _vote_there(self, ballot):
        self._there(self._voters, self._voted_there, ballot, ballot.vote,
                    ballot.has_to_resolve)

    def _voted_there(self, ballot, result, error):
        with self._lock:
            self._leave_line(ballot)
            self._voted(ballot, result, error)

    def _leave_line(self, ballot):
        for admitted in self._line_of(ballot).leave(ballot):
            self._vote_there(admitted)

    def _voted(self, ballot, result, error):
        if self._closing:
            pass
        elif ballot.is_dropped:
            self._drop(ballot)
        elif error is None:
            ballot.held_since = time.monotonic()
            ballot.becomes(VOTED)  # last: a thread may ask how old it is
            ballot.count_no_more()
            if self._service.timeout:
                ballot.timer = self._service.loop.call_later(
                    self._service.timeout, ballot.session.timed_out, ballot)
            ballot.tell(result, None)
        elif isinstance(error, Unresolved):
            ballot.has_to_resolve = True
            self._leave_to_a_thread(ballot)
        elif isinstance(error, Occupied):
            self._wait(ballot)
        elif isinstance(error, Unpublished):
            self._put_aside(ballot, error.tid)
        elif isinstance(error, ConflictsLeft):
            self._ballots.discard(ballot)
            self._leave_room(ballot)
            ballot.becomes(BEGUN)
            ballot.tell(error.conflicts, None)
        else:
            self._service.refused(ballot, error)
            self._forget(ballot)
            self._over(ballot)
            ballot.tell(None, error)

    def _wait(self, ballot):
        """Wait for its turn.  If it has that by now, or never will have it, a
        thread votes it."""
        ballot.becomes(WAITING)
        if not self.storage.call_when_served(
                ballot.transaction, functools.partial(
                    self._post, self._go_on, ballot, WAITING)):
            ballot.becomes(VOTING)
            self._leave_to_a_thread(ballot)

    def _put_aside(self, ballot, tid):
        self._leave_room(ballot)
        ballot.becomes(ASIDE)
        if (tid <= self.storage.lastTransaction()
                or ballot.failures != self._failures
                or self.storage.has_stopped):
            self._come(ballot)  # there is nothing left to wait for
        else:
            self._aside[ballot] = tid

    def _repeat_those_aside(self, up_to):
        with self._lock:
            for ballot, tid in list(self._aside.items()):
                # (The callbacks of one ballot may end another.)
                if (tid <= up_to and not self._closing
                        and self._aside.pop(ballot, None) is not None):
                    attempt(self._come, ballot)

    # Finishing

    def _finish(self, ballot, wait=True):
        """Append it."""
        try:
            if self._service.own_publishing:
                self._finish_later(ballot, wait)
            else:
                self._finish_now(ballot)
        except Occupied:
            raise
        except BaseException:
            # Not every storage frees its lock when it fails.
            attempt(ballot.withdraw)
            raise

    def _finish_later(self, ballot, wait):
        """The loop publishes it when the policy allows."""
        self.storage.tpc_finish(ballot.transaction, AsyncFinish(
            lambda tid, error: error and self._post(
                self._service.failed, ballot, error),
            functools.partial(self._service.published, ballot), wait))

    def _finish_now(self, ballot):
        """A storage that is not ours: it is durable when this returns."""
        tid = self.storage.tpc_finish(
            ballot.transaction,
            lambda tid: self._post(
                self._service.published, ballot, tid, False))
        self._post(self._service.finished, ballot, tid)

    def _finished(self, ballot, _, error):
        with self._lock:
            self._forget(ballot)
            if error is not None:
                self._service.failed(ballot, error)

    # The end of a ballot

    def _drop(self, ballot):
        """Abort it, whether the storage has it or not."""
        self._leave_line(ballot)
        self._aside.pop(ballot, None)
        self._over(ballot)
        if self._closing:
            if ballot not in self._ballots:  # else it is about to be aborted
                attempt(ballot.withdraw)
                ballot.forget()
        elif ballot.is_small and self._may_do_it_here():
            self._here(attempt, ballot.withdraw)
            self._forget(ballot)
        else:
            # Without a thread, the loop waits until files are removed.
            self._there(self._appender, self._forget, ballot,
                        attempt, ballot.withdraw)

    def _over(self, ballot):
        ballot.becomes(OVER)
        if ballot.timer is not None:
            ballot.end_timer()
        ballot.count_no_more()

    def _forget(self, ballot, *_):
        """Nothing is left of it, here or in the storage."""
        with self._lock:
            self._ballots.discard(ballot)
            self._leave_room(ballot)
        ballot.forget()

    def _leave_room(self, ballot):
        """It is not in the storage any more, or was never there."""
        if ballot.room is not None:
            for admitted in ballot.room.leave(ballot):
                # (Not in this step: a ballot that fails would admit the next
                # one, and so on, one inside the other.)
                self._post(self._go_on, admitted, OUTSIDE)
