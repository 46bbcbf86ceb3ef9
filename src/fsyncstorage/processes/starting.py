"""A process of our own, as its parent sees it.

It is a new program that runs `main` of one module.  It finds modules where its
parent does (a script of a buildout sets `sys.path` itself), and runs nothing
of the user's environment.  It gets open files by the numbers of their
descriptors; commands and reports are lines of JSON, on a pair of sockets.

It gets its job when it has said that it is ready, and runs the same code.
Before that it has touched no file, so that the parent can do without it.

Whatever the parent waits for, `end` in another thread ends that: it kills the
process, and shuts down their connection, because not every process that is
killed ends at once.

Left to others: what the process does, and what its reports mean.
"""

import collections
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
from typing import Any

from .version import VERSION

# The first line tells where modules are, the argument who the parent is.
# (No line: the parent has ended.)
_PROGRAM = ('import json, sys;'
            ' sys.path[:] = json.loads(sys.stdin.readline() or sys.exit(1));'
            ' from {package} import {module};'
            ' {module}.main(int(sys.argv[1]))')
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
    """Is this program a Python that could be started once more?"""
    return (not getattr(sys, 'frozen', False)
            and _PYTHON.fullmatch(os.path.basename(sys.executable or ''))
            is not None)


class ChildProcess:
    """`module` is its full name; `files` are numbers of descriptors."""

    def __init__(self, module: str, files: list[int]) -> None:
        if min(files) < _FIRST_OF_OTHERS:
            raise NotStarted(
                'a standard stream of this process is closed, and a file for'
                ' the other one has its number')
        try:
            self._connection, its_end = socket.socketpair()
        except OSError as error:
            raise NotStarted(str(error)) from None
        # Whatever socket.setdefaulttimeout was told, neither has a timeout.
        self._connection.settimeout(None)
        os.set_blocking(its_end.fileno(), True)
        with its_end:
            try:
                self._process = _started(module, its_end, files)
            except OSError as error:
                self._connection.close()
                raise NotStarted(str(error)) from None
        self.pid = self._process.pid
        #: Lines that it has written, and the pieces of one that has not ended.
        self._lines: collections.deque[bytes] = collections.deque()
        self._begun: list[bytes] = []

    def begin(self, job: dict[str, Any]) -> None:
        """Let it begin.  NotStarted: it cannot, and is to be closed."""
        # It may not even read what is sent.
        timer = threading.Timer(READY_WITHIN, self.end)
        timer.daemon = True
        timer.start()
        try:
            self.send([
                os.path.abspath(os.fsdecode(path)) for path in sys.path
                if isinstance(path, (str, bytes))])
            line = self.report() or ''
        finally:
            timer.cancel()
        try:
            ready = json.loads(line)
        except ValueError:
            ready = None
        if ready == {'ready': VERSION}:
            self.send(job)
            return
        if isinstance(ready, dict) and 'ready' in ready:
            raise NotStarted('the program on the disk is another one than'
                             ' this process runs: restart it')
        self.end()
        raise NotStarted(
            f'in {READY_WITHIN:.0f} s it said {line[:80]!r}, and exit code'
            f' {self.exit_code()}; its standard error is that of this'
            ' process')

    def send(self, command: Any) -> None:
        # If it has ended, the end of its reports says so.
        with contextlib.suppress(ConnectionError):
            self._connection.sendall(json.dumps(command).encode() + b'\n')

    def report(self, within: float | None = None) -> str | None:
        """The next line that it writes; None: it has ended.

        Silent: for so many seconds, it has written nothing.
        """
        self._connection.settimeout(within)
        while not self._lines:
            try:
                piece = self._connection.recv(1 << 16)
            except TimeoutError:
                raise Silent(
                    f'it has said nothing for {within:.0f} s') from None
            except ConnectionError:  # it has not read all that was sent
                piece = b''
            if not piece:  # (a line that does not end was killed in it)
                return None
            *ends, rest = piece.split(b'\n')
            for end in ends:
                self._lines.append(b''.join([*self._begun, end]))
                self._begun.clear()
            self._begun.append(rest)
        return self._lines.popleft().decode('utf-8', 'replace')

    def end(self) -> None:
        """Called in any thread: nobody waits for it any more."""
        self._process.kill()
        with contextlib.suppress(OSError):  # as when it has ended by itself
            self._connection.shutdown(socket.SHUT_RDWR)

    def exit_code(self) -> int | None:
        """None: it does not end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(END_WITHIN)
        return None

    def close(self) -> bool:
        """End it, whatever it does.  False: it was killed, and has not
        ended."""
        self.end()
        ended = self.exit_code() is not None
        self._connection.close()
        return ended


def _started(module: str, end: socket.socket,
             files: list[int]) -> subprocess.Popen[bytes]:
    package, _, name = module.rpartition('.')
    return subprocess.Popen(
        [sys.executable, '-I', '-c',
         _PROGRAM.format(package=package, module=name), str(os.getpid())],
        stdin=end.fileno(), stdout=end.fileno(),
        # If this process began without a standard error, its number may be
        # that of any file by now: also that of the data file.
        stderr=subprocess.DEVNULL if sys.__stderr__ is None else None,
        pass_fds=files,
        # Ctrl-C is for the parent, which ends this one.
        start_new_session=True)
