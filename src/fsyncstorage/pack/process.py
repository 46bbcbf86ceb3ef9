"""The child process that packs or makes a forecast, seen from both sides.

The parent opens all files, and passes the numbers of their descriptors: the
child uses no file name.  The list of commands and reports is in
docs/internals/pack.rst.  A cancel or a close of the storage ends any wait of
the parent here.

Left to others: how the child is started and ended (processes), and the work
that it does (work).
"""

import contextlib
import re
import traceback
import typing
from collections.abc import Callable
from typing import Any

import ZODB.serialize
from ZODB.FileStorage.FileStorage import FileStorageError
from ZODB.POSException import POSKeyError

from .. import datafile
from ..format import scan
from ..format.references import references
from ..format.seal import UnknownVersion
from ..processes import starting
from ..processes.parent import Message
from ..processes.parent import ParentProcess
from ..processes.parent import serve
from .checksum import BLOCK
from .checksum import SIZE
from .plan import Job
from .plan import NothingToDo
from .plan import References
from .progress import PackWatch
from .work import Files
from .work import copied
from .work import foreseen


class Gone(FileStorageError):
    """The child ended without a result, or reported nonsense."""


class Damaged(Exception):
    """Something is wrong with the old file."""


class Done(typing.NamedTuple):
    copied_to: int      # in the old file
    written_to: int     # in the new one
    #: The hashes of blocks, for the checksum of the new file if it is wanted.
    blocks: bytes = b''
    #: That of the Copier.
    part: bytes = b''


# Seen from the parent

def is_possible(references: References) -> bool:
    """Can a child process do the work?

    It reads only the records of ZODB itself, not those of a wrapper.
    """
    return references is ZODB.serialize.referencesf and starting.is_possible()


class Process:

    def __init__(self, job: Job, files: Files, watch: PackWatch) -> None:
        self._watch = watch
        numbers = {name: None if file is None else file.fileno()
                   for name, file in vars(files).items()}
        self._job = {
            'files': numbers, **job._asdict(), 'stop': job.stop.hex()}
        self._process = starting.ChildProcess(
            'fsyncstorage.pack.process',
            [number for number in numbers.values() if number is not None])
        self.pid = self._process.pid

    def close(self) -> None:
        """End the child, whatever it is doing."""
        self._process.close()

    def copied(self, size: Callable[[], int]) -> Done:
        """Wait until the child has copied; `size` is that of `work.copied`."""
        done = self._result('done', size)
        with contextlib.suppress(KeyError, TypeError, ValueError):
            found = Done(int(done['copied_to']), int(done['written_to']),
                         bytes.fromhex(done['blocks']),
                         bytes.fromhex(done['part']))
            # The hashes of blocks, for the checksum: all, or none.
            if len(found.blocks) in (0, found.written_to // BLOCK * SIZE):
                return found
        raise _nonsense(done)

    def forecast(self) -> dict[str, Any]:
        """Wait until the child has made a forecast."""
        return self._result('forecast', lambda: 0)

    def _result(self, name: str, size: Callable[[], int]) -> dict[str, Any]:
        # If the child is killed, its reports end.
        with self._watch.ended_by(self._process.end):
            try:
                self._process.begin(self._job)
            finally:
                self._watch.go_on()  # a cancel may have ended the child
            for report in self._process.reports():
                match report:
                    case {'tell': [str(phase), int(done), int(total)]}:
                        self._watch.tell(phase, done, total)
                    case {'ask': 'size'}:
                        self._process.send({'size': size()})
                    case {'result': [str(found), dict(result)]} if (
                            found == name):
                        return result
                    case _:
                        raise _error(report)
            self._watch.go_on()
        raise Gone(
            'the process that packs ended before it was done (exit code'
            f' {self._process.exit_code()}), and nothing was changed')


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


# Seen from the child

def main(pid: int) -> None:
    serve(pid, _work, _failure)


def _work(job: Message, parent: ParentProcess) -> Message:

    def size() -> int:
        parent.report({'ask': 'size'})
        answer: int = parent.command()['size']
        return answer

    opened: dict[str, Any] = {
        name: None if number is None else _file(number)
        for name, number in job['files'].items()}
    files = Files(**opened)
    wanted = Job(*(job[name] for name in Job._fields))._replace(
        stop=bytes.fromhex(job['stop']))
    if files.new is None:
        return {'result': ['forecast', foreseen(wanted, files, parent.tell)]}
    copier = copied(wanted, files, references, parent.tell, size)
    checksum = copier.checksum
    return {'result': ['done', {
        'copied_to': copier.copied_to, 'written_to': copier.written_to,
        'part': copier.part.hex(),
        'blocks': '' if checksum is None else checksum.blocks.hex()}]}


def _file(number: int) -> datafile.DataFile:
    return datafile.DataFile(
        f'descriptor {number}', 0, lambda path, flags: number)


def _failure(error: Exception) -> Message:
    match error:
        case NothingToDo():
            return {'nothing': str(error)}
        case scan.Damage() | UnknownVersion():
            return {'damage': str(error)}
        case POSKeyError():
            return {'missing': error.args[0].hex()}
        case OSError(errno=number) if number is not None:
            return {'os': [number, error.strerror]}
        case ValueError():
            return {'unreadable': str(error)}
    return {'broken': traceback.format_exc()}
