"""A process of our own, as its parent sees it.

It is a new program that runs `main` of one module.  It finds modules where its
parent does (a script of a buildout sets `sys.path` itself), and runs nothing
of the user's environment.  It gets open files by the numbers of their
descriptors, and commands and reports are lines of JSON.

Whatever it does, it can be ended, and a caller that waits for its reports then
goes on.

Left to others: what it does, and what its reports mean.
"""

import collections
import contextlib
import json
import os
import re
import select
import subprocess
import sys
import threading
from typing import Any

from .version import VERSION

# The first line tells where modules are.
_PROGRAM = ('import json, sys; sys.path[:] = json.loads(sys.stdin.readline());'
            ' from {package} import {module}; {module}.main()')
# `sys.executable` may be the program that Python is a part of.
_PYTHON = re.compile(r'(python|pypy)[0-9.]*[a-z]*')
# Seconds until it must have begun; and until it must have ended when it is
# killed.  (One that waits for a disk that does not answer does not end.)
READY_WITHIN = 60.0
END_WITHIN = 5.0
# Numbers of the standard streams are below this one.
_FIRST_OF_OTHERS = 3


class NotStarted(Exception):
    """There is no such process, and nothing was done."""


class Silent(Exception):
    """The process has said nothing for too long."""


def is_possible() -> bool:
    """Is this program a Python that could run another module?"""
    return (not getattr(sys, 'frozen', False)
            and _PYTHON.fullmatch(os.path.basename(sys.executable or ''))
            is not None)


class ChildProcess:
    """`module` is its full name; `files` are numbers of descriptors."""

    def __init__(self, module: str, files: list[int]) -> None:
        if min(files) < _FIRST_OF_OTHERS:
            raise NotStarted(
                'a standard stream of this process is closed, and a file has'
                ' its number')
        package, _, name = module.rpartition('.')
        try:
            self._process = subprocess.Popen(
                [sys.executable, '-I', '-c',
                 _PROGRAM.format(package=package, module=name)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                pass_fds=files,
                # Ctrl-C is for the parent, which ends this one.
                start_new_session=True)
        except OSError as error:
            raise NotStarted(str(error)) from None
        self.pid = self._process.pid
        #: Lines that it has written, and the pieces of one that has not ended.
        self._lines: collections.deque[bytes] = collections.deque()
        self._begun: list[bytes] = []

    def begin(self, job: dict[str, Any]) -> None:
        """Let it begin.  NotStarted: it cannot, and is to be closed."""
        # It may not even read what is sent.
        timer = threading.Timer(READY_WITHIN, self.kill)
        timer.daemon = True
        timer.start()
        try:
            self.send([
                os.path.abspath(os.fsdecode(path)) for path in sys.path
                if isinstance(path, (str, bytes))])
            self.send({**job, 'parent': os.getpid()})
            line = self.report() or ''
        finally:
            timer.cancel()
        try:
            ready = json.loads(line)
        except ValueError:
            ready = None
        if ready == {'ready': VERSION}:
            return
        if isinstance(ready, dict) and 'ready' in ready:
            raise NotStarted('the program on the disk is another one than'
                             ' this process runs: restart it')
        self.kill()
        raise NotStarted(
            f'in {READY_WITHIN:.0f} s it said {line[:80]!r}, and exit code'
            f' {self.exit_code()}; its standard error is that of this'
            ' process')

    def send(self, command: Any) -> None:
        assert self._process.stdin is not None
        # If it has ended, the end of its reports says so.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(command).encode() + b'\n')
            self._process.stdin.flush()

    def report(self, within: float | None = None) -> str | None:
        """The next line that it writes; None: it has ended.

        Silent: for so many seconds, it has written nothing.
        """
        assert self._process.stdout is not None
        number = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(number, select.POLLIN)
        while not self._lines:
            if not poll.poll(None if within is None else within * 1000):
                raise Silent(f'it has said nothing for {within:.0f} s')
            piece = os.read(number, 1 << 16)
            if not piece:  # (a line that does not end was killed in it)
                return None
            *ends, rest = piece.split(b'\n')
            for end in ends:
                self._lines.append(b''.join([*self._begun, end]))
                self._begun.clear()
            self._begun.append(rest)
        return self._lines.popleft().decode('utf-8', 'replace')

    def kill(self) -> None:
        self._process.kill()

    def exit_code(self) -> int | None:
        """None: it does not end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(END_WITHIN)
        return None

    def close(self) -> bool:
        """End it, whatever it does.  False: it was killed, and has not
        ended."""
        self.kill()
        ended = self.exit_code() is not None
        for file in self._process.stdin, self._process.stdout:
            assert file is not None
            with contextlib.suppress(OSError):
                file.close()
        return ended
