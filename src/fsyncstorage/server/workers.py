"""Threads for what may wait for the disk, and the order of their jobs.

A pool of threads does the jobs.  Each peer has a *line* of them.  The lines
take turns: a peer that asks for much waits behind its own jobs, and others
behind one of them at most.  A line stands still while its peer does not read;
and no more jobs are handed to the threads than they can begin soon, so that
few results wait for peers that do not take them.

All of that belongs to the event loop.  The threads get a job, and what it
returns, or raises, goes to the loop through the mailbox.

If the threads refuse a job, because the system starts none of them, that error
is its outcome, and nothing stays counted.
"""

import collections
import threading

from .accounts import ENOUGH
from .threads import Threads

# Seconds that a job under way may take when all is closed.
END_WITHIN = 1
# Jobs that are handed out a thread: the one under way, and the next.
AT_HAND = 2


class Dropped(Exception):
    """The peer is gone: its job was not done."""


class Workers:

    def __init__(self, name, size, mailbox):
        self._size = size
        self._mailbox = mailbox
        self._turns = collections.deque()  # lines that have a job to hand out
        self._handed_out = 0
        self._in_lines = 0
        self._threads = Threads(size, name)
        self._closed = False
        self._busy = set()

    def line(self, account, at_once=None):
        """A line for the jobs of one peer, of which at most `at_once` are
        under way."""
        return Line(self, account, at_once or self._size)

    @property
    def waiting(self):
        return self._in_lines + self._threads.waiting

    @property
    def busy(self):
        return len(self._busy)

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
        try:
            self._threads.submit(
                self._do, line, done, function, arguments)
        except Exception as error:
            if self._closed:
                self._count(line, -1)
            else:
                # Later, as the outcome of any job: what is told may submit
                # another.
                self._mailbox.post(self._finished, line, done, None, error)

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

    # In a thread

    def _do(self, line, done, function, arguments):
        if self._closed:
            return
        me = threading.get_ident()
        self._busy.add(me)
        try:
            result, error = function(*arguments), None
        except Exception as raised:
            result, error = None, raised
        except BaseException as raised:
            # SystemExit, of code of users: it does not end the loop.
            result, error = None, RuntimeError(
                f'a call has ended with {raised!r}')
        self._busy.discard(me)
        self._mailbox.post(self._finished, line, done, result, error)

    # The end

    def close(self):
        """Drop the jobs that wait, and let the threads end.

        Wait END_WITHIN for each at most: a job may wait for another server.
        """
        self._closed = True
        self._threads.shutdown(END_WITHIN)


class Line:

    is_in_turn = False
    #: Jobs that were handed out, and whose outcome is not known.
    under_way = 0
    _closed = False

    def __init__(self, workers, account, at_once):
        self.jobs = collections.deque()
        self._workers = workers
        self._account = account
        self._at_once = at_once

    def submit(self, done, function, *arguments):
        """`done(result, None)` or `done(None, error)` later.

        Return False when the peer is gone, or all is closed: nothing will be
        done.
        """
        if self._closed:
            done(None, Dropped())
            return False
        workers = self._workers
        self.jobs.append((done, function, arguments))
        workers._in_lines += 1
        if not self.is_in_turn:
            self.go_on()
            workers._hand_out()
        return not workers._closed

    def may_go_on(self):
        """Is there a job, and room for its result?

        One job is always done for a peer that reads: what is held for it may
        wait for that job's answer.
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
