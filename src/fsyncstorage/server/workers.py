"""Threads for what may wait for the disk, and the order of their jobs.

A pool of threads that are started when they are first needed.  Each peer has a
*line* of jobs.  The lines take turns: a peer that asks for much waits behind
its own jobs, and others behind one of them at most.  A line stands still while
its peer does not read; and no more jobs are handed to the threads than they
can begin soon, so that few results wait for peers that do not take them.

All of that belongs to the event loop.  The threads get a job, and what it
returns, or raises, goes to the loop through the mailbox.

A job that is handed to the threads has a thread that will take it.  Where the
system starts no thread, those that run do the jobs; if none runs, that error
is the outcome of the job, and nothing stays counted.
"""

import collections
import contextlib
import queue
import threading

from . import quiet
from .accounts import ENOUGH

logger = quiet.get_logger(__name__)

# Seconds that a job under way may take when all is closed.
END_WITHIN = 1
# Jobs that are handed out a thread: the one under way, and the next.
AT_HAND = 2


class Dropped(Exception):
    """The peer is gone: its job was not done."""


class Workers:

    def __init__(self, name, size, mailbox):
        self._name = name
        self._size = size
        self._mailbox = mailbox
        self._turns = collections.deque()  # lines that have a job to hand out
        self._handed_out = 0
        self._in_lines = 0
        self._threads = []
        self._jobs = queue.SimpleQueue()
        self._lock = threading.Lock()  # for the next two, and for puts
        self._closed = False
        self._busy = set()

    def line(self, account, at_once=None):
        """A line for the jobs of one peer, of which at most `at_once` are
        under way."""
        return Line(self, account, at_once or self._size)

    @property
    def waiting(self):
        return self._in_lines + self._jobs.qsize()

    @property
    def busy(self):
        return len(self._busy)

    # In the loop

    def _hand_out(self):
        while self._turns and self._handed_out < AT_HAND * self._size:
            line = self._turns.popleft()
            line.is_in_turn = False
            if line.may_go_on():
                line.under_way += 1
                self._put(line, *line.jobs.popleft())
                line.go_on()

    def _put(self, line, done, function, arguments):
        self._in_lines -= 1
        with self._lock:
            if self._closed:
                return
            self._handed_out += 1
            error = None
            if len(self._threads) < min(self._size, self._handed_out):
                error = self._start()
            if self._threads:
                self._jobs.put((line, done, function, arguments))
                return
        # Later, as the outcome of any job: what is told may submit another.
        self._mailbox.post(self._finished, line, done, None, error)

    def _finished(self, line, done, result, error):
        self._handed_out -= 1
        line.under_way -= 1
        try:
            done(result, error)
        finally:
            line.go_on()
            self._hand_out()

    # The threads

    def _start(self):
        """Start one more thread; return the error if there can be none."""
        name = f'{self._name} {len(self._threads) + 1}'
        thread = threading.Thread(target=self._run, daemon=True, name=name)
        try:
            thread.start()
        except RuntimeError as error:  # of the system: there are too many
            logger.error('%s: a thread could not be started: %s',
                         name, error)
            return error
        self._threads.append(thread)
        return None

    def _run(self):
        me = threading.get_ident()
        while True:
            job = self._jobs.get()
            if job is None:
                self._jobs.put(None)  # for the next one
                return
            self._busy.add(me)
            line, done, function, arguments = job
            try:
                result, error = function(*arguments), None
            except Exception as raised:
                result, error = None, raised
            except BaseException as raised:
                # SystemExit, of code of users: it ends neither this thread
                # nor the loop.
                result, error = None, RuntimeError(
                    f'a call has ended with {raised!r}')
            self._busy.discard(me)
            self._mailbox.post(self._finished, line, done, result, error)
            # Keep nothing of this job alive while waiting for the next one.
            del job, line, done, function, arguments, result, error

    def close(self):
        """Drop the jobs that wait, and let the threads end.

        Wait END_WITHIN for each at most: a job may wait for another server.
        """
        with self._lock:
            self._closed = True
            with contextlib.suppress(queue.Empty):
                while True:
                    self._jobs.get_nowait()
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(END_WITHIN)


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
