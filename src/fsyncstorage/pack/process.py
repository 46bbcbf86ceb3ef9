"""The process that packs, as its parent sees it.

It is a new program, not a fork: a fork would have the locks, the event loop
and the sockets of its parent, and the lock of the file.  It finds modules
where its parent does (a script of a buildout sets `sys.path` itself), and runs
nothing of the user's environment.

It gets its job when it has said that it is ready, and runs the same code.
Before that it has written nothing, so that the parent can do the job itself.

Whatever the parent waits for, a cancel, a close of the storage, or the time in
which the process must be ready ends that: it kills the process, and shuts
down their connection, because not every process that is killed ends at once.
What the process reports is checked.

Left to others: what it does (work), and how (child).
"""

import contextlib
import json
import logging
import os
import re
import socket
import subprocess
import sys
import threading
import typing
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any
from typing import TextIO

import ZODB.serialize
from ZODB.FileStorage.FileStorage import FileStorageError
from ZODB.POSException import POSKeyError

from .. import datafile
from .marking import References
from .places import Places
from .progress import Watch
from .version import VERSION
from .work import Job
from .work import NothingToDo

logger = logging.getLogger(__name__)

# The first line tells where modules are, the argument who the parent is.
_PROGRAM = ('import json, sys; sys.path[:] = json.loads(sys.stdin.readline());'
            ' from fsyncstorage.pack import child;'
            ' child.main(int(sys.argv[1]))')
# `sys.executable` may be the program that Python is a part of.
_PYTHON = re.compile(r'(python|pypy)[0-9.]*[a-z]*')
# Seconds until it must have begun; and until it must have ended when it is
# killed.  (One that waits for a disk that does not answer does not end.)
READY_WITHIN = 60.0
END_WITHIN = 5.0
# Numbers of the standard streams are below this one.
_FIRST_OF_OTHERS = 3

Message = dict[str, Any]


class NotStarted(Exception):
    """There is no such process, and nothing was done."""


class Gone(FileStorageError):
    """The process ended without a result, or reported nonsense."""


class Damaged(Exception):
    """Something is wrong with the old file."""


class Done(typing.NamedTuple):
    copied_to: int      # in the old file
    written_to: int     # in the new one
    places: Places


def is_possible(references: References) -> bool:
    """It reads the records of ZODB, and none that a wrapper has changed."""
    return (references is ZODB.serialize.referencesf
            and not getattr(sys, 'frozen', False)
            and _PYTHON.fullmatch(os.path.basename(sys.executable or ''))
            is not None)


class Process:
    """`old`, `new`, `index` and `removed` are open files."""

    def __init__(self, job: Job, old: datafile.DataFile,
                 new: datafile.DataFile, index: datafile.DataFile,
                 removed: datafile.DataFile | None, watch: Watch) -> None:
        self._watch = watch
        numbers = {
            'old': old.fileno(), 'new': new.fileno(), 'index': index.fileno(),
            'removed': None if removed is None else removed.fileno()}
        to_pass = [number for number in numbers.values() if number is not None]
        if min(to_pass) < _FIRST_OF_OTHERS:
            raise NotStarted(
                'a standard stream of this process is closed, and a file of'
                ' the pack has its number')
        self._job = {
            **numbers, 'stop': job.stop.hex(), 'end': job.end, 'gc': job.gc}
        try:
            self._connection, its_end = socket.socketpair()
        except OSError as error:
            raise NotStarted(str(error)) from None
        # Whatever socket.setdefaulttimeout was told, neither has a timeout.
        self._connection.settimeout(None)
        os.set_blocking(its_end.fileno(), True)
        with its_end:
            try:
                self._process = _started(its_end, to_pass)
            except OSError as error:
                self._connection.close()
                raise NotStarted(str(error)) from None
        self.pid = self._process.pid

    def _end(self) -> None:
        """Called in any thread: nobody waits for it any more."""
        self._process.kill()
        with contextlib.suppress(OSError):  # as when it has ended by itself
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End it, whatever it does."""
        self._end()
        if self._exit_code() is None:
            logger.warning(
                'The process %s that packed was killed, and has not ended: it'
                ' may wait for a disk that does not answer', self.pid)
        self._connection.close()

    def _exit_code(self) -> int | None:
        """None: it does not end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(END_WITHIN)
        return None

    def copied(self, next_end: Callable[[int], int | None]) -> Done:
        """Wait until it has copied.

        `next_end(copied to)` says up to where it copies then, or None.
        """
        with self._watch.ended_by(self._end), \
                self._connection.makefile(
                    encoding='utf-8', errors='replace') as received:
            reports = _whole_lines(received)
            self._wait_until_ready(reports)
            self._send(self._job)
            for line in reports:
                report = _parsed(line)
                match report:
                    case {'tell': [str(phase), int(done), int(total)]}:
                        self._watch.tell(phase, done, total)
                    case {'copied_to': int(copied_to)}:
                        self._send({'copy_to': next_end(copied_to)})
                    case {'done': {
                            'copied_to': int(copied_to),
                            'written_to': int(written_to), 'places': places}}:
                        return Done(copied_to, written_to, _places(places))
                    case _:
                        raise _error(report)
            self._watch.go_on()
        raise Gone(
            'the process that packs ended before it was done (exit code'
            f' {self._exit_code()}), and nothing was changed')

    def _wait_until_ready(self, reports: Iterator[str]) -> None:
        """NotStarted if it is not; it may not even read what is sent."""
        timer = threading.Timer(READY_WITHIN, self._watch.wake)
        timer.daemon = True
        timer.start()
        try:
            self._send([
                os.path.abspath(os.fsdecode(path)) for path in sys.path
                if isinstance(path, (str, bytes))])
            line = next(reports, '')
        finally:
            timer.cancel()
        self._watch.go_on()
        try:
            ready = json.loads(line)
        except ValueError:
            ready = None
        if ready == {'ready': VERSION}:
            return
        if isinstance(ready, dict) and 'ready' in ready:
            raise NotStarted('the program on the disk is another one than'
                             ' this process runs: restart it')
        self._end()
        raise NotStarted(
            f'in {READY_WITHIN:.0f} s it said {line[:80]!r}, and exit code'
            f' {self._exit_code()}; its standard error is that of this'
            ' process')

    def _send(self, message: Any) -> None:
        # If it has ended, the end of its reports says so.
        with contextlib.suppress(ConnectionError):
            self._connection.sendall(json.dumps(message).encode() + b'\n')


def _started(end: socket.socket,
             to_pass: list[int]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, '-I', '-c', _PROGRAM, str(os.getpid())],
        stdin=end.fileno(), stdout=end.fileno(),
        # If this process began without a standard error, its number may be
        # that of any file by now: also that of the data file.
        stderr=subprocess.DEVNULL if sys.__stderr__ is None else None,
        pass_fds=to_pass,
        # Ctrl-C is for the parent, which ends this one.
        start_new_session=True)


def _whole_lines(received: TextIO) -> Iterator[str]:
    # An error: it has ended, and has not read all that was sent.
    with contextlib.suppress(ConnectionError):
        for line in received:
            if line.endswith('\n'):  # else it was killed in it
                yield line


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        raise _nonsense(line) from None


def _places(found: Any) -> Places:
    try:
        return Places.from_json(found)
    except (KeyError, OverflowError, TypeError, ValueError):
        raise _nonsense(found) from None


def _nonsense(report: Any) -> Gone:
    return Gone('the process that packs reported what cannot be:'
                f' {str(report)[:80]!r}. Nothing was changed')


def _error(report: Any) -> Exception:
    match report:
        case {'nothing': str(why)}:
            return NothingToDo(why)
        case {'damage': str(what)}:
            return Damaged(what)
        case {'missing': str(oid)} if re.fullmatch('[0-9a-f]{16}', oid):
            return POSKeyError(bytes.fromhex(oid))
        case {'os': [int(number), str(what)]}:
            return OSError(number, what)
        case {'unreadable': str(what)}:
            return ValueError(what)
        case {'broken': str(trace)}:
            return Gone(f'the process that packs failed: {trace}')
    return _nonsense(report)
