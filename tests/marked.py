"""Processes that can be found again, with all that they start.

A mark is a name in the environment.  It is inherited, also in a session of its
own, where a signal to the group does not come, and by what has lost its
parent.  It is found where there is a /proc.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import time
import uuid


class Marked:
    """A program, in a session of its own; without a terminal, that is."""

    def __init__(self, command, **options):
        # A name of its own: marks add up where one runs within another.
        mark = f'FSYNCSTORAGE_TESTS_{uuid.uuid4().hex}'
        self._mark = mark.encode()
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, start_new_session=True,
            env=os.environ | {mark: '1'}, **options)

    @property
    def status(self):
        return self._process.poll()

    def left(self):
        """The numbers of all that run, of what it started, too."""
        found = [] if self.status is not None else [self._process.pid]
        for path in pathlib.Path('/proc').glob('[0-9]*/environ'):
            # One that has ended has none, whether it was waited for or not.
            with contextlib.suppress(OSError):
                if self._mark in path.read_bytes():
                    found.append(int(path.parent.name))
        return set(found)

    def interrupt(self):
        """The program and its group, as a terminal does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGINT)

    def abort(self, seconds):
        """End the program alone, which may say where it is."""
        self._process.send_signal(signal.SIGABRT)
        self.wait(seconds)
        self._process.kill()
        self._process.wait()

    def wait(self, seconds):
        """For its end, but not longer."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def kill(self):
        # What is forked meanwhile is found by the next look.
        while left := self.left():
            for number in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            time.sleep(0.01)
