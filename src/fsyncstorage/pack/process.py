"""The process that packs, as its parent sees it.

It is a new program, not a fork: a fork would have the locks, the event loop
and the sockets of its parent, and the lock of the file.  It finds modules
where its parent does (a script of a buildout sets `sys.path` itself), and runs
nothing of the user's environment.

Left to others: what it does (work), and how (child).
"""

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import ZODB.serialize
from ZODB.FileStorage.FileStorage import FileStorageError
from ZODB.POSException import POSKeyError

from .. import datafile
from .marking import References
from .places import Places
from .progress import Tell
from .work import Job
from .work import NothingToDo

# The first line tells where modules are.
_PROGRAM = ('import json, sys; sys.path[:] = json.loads(sys.stdin.readline());'
            ' from fsyncstorage.pack import child; child.main()')
# `sys.executable` may be the program that Python is a part of.
_PYTHON = re.compile(r'python|pypy')

Message = dict[str, Any]


class NotStarted(Exception):
    """There is no such process, and nothing was done."""


class Gone(FileStorageError):
    """The process ended without a result."""


def is_possible(references: References) -> bool:
    """It reads the records of ZODB, and none that a wrapper has changed."""
    return (references is ZODB.serialize.referencesf
            and _PYTHON.search(os.path.basename(sys.executable or ''))
            is not None)


class Damaged(Exception):
    """Something is wrong with the old file."""


class Process:
    """`old`, `new`, `index` and `removed` are open files."""

    def __init__(self, job: Job, old: datafile.DataFile,
                 new: datafile.DataFile, index: datafile.DataFile,
                 removed: datafile.DataFile | None, tell: Tell) -> None:
        self._tell = tell
        numbers = {
            'old': old.fileno(), 'new': new.fileno(), 'index': index.fileno(),
            'removed': None if removed is None else removed.fileno()}
        try:
            self._process = subprocess.Popen(
                [sys.executable, '-I', '-c', _PROGRAM],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                pass_fds=[number for number in numbers.values()
                          if number is not None],
                # Ctrl-C is for the parent, which ends this one.
                start_new_session=True)
        except OSError as error:
            raise NotStarted(str(error)) from None
        self.pid = self._process.pid
        self._send([os.path.abspath(path) for path in sys.path])
        self._send({
            **numbers, 'parent': os.getpid(), 'stop': job.stop.hex(),
            'end': job.end, 'gc': job.gc})

    def close(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.wait()
        for file in self._process.stdin, self._process.stdout:
            assert file is not None
            with contextlib.suppress(OSError):
                file.close()

    def copied(self, next_end: Callable[[int], int | None]) -> Message:
        """Wait until it has copied; return what its last report says.

        `next_end(copied to)` says up to where it copies then, or None.
        """
        reports = self._reports()
        if 'ready' not in next(reports, {}):
            raise NotStarted(
                f'exit code {self._process.wait()}; its standard error'
                ' is that of this process')
        for report in reports:
            if 'tell' in report:
                self._tell(*report['tell'])
            elif 'copied_to' in report:
                self._send({'copy_to': next_end(report['copied_to'])})
            elif 'done' in report:
                done: Message = report['done']
                done['places'] = Places.from_json(done['places'])
                return done
            else:
                raise _error(report)
        raise Gone(
            'the process that packs ended before it was done (exit code'
            f' {self._process.wait()}), and nothing was changed')

    def _reports(self) -> Iterator[Message]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith('\n'):  # else it was killed in it
                yield json.loads(line)

    def _send(self, message: Any) -> None:
        assert self._process.stdin is not None
        # If it has ended, the end of its reports says so.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(message) + '\n')
            self._process.stdin.flush()


def _error(report: Message) -> Exception:
    [(kind, what)] = report.items()
    match kind:
        case 'nothing':
            return NothingToDo(what)
        case 'damage':
            return Damaged(what)
        case 'missing':
            return POSKeyError(bytes.fromhex(what))
        case 'os':
            return OSError(*what)
        case 'unreadable':
            return ValueError(what)
    return Gone(f'the process that packs failed: {what}')
