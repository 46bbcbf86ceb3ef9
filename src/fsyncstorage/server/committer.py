"""Votes and appends transactions, one at a time.

The committer carries out orders of the loop, and nothing else touches its
state.  The *holder* is the ballot that was voted: it holds its objects in the
storage until the order to finish or to abort it comes, and until then no other
ballot is voted.  The others wait in the order in which they came; when the
holder is done, the next one is voted, and no other is woken for that.

A vote that conflicts with a transaction that is appended but not yet published
is put *aside* (I6).  It is the next one when that transaction is published.

A thread carries out the orders, because a vote may wait for the disk, for a
pack, or for code that resolves a conflict.  A small transaction of a storage
of ours waits for none of these, if what it replaces is in memory and no pack
is under way.  While the thread has nothing to do, the loop carries out such an
order itself: the way to another thread and back would take longer than the
rest.  Only the loop gives orders: once the thread has done all it was given,
the state belongs to the loop.  (The last order, the end, may come from another
thread: `_giving` is held while orders are given.)  A slow disk makes writers
wait in the end; so after an order that took long, the thread gets all orders
for some time.

The outcome of an order is posted to the loop: `voted`, `refused` or `finished`
of the service.
"""

import collections
import contextlib
import queue
import threading
import time

from ZODB.utils import maxtid

from ..errors import Occupied
from ..errors import Unpublished
from ..storage import AsyncFinish
from .mailbox import attempt

# After an order that took this many seconds ...
LONG = 0.02
# ... the thread carries out all orders for this many seconds.
RETREAT = 2


class Committer:

    def __init__(self, name, storage, service, post):
        self._storage = storage
        self._service = service
        self._post = post
        self._inbox = queue.SimpleQueue()
        self._waiting = collections.deque()
        self._aside = []   # (tid it waits for, ballot)
        self._holder = None
        #: As far as is known, nothing waits: only a new order can change that.
        self._at_rest = True
        self._ended = False
        # Orders that the thread was given, and that it has carried out.
        self._given = self._done = 0
        self._not_before = 0
        self._giving = threading.Lock()
        self._closing = False
        self._thread = threading.Thread(
            target=self._run, daemon=True, name=f'committer of {name}')

    def start(self):
        self._thread.start()

    # Orders, from the loop

    def vote(self, ballot):
        self._waiting.append(ballot)
        if self._at_rest:
            self._give(self._go_on, None, True)

    def finish(self, ballot):
        self._give(self._finish, ballot, ballot.is_small)

    def abort(self, ballot):
        """Abort it in whatever state it is; nothing is posted."""
        ballot.abandoned = True
        if self._ended:
            ballot.close()
        else:
            self._give(self._abort, ballot)

    def published(self):
        """Something was published: ballots put aside may go on."""
        if self._aside:
            self._give(self._take_back, None)

    def failed(self):
        """What the ballots put aside wait for will never be published."""
        self._give(self._take_back, maxtid)

    def close(self):
        """Abort the holder, and append nothing any more."""
        with self._giving:
            self._closing = True
            self._hand_over(self._end, None)
        self._thread.join()

    def _give(self, order, argument, is_light=False):
        with self._giving:
            begun = time.monotonic()
            if is_light and self._may_do_it_here(begun):
                self._carry_out(order, argument, in_loop=True)
                ended = time.monotonic()
                if ended - begun > LONG:
                    self._not_before = ended + RETREAT
            else:
                self._hand_over(order, argument)

    def _may_do_it_here(self, now):
        return (self._service.commits_in_loop
                and self._given == self._done
                and now >= self._not_before
                and not self._closing
                and not self._storage.is_packing)

    def _hand_over(self, order, argument):
        self._given += 1
        self._inbox.put((order, argument))

    # Statistics, from anywhere

    @property
    def waiting(self):
        return len(self._waiting) + len(self._aside)

    def is_alive(self):
        return self._thread.is_alive()

    # In the thread, or in the loop while the thread has nothing to do

    def _run(self):
        while not self._ended:
            self.carry_out_next()

    def carry_out_next(self):
        self._carry_out(*self._inbox.get())
        self._done += 1

    def _carry_out(self, order, argument, in_loop=False):
        attempt(order, argument)
        while self._holder is None:
            # A ballot that comes from here on finds us at rest, or is found
            # below.
            self._at_rest = True
            if not self._waiting:
                break
            self._at_rest = False
            ballot = self._waiting.popleft()
            if not in_loop:
                attempt(self._vote, ballot)
            elif not self._vote_at_once(ballot):
                self._waiting.appendleft(ballot)
                self._hand_over(self._go_on, None)
                break

    def _go_on(self, ballot):
        """Somebody waits."""

    def _vote_at_once(self, ballot):
        """Vote, unless that may wait; return whether it was voted."""
        try:
            if not ballot.is_light(self._storage):
                return False
        except Exception:  # a client's invalid data: the vote will report it
            return False
        try:
            self._vote(ballot, wait=False)
        except Occupied:
            return False
        return True

    def _vote(self, ballot, wait=True):
        if ballot.abandoned:
            return  # the order to abort it will come
        try:
            resolved, conflicts = ballot.vote(self._storage, wait)
        except Occupied:
            raise
        except Unpublished as error:
            self._aside.append((error.tid, ballot))
            self._take_back()  # if that was published meanwhile
        except Exception as error:
            self._post(self._service.refused, ballot, error)
            ballot.close()
        else:
            if not conflicts:
                self._holder = ballot
            self._post(self._service.voted, ballot, resolved, conflicts)

    def _take_back(self, up_to=None):
        if up_to is None:
            up_to = self._storage.lastTransaction()
        # `published` looks at `_aside` meanwhile: it is replaced in one step.
        ready = [ballot for tid, ballot in self._aside if tid <= up_to]
        self._waiting.extendleft(reversed(ready))
        self._aside = [each for each in self._aside if each[0] > up_to]

    def _finish(self, ballot):
        self._holder = None
        try:
            if self._service.own_publishing:
                self._finish_later(ballot)
            else:
                self._finish_now(ballot)
        except Exception as error:
            self._post(self._service.failed, ballot, error)
            # Not every storage frees its lock when it fails.
            attempt(self._storage.tpc_abort, ballot.transaction)
        ballot.close()

    def _finish_later(self, ballot):
        """Append it; the loop publishes it when the policy allows."""
        self._storage.tpc_finish(ballot.transaction, AsyncFinish(
            lambda tid, error: error and self._post(
                self._service.failed, ballot, error),
            lambda tid: self._service.published(ballot, tid, True)))

    def _finish_now(self, ballot):
        """Finish in a storage that is not ours: it is durable on return."""
        tid = self._storage.tpc_finish(
            ballot.transaction,
            lambda tid: self._post(
                self._service.published, ballot, tid, False))
        self._post(self._service.finished, ballot, tid)

    def _abort(self, ballot):
        if self._holder is ballot:
            self._holder = None
            self._storage.tpc_abort(ballot.transaction)
        else:
            with contextlib.suppress(ValueError):
                self._waiting.remove(ballot)
            self._aside = [
                each for each in self._aside if each[1] is not ballot]
        ballot.close()

    def _end(self, ballot):
        if self._holder is not None:
            attempt(self._abort, self._holder)
        for ballot in self._waiting:
            ballot.close()
        for _, ballot in self._aside:
            ballot.close()
        self._waiting.clear()
        self._ended = True
