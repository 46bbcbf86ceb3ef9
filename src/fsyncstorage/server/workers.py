"""Threads for jobs that may wait for the disk, and the order of the jobs.

A pool of threads does the jobs.  Each peer has a *line* of them.  The lines
take turns: a peer that asks for much waits for its own jobs, and other peers
wait for one of them at most.  A line does not move while its peer does not
read.  Also, the threads are given only jobs that they can begin soon.  So few
results wait for peers that do not read them.

All of this belongs to the event loop.
"""

import collections
import functools

from .accounts import ENOUGH
from .threads import Threads

# Seconds that a job may still take when the server closes.
END_WITHIN = 1
# Jobs that are handed out for each thread: one under way, and the next one.
AT_HAND = 2


class Dropped(Exception):
    """The peer is gone: its job was not done."""


class Workers:

    def __init__(self, name, size, mailbox):
        self._size = size
        self._turns = collections.deque()  # lines that have a job to hand out
        self._handed_out = 0
        self._in_lines = 0
        self._threads = Threads(size, name, mailbox.post)

    def line(self, account, at_once=None):
        """A line for the jobs of one peer, of which at most `at_once` are
        under way."""
        return Line(self, account, at_once or self._size)

    @property
    def waiting(self):
        return self._in_lines + self._threads.waiting

    @property
    def closed(self):
        return self._threads.closed

    @property
    def busy(self):
        return self._threads.busy

    # In the loop

    def _hand_out(self):
        while self._turns and self._handed_out < AT_HAND * self._size:
            line = self._turns.popleft()
            line.is_in_turn = False
            if line.may_go_on():
                self._put(line, *line.jobs.popleft())
                line.go_on()

    def _put(self, line, done, function, arguments):
        self._in_lines -= 1
        self._count(line, 1)
        self._threads.do(functools.partial(self._finished, line, done),
                         function, *arguments)

    def _count(self, line, change):
        self._handed_out += change
        line.under_way += change

    def _finished(self, line, done, result, error):
        self._count(line, -1)
        try:
            done(result, error)
        finally:
            line.go_on()
            self._hand_out()

    # The end

    def close(self):
        """Drop the jobs that wait, and let the threads end.

        Wait at most END_WITHIN seconds for each thread: its job may wait for
        another server.
        """
        self._threads.shutdown(END_WITHIN, drop=True)


class Line:

    is_in_turn = False
    #: Jobs that were handed out, and whose outcome is not known yet.
    under_way = 0
    _closed = False

    def __init__(self, workers, account, at_once):
        self.jobs = collections.deque()
        self._workers = workers
        self._account = account
        self._at_once = at_once

    def submit(self, done, function, *arguments):
        """Call `done(result, None)` or `done(None, error)` later.

        Return False if the peer is gone or the server closes: then the job
        will not be done.
        """
        closes = self._workers.closed
        if self._closed:
            done(None, Dropped())
            return False
        workers = self._workers
        self.jobs.append((done, function, arguments))
        workers._in_lines += 1
        if not self.is_in_turn:
            self.go_on()
            workers._hand_out()
        return not closes

    def may_go_on(self):
        """Is there a job, and room for its result?

        For a peer that reads, one job is always done: the bytes that are held
        for it may have to wait for the answer of this job.
        """
        return (self.jobs and not self._account.full
                and self.under_way < self._at_once
                and (not self.under_way or self._account.held < ENOUGH))

    def go_on(self):
        """Take a turn, if there is something to do."""
        if not self.is_in_turn and self.may_go_on():
            self.is_in_turn = True
            self._workers._turns.append(self)

    def wake(self):
        """The peer reads again."""
        self.go_on()
        self._workers._hand_out()

    def close(self):
        """The peer is gone."""
        self._closed = True
        jobs, self.jobs = self.jobs, collections.deque()
        self._workers._in_lines -= len(jobs)
        for done, _, _ in jobs:
            done(None, Dropped())
