"""Votes and finishes ballots, many side by side.

The states of a ballot, and who may change them, are in `ballot`; here are the
transitions.  All of it belongs to the event loop.  A thread gets one step of
one ballot (its vote, its finish, its abort) and posts the outcome to the loop.

A vote in a storage of ours never blocks a thread while it waits for its
objects: the storage says that they are not free (Occupied), the ballot waits,
and the storage notifies the loop when its turn has come (`call_when_served`).
So the ballots of all clients stand in the queues of their objects, like other
threads that commit in the same storage, and each holds its objects and nothing
else (I12).

A vote that conflicts with a transaction that is appended and not yet published
is put *aside* (I6).  It is repeated when that transaction is published, or
when the transaction may never be, because its finish or a sync has failed.

Small transactions of a storage of ours are *light*: if the records that they
replace are in memory, and no pack is about to swap the files, they wait for
nothing.  The loop votes and finishes them itself: the way to a thread and back
would take longer than the rest.  But a slow disk makes writers wait in the
end.  So after a step that has waited long, threads do all steps for some time.

Threads do everything else.  `VOTERS` of them vote, so that the sync of a blob
does not delay the votes of others.  One more resolves conflicts (Unresolved):
only other conflicts wait for code of users.  One more finishes and aborts:
these steps never queue behind votes, because their ballots hold objects.
Where a log gets the blobs of votes, and may have no room for a minute, ballots
with blobs have room and threads of their own: only other blobs wait for them.

Any other storage, or one in a wrapper with a vote of its own, gets one ballot
at a time, in one thread (oneatatime); the others wait outside (`entrance`).

If no thread can be started for a step, the ballot ends: it is taken back, and
its client gets the error.

`close` may be called in another thread.  So `_lock` is held by it, and
whenever the loop changes something.
"""

import contextlib
import functools
import threading
import time

from ZODB.POSException import StorageError
from ZODB.utils import maxtid

from ..errors import ConflictsLeft
from ..errors import Occupied
from ..errors import Unpublished
from ..errors import Unresolved
from ..storage import AsyncFinish
from . import times
from .ballot import ASIDE
from .ballot import FINISHING
from .ballot import OUTSIDE
from .ballot import OVER
from .ballot import VOTED
from .ballot import VOTING
from .ballot import WAITING
from .entrance import Entrance
from .fairline import FairLine
from .hosting import replica_of
from .mailbox import attempt
from .oneatatime import OneAtATime
from .threads import Threads
from .waits import waits

# After a step that waited, and took this many seconds ...
LONG = 0.02
# ... threads carry out all steps for this many seconds.
RETREAT = 2

# Threads that vote; as many more vote blobs into a log.
VOTERS = 4
# Bytes of all ballots that are in a storage; of those whose blobs a log gets.
ROOM = 128 << 20
ROOM_FOR_THE_LOG = ROOM // 2


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
        self._entrance = Entrance(ROOM if self._side_by_side else 0)
        #: Of ballots that weigh more than all of the room: one at a time.
        self._giants = Entrance(0)
        #: Of ballots whose blobs a log gets.
        self._has_log = replica_of(storage) is not None
        self._entrance_to_the_log = Entrance(ROOM_FOR_THE_LOG)
        self._aside = {}  # ballot -> tid that it waits for
        #: How often a transaction that was appended may never be published.
        self._failures = 0
        #: Ballots that wait for a thread that votes: most of them, those with
        #: a conflict to resolve, and those whose blobs a log gets.
        self._lines = self._queue, self._conflicts, self._for_the_log = (
            FairLine(VOTERS), FairLine(1), FairLine(VOTERS))
        self._not_before = 0
        # (No thread is started before it is needed.)
        self._appender = Threads(1, f'appender of {name}')
        self._voters = (Threads(
            sum(line.most for line in self._lines), f'voter of {name}')
            if self._side_by_side else self._appender)

    # From ballots

    def vote(self, ballot):
        with self._lock:
            if not self._closing:
                if ballot.asked_at is None:  # else its conflicts are resolved
                    ballot.asked_at = time.monotonic()
                self._ballots.add(ballot)
                self._come(ballot)

    def finish(self, ballot):
        with self._lock:
            if self._closing:
                return
            ballot.finish_at = time.monotonic()
            ballot.state = FINISHING
            if not (ballot.is_small and self._may_do_it_here()
                    and self._finish_here(ballot)):
                self._leave_finish_to_a_thread(ballot)

    def abort(self, ballot):
        with self._lock:
            if ballot.state is VOTING and not any(
                    ballot in line for line in self._lines):
                ballot.aborted = True  # dropped when its thread is done
            elif ballot.state not in (FINISHING, OVER):
                self._drop(ballot)

    # From the service

    def published(self):
        """Transactions were published, or never will be: ballots that are put
        aside may go on."""
        if self._aside:
            self._take_back(maxtid if self.storage.has_stopped
                            else self.storage.lastTransaction())

    def failed(self):
        """A transaction that ballots put aside wait for may never be
        published."""
        self._failures += 1
        self._take_back(maxtid)

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
        try:
            self._appender.submit(self._abort_all)
        except Exception:  # there is no thread, so nothing is finishing
            self._abort_all()
        self._appender.shutdown()

    # Statistics, from anywhere

    @property
    def waiting(self):
        return self._count(OUTSIDE, WAITING, ASIDE)

    @property
    def voted(self):
        return self._count(VOTED)

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

    # Voting

    def _come(self, ballot):
        ballot.state = OUTSIDE
        weight = ballot.weight
        entrance = (self._giants if weight > self._entrance.room
                    else self._entrance_to_the_log if self._needs_log(ballot)
                    else self._entrance)
        if entrance.ask(ballot, weight, ballot.client.session):
            self._go_on(ballot)
        else:
            ballot.waits(times.ROOM)

    def _admitted(self, ballot):
        with self._lock:
            if ballot.state is OUTSIDE and not self._closing:
                self._go_on(ballot)

    def _served(self, ballot):
        with self._lock:
            if ballot.state is WAITING and not self._closing:
                self._go_on(ballot)

    def _go_on(self, ballot):
        """Vote it, from the start or from the step at which it had to wait."""
        ballot.state = VOTING
        if ballot.waits_for is not None:
            ballot.goes_on()
        ballot.failures = self._failures
        if self._may_do_it_here() and ballot.is_light():
            self._voted(ballot, *self._watched(
                self._vote, ballot, wait=False, resolve=False))
        else:
            self._leave_to_a_thread(ballot)

    def _leave_to_a_thread(self, ballot):
        ballot.state = VOTING
        line = (self._conflicts if ballot.has_to_resolve
                else self._for_the_log if self._needs_log(ballot)
                else self._queue)
        if ballot.is_asked:  # it has got its objects: others wait for it
            line.add_ahead(ballot)
        else:
            line.add(ballot, ballot.client.session)
        self._hand_out(line)

    def _needs_log(self, ballot):
        return self._has_log and ballot.may_have_blobs

    def _hand_out(self, line):
        while line and line.under_way < line.most:
            ballot = line.pop()
            line.under_way += 1
            try:
                self._voters.submit(self._vote_there, ballot, line)
            except Exception as error:
                self._post(self._voted_there, ballot, line, None, error)
                self._abort(ballot)

    def _vote_there(self, ballot, line):
        """In a thread."""
        # With its turn, it may wait for the append lock.
        options = {
            'wait': ballot.has_turn, 'resolve': line is self._conflicts}
        try:
            outcome = self._vote(ballot, **options)
        except BaseException as error:  # a record names a module that exits
            outcome = None, _ended_by(error)
        self._post(self._voted_there, ballot, line, *outcome)

    def _voted_there(self, ballot, line, result, error):
        with self._lock:
            line.under_way -= 1
            attempt(self._hand_out, line)
            self._voted(ballot, result, error)

    def _vote(self, ballot, **options):
        """Return the result and the error, of which one is None."""
        try:
            return ballot.vote_in(**options), None
        except Exception as error:
            return None, error

    def _voted(self, ballot, result, error):
        if self._closing:
            pass
        elif ballot.aborted:
            self._drop(ballot)
        elif isinstance(error, Unresolved):
            ballot.has_to_resolve = True
            self._leave_to_a_thread(ballot)
        elif isinstance(error, Occupied):
            self._wait(ballot)
        elif isinstance(error, Unpublished):
            self._leave(ballot)
            self._put_aside(ballot, error.tid)
        elif isinstance(error, ConflictsLeft):
            self._take_out(ballot)
            ballot.waits(times.CLIENT)
            ballot.tell_conflicts(error.conflicts)
        elif error is not None:
            self._service.refused(ballot, error)
            self._forget(ballot)
            ballot.over()
            ballot.tell(None, error)
        else:
            ballot.voted(self._service.loop, self._service.timeout)
            ballot.tell(result, None)

    def _wait(self, ballot):
        """Wait for its turn.  If it has that already, a thread votes it, which
        may block for what is left."""
        ballot.state = WAITING
        ballot.waits(times.OBJECTS)
        if not self.storage.call_when_served(
                ballot.transaction,
                functools.partial(self._post, self._served, ballot)):
            ballot.has_turn = True
            ballot.goes_on()
            self._leave_to_a_thread(ballot)

    def _put_aside(self, ballot, tid):
        if (tid <= self.storage.lastTransaction()
                or ballot.failures != self._failures
                or self.storage.has_stopped):
            self._come(ballot)  # there is nothing left to wait for
        else:
            ballot.state = ASIDE
            ballot.waits(times.PUBLISHING)
            self._aside[ballot] = tid

    def _take_back(self, up_to):
        with self._lock:
            for ballot, tid in list(self._aside.items()):
                # (The callbacks of one ballot may end another.)
                if (tid <= up_to and not self._closing
                        and self._aside.pop(ballot, None) is not None):
                    attempt(self._come, ballot)

    # Finishing

    def _finish_here(self, ballot):
        """Return whether it could be done without waiting."""
        try:
            error = self._watched(self._finish, ballot, False)
        except Occupied:
            return False
        self._finished(ballot, error)
        return True

    def _leave_finish_to_a_thread(self, ballot):
        try:
            self._appender.submit(self._finish_there, ballot)
        except Exception as error:
            self._abort(ballot)
            self._finished(ballot, error)

    def _finish_there(self, ballot):
        """In a thread."""
        try:
            try:
                error = self._finish(ballot)
            except BaseException as raised:
                error = _ended_by(raised)
                attempt(ballot.take_back)
        finally:  # else its client would never get an answer
            self._post(self._finished, ballot, error)

    def _finish(self, ballot, wait=True):
        """Append it; return the error, if any."""
        try:
            if self._service.own_publishing:
                self._finish_later(ballot, wait)
            else:
                self._finish_now(ballot)
        except Occupied:
            raise
        except Exception as error:
            # Not every storage frees its lock when it fails.
            attempt(ballot.take_back)
            return error

    def _finish_later(self, ballot, wait):
        """The loop publishes it when the policy allows."""
        self.storage.tpc_finish(ballot.transaction, AsyncFinish(
            lambda tid, error: error and self._post(
                self._service.failed, ballot, error),
            lambda tid: self._service.published(ballot, tid, True), wait))
        ballot.appended_at = time.monotonic()

    def _finish_now(self, ballot):
        """A storage that is not ours: it is durable when this returns."""
        tid = self.storage.tpc_finish(
            ballot.transaction,
            lambda tid: self._post(
                self._service.published, ballot, tid, False))
        self._post(self._service.finished, ballot, tid)

    def _finished(self, ballot, error):
        with self._lock:
            self._forget(ballot)
            if error is not None:
                self._service.failed(ballot, error)

    # The end of a ballot

    def _drop(self, ballot):
        """Abort it, whether the storage has it or not."""
        for line in self._lines:
            line.discard(ballot)
        self._aside.pop(ballot, None)
        ballot.over()
        if self._closing:
            if ballot not in self._ballots:  # else it is about to be aborted
                self._abort(ballot)
                ballot.is_forgotten()
        elif ballot.is_small and self._may_do_it_here():
            self._watched(self._abort, ballot)
            self._forget(ballot)
        else:
            self._leave_abort_to_a_thread(ballot)

    def _leave_abort_to_a_thread(self, ballot):
        try:
            self._appender.submit(self._abort_there, ballot)
        except Exception:  # no thread: the loop waits until files are removed
            self._abort(ballot)
            self._forget(ballot)

    def _abort_there(self, ballot):
        """In a thread."""
        try:
            self._abort(ballot)
        finally:  # else it would count as in the storage forever
            self._post(self._forget, ballot)

    def _abort(self, ballot):
        attempt(ballot.take_back)

    def _abort_all(self):
        # (Abort each of them, even if an error in another ends the thread.)
        with self._lock, contextlib.ExitStack() as stack:
            for ballot in self._ballots:
                stack.callback(self._post, ballot.is_forgotten)
                stack.callback(self._abort, ballot)
            self._ballots.clear()

    def _forget(self, ballot):
        """Nothing is left of it, here or in the storage."""
        self._take_out(ballot)
        ballot.is_forgotten()

    def _take_out(self, ballot):
        """It is not in the storage any more, or was never there."""
        with self._lock:
            self._ballots.discard(ballot)
            self._leave(ballot)

    def _leave(self, ballot):
        for entrance in (
                self._entrance, self._giants, self._entrance_to_the_log):
            for admitted in entrance.leave(ballot):
                # (Not in this step: a ballot that fails would admit the next
                # one, and so on, one inside the other.)
                self._post(self._admitted, admitted)

    # The loop

    def _may_do_it_here(self):
        return (self._side_by_side and time.monotonic() >= self._not_before
                and not self.storage.is_swapping)

    def _watched(self, step, *arguments, **options):
        begun, waited = time.monotonic(), waits()
        try:
            return step(*arguments, **options)
        finally:
            ended = time.monotonic()
            if ended - begun > LONG and waits() > waited:
                self._not_before = ended + RETREAT


def _ended_by(error):
    """An error for the client, in the place of one that would end a thread."""
    return StorageError(f'it was ended by {error!r:.200}')
