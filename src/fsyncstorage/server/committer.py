"""The thread that votes and appends, one transaction at a time.

An actor: it takes orders from an inbox, and nobody else touches its state.
The *holder* is the ballot that was voted: it holds the storage's commit lock
until the order to finish or to abort it comes, and until then nobody is voted.
The others wait in the order in which they came; the next one is voted as soon
as the lock is free, and nobody else is woken for that.

A vote that conflicts with a transaction which is appended, but not published
yet, is put *aside* (I6), and is the next one when that is published.

What comes of an order is posted to the loop: `voted`, `refused`, `finished` of
the service.
"""

import collections
import contextlib
import queue
import threading

from ZODB.utils import maxtid

from ..committing import AsyncFinish
from ..errors import Unpublished
from .mailbox import attempt


class Committer:

    def __init__(self, name, storage, service, post):
        self._storage = storage
        self._service = service
        self._post = post
        self._inbox = queue.SimpleQueue()
        self._waiting = collections.deque()
        self._aside = []   # (tid it waits for, ballot)
        self._holder = None
        #: Nothing is waiting, as far as the thread knows: wake it.
        self._at_rest = True
        self._ended = False
        self._thread = threading.Thread(
            target=self._run, daemon=True, name=f'committer of {name}')

    def start(self):
        self._thread.start()

    # Orders, from the loop

    def vote(self, ballot):
        self._waiting.append(ballot)
        if self._at_rest:
            self._inbox.put((self._go_on, None))

    def finish(self, ballot):
        self._inbox.put((self._finish, ballot))

    def abort(self, ballot):
        """Whatever state it is in; nothing is posted."""
        ballot.abandoned = True
        if self._ended:
            ballot.close()
        else:
            self._inbox.put((self._abort, ballot))

    def published(self):
        """Something was published: those aside may go on."""
        if self._aside:
            self._inbox.put((self._take_back, None))

    def failed(self):
        """What those aside wait for will never be published."""
        self._inbox.put((self._take_back, maxtid))

    def close(self):
        """Abort who holds the lock; append nothing any more."""
        self._inbox.put((self._end, None))
        self._thread.join()

    # Statistics, from anywhere

    @property
    def waiting(self):
        return len(self._waiting) + len(self._aside)

    def is_alive(self):
        return self._thread.is_alive()

    # In the thread

    def _run(self):
        while not self._ended:
            order, ballot = self._inbox.get()
            self.carry_out(order, ballot)
            del ballot

    def carry_out(self, order, ballot):
        attempt(order, ballot)
        while self._holder is None:
            # Whoever waits from here on finds us at rest, or is found below.
            self._at_rest = True
            if not self._waiting:
                break
            self._at_rest = False
            attempt(self._vote, self._waiting.popleft())

    def _go_on(self, ballot):
        """Somebody waits."""

    def _vote(self, ballot):
        if ballot.abandoned:
            return  # the order to abort it comes
        try:
            resolved, conflicts = ballot.vote(self._storage)
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
        """Append it; it is published when it is durable."""
        self._storage.tpc_finish(ballot.transaction, AsyncFinish(
            lambda tid, error: error and self._post(
                self._service.failed, ballot, error),
            lambda tid: self._post(
                self._service.published, ballot, tid, True)))

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
