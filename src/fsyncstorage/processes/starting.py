"""A process of our own, seen from its parent.

It is a new program that runs `main` of one module.  It finds modules where its
parent does (a script of a buildout sets `sys.path` itself), and ignores the
user's settings of Python.  It gets open files by the numbers of their
descriptors.  Commands and reports are lines of JSON, on a pair of sockets.

It gets its job when it has reported that it is ready, and that it runs the
same code as the parent.  Before that it has touched no file, so that the
parent can still do the work without it.

The parent may wait for the process in one thread.  `end`, called in another
thread, ends this wait: it kills the process, and shuts down their connection,
because a process that is killed does not always end at once.

Left to others: what the process does, and what its reports mean.
"""

import collections
import contextlib
import functools
import json
import logging
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from .parent import VERSION

logger = logging.getLogger(__name__)

# The first line says where modules are; the argument is the pid of the parent.
# (If there is no line, the parent has ended.)
_PROGRAM = ('import json, sys;'
            ' sys.path[:] = json.loads(sys.stdin.readline() or sys.exit(1));'
            ' from {package} import {module};'
            ' {module}.main(int(sys.argv[1]))')
# `sys.executable` may be a program that embeds Python.
_PYTHON = re.compile(r'(python|pypy)[0-9.]*[a-z]*')
# Seconds that a process may be silent before it is ready; and seconds in which
# it must have ended after it was killed.  (It does not end while a disk does
# not answer it.)
READY_WITHIN = 60.0
END_WITHIN = 5.0
# Numbers of the standard streams are below this one.
_FIRST_OF_OTHERS = 3


class NotStarted(Exception):
    """The process could not be started, and nothing was done."""


class Silent(Exception):
    """The process has reported nothing for too long."""


def is_possible() -> bool:
    """Is this program a Python that could be started once more?"""
    return (not getattr(sys, 'frozen', False)
            and _PYTHON.fullmatch(os.path.basename(sys.executable or ''))
            is not None)


class ChildProcess:
    """`module` is a full name; `files` are numbers of descriptors."""

    def __init__(self, module: str, files: list[int]) -> None:
        if min(files, default=_FIRST_OF_OTHERS) < _FIRST_OF_OTHERS:
            raise NotStarted(
                'a standard stream of this process is closed, and a file for'
                ' the other one has its number')
        try:
            self._connection, its_end = socket.socketpair()
        except OSError as error:
            raise NotStarted(str(error)) from None
        # Neither end has a timeout, even if socket.setdefaulttimeout was used.
        self._connection.settimeout(None)
        os.set_blocking(its_end.fileno(), True)
        with its_end:
            try:
                self._process = _started(module, its_end, files)
            except OSError as error:
                self._connection.close()
                raise NotStarted(str(error)) from None
        self.pid = self._process.pid
        self._module = module
        #: Lines that it has written, and the pieces of an unfinished line.
        self._lines: collections.deque[bytes] = collections.deque()
        self._begun: list[bytes] = []

    def begin(self, job: dict[str, Any]) -> None:
        """Let it begin.  NotStarted: it cannot; the caller must close it."""
        line = ''
        # (It may not even read what is sent.)
        self._connection.settimeout(READY_WITHIN)
        with contextlib.suppress(TimeoutError, Silent):
            self.send([
                os.path.abspath(os.fsdecode(path)) for path in sys.path
                if isinstance(path, (str, bytes))])
            line = self.report(READY_WITHIN) or ''
        self._connection.settimeout(None)
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
        # If it has ended, `report` tells so.
        with contextlib.suppress(ConnectionError):
            self._connection.sendall(json.dumps(command).encode() + b'\n')

    def report(self, within: float | None = None) -> str | None:
        """The next line that it writes; None: it has ended.

        Silent: it has written nothing for `within` seconds.
        """
        self._connection.settimeout(within)
        while not self._lines:
            try:
                piece = self._connection.recv(1 << 16)
            except TimeoutError:
                raise Silent(
                    f'it has said nothing for {within:.0f} s') from None
            except ConnectionError:  # it ended before it read all
                piece = b''
            if not piece:  # (it was killed in the middle of a last line)
                return None
            *ends, rest = piece.split(b'\n')
            for end in ends:
                self._lines.append(b''.join([*self._begun, end]))
                self._begun.clear()
            self._begun.append(rest)
        return self._lines.popleft().decode('utf-8', 'replace')

    def reports(self, within: float | None = None) -> Iterator[Any]:
        """All that it reports, as with `report`, until it has ended.

        (A line that is no report comes as a text, which nobody expects.)
        """
        for line in iter(functools.partial(self.report, within), None):
            try:
                yield json.loads(line)
            except ValueError:
                yield line

    def end(self) -> None:
        """Kill it, from any thread: then no thread waits for it any more."""
        self._process.kill()
        with contextlib.suppress(OSError):  # it may have ended already
            self._connection.shutdown(socket.SHUT_RDWR)

    def exit_code(self) -> int | None:
        """Wait for its end.  None: it does not end in time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(END_WITHIN)
        return None

    def close(self) -> bool:
        """End it, whatever it is doing.

        False, with a warning: it was killed, but has not ended.
        """
        self.end()
        ended = self.exit_code() is not None
        self._connection.close()
        if not ended:
            logger.warning(
                'The process %s (%s) was killed, and has not ended: it may'
                ' wait for a disk that does not answer',
                self.pid, self._module)
        return ended


def _started(module: str, end: socket.socket,
             files: list[int]) -> subprocess.Popen[bytes]:
    package, _, name = module.rpartition('.')
    return subprocess.Popen(
        [sys.executable, '-I', '-c',
         _PROGRAM.format(package=package, module=name), str(os.getpid())],
        stdin=end.fileno(), stdout=end.fileno(),
        # If this process was started without a standard error, any file may
        # have its number by now, even the data file.
        stderr=subprocess.DEVNULL if sys.__stderr__ is None else None,
        pass_fds=files,
        # Ctrl-C must reach only the parent, which ends this process.
        start_new_session=True)
