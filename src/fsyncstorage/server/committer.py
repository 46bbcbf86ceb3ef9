"""What votes and appends, one transaction at a time.

An actor: it carries out orders of the loop, and nobody else touches its state.
The *holder* is the ballot that was voted: it holds its objects in the storage
until the order to finish or to abort it comes, and until then nobody is voted.
The others wait in the order in which they came; the next one is voted as soon
as the lock is free, and nobody else is woken for that.

A vote that conflicts with a transaction which is appended, but not published
yet, is put *aside* (I6), and is the next one when that is published.

Orders are carried out by a thread, for a vote may wait: for the disk, for a
pack, for code that resolves a conflict.  A small transaction of a storage of
ours waits for none of these, if what it replaces is in memory and no pack is
under way; while the thread has nothing to do, the loop carries out such an
order itself, for the way to another thread and back would take longer than all
the rest.  The loop gives the only orders: as long as those that it handed over
are done, the state is its own.  (The last order, the end, may come from
another thread: `_giving` is held while orders are given.)  A disk that cannot
follow makes writers wait at last; after an order that took long, all go to the
thread for some time.

What comes of an order is posted to the loop: `voted`, `refused`, `finished` of
the service.
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

# Seconds: an order that took so long is not for the loop, ...
LONG = 0.02
# ... and for so long the thread does them all then.
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
        #: Nothing is waiting, as far as is known: an order is needed.
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
        """Whatever state it is in; nothing is posted."""
        ballot.abandoned = True
        if self._ended:
            ballot.close()
        else:
            self._give(self._abort, ballot)

    def published(self):
        """Something was published: those aside may go on."""
        if self._aside:
            self._give(self._take_back, None)

    def failed(self):
        """What those aside wait for will never be published."""
        self._give(self._take_back, maxtid)

    def close(self):
        """Abort who holds the lock; append nothing any more."""
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
            # Whoever waits from here on finds us at rest, or is found below.
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
        """Vote, unless that may take time."""
        try:
            if not ballot.is_light(self._storage):
                return False
        except Exception:  # of what a client made up: a vote says what
            return False
        try:
            self._vote(ballot, wait=False)
        except Occupied:
            return False
        return True

    def _vote(self, ballot, wait=True):
        if ballot.abandoned:
            return  # the order to abort it comes
        try:
            resolved, conflicts = ballot.vote(self._storage, wait)
        except Occupied:
            raise
        except Unpublished as error:
            self._aside.append((error.tid, ballot))
            self._take_back()  # if it was published by now
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
        # `published` looks at the list: it is empty only when it is empty.
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
        """Append it; it is published by the loop when it is durable."""
        self._storage.tpc_finish(ballot.transaction, AsyncFinish(
            lambda tid, error: error and self._post(
                self._service.failed, ballot, error),
            lambda tid: self._service.published(ballot, tid, True)))

    def _finish_now(self, ballot):
        """Of a storage that is not ours: durable when that returns."""
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
