"""Threads of which one at a time runs, line by line, in an order that a test
chooses.

A thread stops before each line of the modules that are watched, and where it
would wait: at the locks of this module, and in `Schedule.wait_for`.  So a test
reaches every order of events in the code as it stands, and knows when all
threads wait for each other.
"""

import sys
import threading

from ..support import PATIENCE


class _Stopped(BaseException):
    """The test is over."""


class ScheduledThread:

    def __init__(self, schedule, function):
        self._schedule = schedule
        self._go_on = threading.Semaphore(0)
        #: It can run when this is true.
        self._condition = lambda: True
        self.is_over = False
        self.result = self.error = None
        self._function = function
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def can_run(self):
        return not self.is_over and self._condition()

    def run(self, lines):
        """So many lines, or until it waits."""
        for _ in range(lines):
            if not self.can_run:
                return
            self._go_on.release()
            self._schedule.wait_until_paused()

    def stop(self):
        self._go_on.release()
        self._thread.join(PATIENCE)

    # In the thread

    def _run(self):
        self._schedule.current.thread = self
        self._wait()
        try:
            sys.settrace(self._trace)
            try:
                self.result = self._function()
            finally:
                sys.settrace(None)
        except _Stopped:
            pass
        except BaseException as error:
            self.error = error
        self.is_over = True
        self._schedule.paused.release()

    def _trace(self, frame, event, arg):
        if frame.f_code.co_filename not in self._schedule.files:
            return None
        if event == 'line':
            self.pause(lambda: True)
        return self._trace

    def pause(self, condition):
        if self._schedule.is_stopped:
            sys.settrace(None)
            raise _Stopped
        self._condition = condition
        self._schedule.paused.release()
        self._wait()

    def _wait(self):
        self._go_on.acquire()
        if self._schedule.is_stopped:
            sys.settrace(None)
            raise _Stopped


class Schedule:

    def __init__(self, *modules):
        self.files = {module.__file__ for module in modules}
        self.current = threading.local()
        self.paused = threading.Semaphore(0)
        self.is_stopped = False
        self.threads = []

    def start(self, function):
        thread = ScheduledThread(self, function)
        self.threads.append(thread)
        return thread

    def wait_until_paused(self):
        if not self.paused.acquire(timeout=PATIENCE):
            raise AssertionError('a thread waits where nobody knows of it')

    def wait_for(self, condition):
        """In a thread: go on when this is true."""
        while not condition():
            self.current.thread.pause(condition)

    def stop(self):
        self.is_stopped = True
        for thread in self.threads:
            thread.stop()


class Lock:

    def __init__(self, schedule):
        self._schedule = schedule
        self._is_taken = False

    def __enter__(self):
        self._schedule.wait_for(lambda: not self._is_taken)
        self._is_taken = True

    def __exit__(self, *ignored):
        self._is_taken = False


class Condition:
    """Each notice wakes all that wait."""

    def __init__(self, schedule, lock):
        self._schedule = schedule
        self._lock = lock
        self._notices = 0

    def notify(self):
        self._notices += 1

    notify_all = notify

    def wait(self, seconds):
        """However long it takes."""
        before = self._notices
        self._lock.__exit__()
        self._schedule.wait_for(lambda: self._notices > before)
        self._lock.__enter__()
