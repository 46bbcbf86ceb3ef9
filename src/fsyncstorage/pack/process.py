"""The process that packs, as its parent sees it.

It is a new program, not a fork: a fork would have the locks, the event loop
and the sockets of its parent, and the lock of the file.  It finds modules
where its parent does (a script of a buildout sets `sys.path` itself), and runs
nothing of the user's environment.

Whatever it waits for, it can be ended: by a cancel, by a close of the storage,
and when it is not ready in time.  What it reports is checked.

Left to others: what it does (work), and how (child).
"""

import contextlib
import json
import logging
import os
import re
import subprocess
import sys
import threading
import typing
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import ZODB.serialize
from ZODB.FileStorage.FileStorage import FileStorageError
from ZODB.POSException import POSKeyError

from .. import datafile
from .forecast import Forecast
from .marking import References
from .places import Places
from .plan import Job
from .plan import NothingToDo
from .progress import Watch
from .version import VERSION
from .work import NoRoom

logger = logging.getLogger(__name__)

# The first line tells where modules are.
_PROGRAM = ('import json, sys; sys.path[:] = json.loads(sys.stdin.readline());'
            ' from fsyncstorage.pack import child; child.main()')
# `sys.executable` may be the program that Python is a part of.
_PYTHON = re.compile(r'(python|pypy)[0-9.]*[a-z]*')
# Seconds until it must have begun; and until it must have ended when it is
# killed.  (One that waits for a disk that does not answer does not end.)
READY_WITHIN = 60.0
END_WITHIN = 5.0
# Numbers of the standard streams are below this one.
_FIRST_OF_OTHERS = 3

Message = dict[str, Any]
T = typing.TypeVar('T')


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
    """`old`, `new`, `index` and `removed` are open files.

    For a forecast there is no new file.
    """

    def __init__(self, job: Job, old: datafile.DataFile,
                 new: datafile.DataFile | None,
                 index: datafile.DataFile | None,
                 removed: datafile.DataFile | None, watch: Watch) -> None:
        self._watch = watch
        files = {'old': old, 'new': new, 'index': index, 'removed': removed}
        numbers = {name: None if file is None else file.fileno()
                   for name, file in files.items()}
        to_pass = [number for number in numbers.values() if number is not None]
        if min(to_pass) < _FIRST_OF_OTHERS:
            raise NotStarted(
                'a standard stream of this process is closed, and a file of'
                ' the pack has its number')
        self._job = {
            **numbers, 'parent': os.getpid(), 'stop': job.stop.hex(),
            'end': job.end, 'gc': job.gc, 'rate': job.rate}
        try:
            self._process = subprocess.Popen(
                [sys.executable, '-I', '-c', _PROGRAM],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                encoding='utf-8', errors='replace', pass_fds=to_pass,
                # Ctrl-C is for the parent, which ends this one.
                start_new_session=True)
        except OSError as error:
            raise NotStarted(str(error)) from None
        self.pid = self._process.pid

    def close(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        if self._exit_code() is None:
            logger.warning(
                'The process %s that packed was killed, and has not ended: it'
                ' may wait for a disk that does not answer', self.pid)
        for file in self._process.stdin, self._process.stdout:
            assert file is not None
            with contextlib.suppress(OSError):
                file.close()

    def _exit_code(self) -> int | None:
        """None: it does not end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(END_WITHIN)
        return None

    def copied(self, next_end: Callable[[int], int | None]) -> Done:
        """Wait until it has copied.

        `next_end(copied to)` says up to where it copies then, or None.
        """
        def answered(report: Any) -> Done | None:
            match report:
                case {'copied_to': int(copied_to)}:
                    self._send({'copy_to': next_end(copied_to)})
                    return None
                case {'done': {
                        'copied_to': int(copied_to),
                        'written_to': int(written_to), 'places': places}}:
                    return Done(copied_to, written_to, _places(places))
            raise _error(report)

        return self._outcome(answered)

    def forecast(self) -> Forecast:
        """Wait until it has made one."""
        def answered(report: Any) -> Forecast:
            match report:
                case {'forecast': list(found)}:
                    return _forecast(found)
            raise _error(report)

        return self._outcome(answered)

    def _outcome(self, answered: Callable[[Any], T | None]) -> T:
        """Wait until `answered(report)` returns it."""
        # When it is killed, its reports end.
        with self._watch.ended_by(self._process.kill):
            reports = self._reports()
            self._wait_until_ready(reports)
            for line in reports:
                report = _parsed(line)
                match report:
                    case {'tell': [str(phase), int(done), int(total)]}:
                        self._watch.tell(phase, done, total)
                    case _:
                        outcome = answered(report)
                        if outcome is not None:
                            return outcome
            self._watch.go_on()
        raise Gone(
            'the process that packs ended before it was done (exit code'
            f' {self._exit_code()}), and nothing was changed')

    def _wait_until_ready(self, reports: Iterator[str]) -> None:
        """NotStarted if it is not; it may not even read what is sent."""
        timer = threading.Timer(READY_WITHIN, self._process.kill)
        timer.daemon = True
        timer.start()
        try:
            self._send([
                os.path.abspath(os.fsdecode(path)) for path in sys.path
                if isinstance(path, (str, bytes))])
            self._send(self._job)
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
        self._process.kill()
        raise NotStarted(
            f'in {READY_WITHIN:.0f} s it said {line[:80]!r}, and exit code'
            f' {self._exit_code()}; its standard error is that of this'
            ' process')

    def _reports(self) -> Iterator[str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith('\n'):  # else it was killed in it
                yield line

    def _send(self, message: Any) -> None:
        assert self._process.stdin is not None
        # If it has ended, the end of its reports says so.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(message) + '\n')
            self._process.stdin.flush()


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


def _forecast(found: list[Any]) -> Forecast:
    try:
        return Forecast.from_json(found)
    except (TypeError, ValueError):
        raise _nonsense(found) from None


def _nonsense(report: Any) -> Gone:
    return Gone('the process that packs reported what cannot be:'
                f' {str(report)[:80]!r}. Nothing was changed')


def _error(report: Any) -> Exception:
    match report:
        case {'nothing': str(why)}:
            return NothingToDo(why)
        case {'room': [int(needed), int(free)]}:
            return NoRoom(needed, free)
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
