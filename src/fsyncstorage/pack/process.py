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
from ..format import index
from ..format import scan
from ..format.references import references
from ..format.seal import UnknownVersion
from ..format.window import Pread
from ..format.window import Window
from ..processes import starting
from ..processes.parent import Message
from ..processes.parent import ParentProcess
from ..processes.parent import serve
from ..processes.reading import Reader
from .checksum import BLOCK
from .checksum import SIZE
from .copying import Copier
from .output import Pacer
from .plan import Job
from .plan import NothingToDo
from .plan import References
from .pointers import Places
from .progress import Watch
from .work import NoRoom
from .work import copied
from .work import foreseen


class Gone(FileStorageError):
    """The child ended without a result, or reported nonsense."""


class Damaged(Exception):
    """Something is wrong with the old file."""


class Done(typing.NamedTuple):
    copied_to: int      # in the old file
    written_to: int     # in the new one
    places: Places
    gone_blobs: int = 0
    #: The hashes of blocks, for the checksum of the new file if it is wanted.
    blocks: bytes = b''


# Seen from the parent

def is_possible(references: References) -> bool:
    """Can a child process do the work?

    It reads only the records of ZODB itself, not those of a wrapper.
    """
    return references is ZODB.serialize.referencesf and starting.is_possible()


class Process:
    """`old`, `new`, `index` and `removed` are open files.

    A forecast has no new file.
    """

    def __init__(self, job: Job, old: datafile.DataFile,
                 new: datafile.DataFile | None,
                 index: datafile.DataFile | None,
                 removed: datafile.DataFile | None,
                 watch: Watch) -> None:
        self._watch = watch
        files = {'old': old, 'new': new, 'index': index, 'removed': removed}
        numbers = {name: None if file is None else file.fileno()
                   for name, file in files.items()}
        self._job = {**numbers, **job._asdict(), 'stop': job.stop.hex()}
        self._process = starting.ChildProcess(
            'fsyncstorage.pack.process',
            [number for number in numbers.values() if number is not None])
        self.pid = self._process.pid

    def close(self) -> None:
        """End the child, whatever it is doing."""
        self._process.close()

    def copied(self, next_end: Callable[[int], int | None]) -> Done:
        """Wait until the child has copied.

        `next_end(copied to)` returns up to where the child copies next, or
        None to end the copying.
        """
        found = self._result(next_end)
        if not isinstance(found, Done):
            raise _nonsense(found)
        return found

    def forecast(self) -> dict[str, Any]:
        """Wait until the child has made a forecast."""
        found = self._result(lambda copied_to: None)
        if not isinstance(found, dict):
            raise _nonsense(found)
        return found

    def _result(self, next_end: Callable[[int], int | None]
                ) -> Done | dict[str, Any]:
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
                    case {'copied_to': int(copied_to)}:
                        self._process.send({'copy_to': next_end(copied_to)})
                    case {'done': dict(done)}:
                        return _done(done)
                    case {'forecast': dict(found)}:
                        return found
                    case _:
                        raise _error(report)
            self._watch.go_on()
        raise Gone(
            'the process that packs ended before it was done (exit code'
            f' {self._process.exit_code()}), and nothing was changed')


def _done(found: dict[str, Any]) -> Done:
    match found:
        case {'copied_to': int(copied_to), 'written_to': int(written_to),
              'places': places, 'gone_blobs': int(gone_blobs),
              'blocks': str(blocks)}:
            with contextlib.suppress(KeyError, OverflowError, TypeError,
                                     ValueError):
                row = bytes.fromhex(blocks)
                # The hashes of blocks, for the checksum: all, or none.
                if len(row) in (0, written_to // BLOCK * SIZE):
                    return Done(copied_to, written_to,
                                Places.from_json(places), gone_blobs, row)
    raise _nonsense(found)


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


# Seen from the child

def main(pid: int) -> None:
    serve(pid, _work, _failure)


def _work(job: Message, parent: ParentProcess) -> Message:
    removed = None if job['removed'] is None else _file(job['removed'])
    wanted = Job(*(job[name] for name in Job._fields))._replace(
        stop=bytes.fromhex(job['stop']))
    if job['new'] is None:
        return {'forecast': foreseen(
            wanted, Reader(job['old']), removed, parent.tell)}
    return do(wanted, Reader(job['old']), _file(job['new']),
              _file(job['index']), removed, references, parent)


def _file(number: int) -> datafile.DataFile:
    return datafile.DataFile(
        f'descriptor {number}', 0, lambda path, flags: number)


def do(job: Job, pread: Pread, new: datafile.DataFile,
       to_index: datafile.DataFile, removed: datafile.DataFile | None,
       references: References, parent: 'Parent') -> Message:
    """Copy, until the parent says that the rest is small.

    To write a large index takes long.  So the index is written before the last
    rounds of copying, and lacks what these rounds copy.
    """
    pacer = Pacer(new)
    copier = copied(job, pread, new, pacer, removed, references, parent.tell)
    _catch_up(copier, pread, pacer, parent)
    index.write(to_index, index.Snapshot(copier.index, copier.written_to),
                new, noted=Pacer(to_index).written)
    _catch_up(copier, pread, pacer, parent)
    checksum = copier.checksum
    return {'done': {
        'copied_to': copier.copied_to, 'written_to': copier.written_to,
        'places': copier.places.as_json(),
        'gone_blobs': copier.gone_blobs,
        'blocks': '' if checksum is None else checksum.blocks.hex()}}


def _catch_up(copier: Copier, pread: Pread, pacer: Pacer,
              parent: 'Parent') -> None:
    while True:
        copier.flush()
        pacer.sync(copier.written_to)
        parent.report({'copied_to': copier.copied_to})
        next_end = parent.command()['copy_to']
        if next_end is None:
            return
        copier.copy_later(Window(pread, next_end), parent.tell)


def _failure(error: Exception) -> Message:
    match error:
        case NothingToDo():
            return {'nothing': str(error)}
        case NoRoom():
            return {'room': [error.needed, error.free]}
        case scan.Damage() | UnknownVersion():
            return {'damage': str(error)}
        case POSKeyError():
            return {'missing': error.args[0].hex()}
        case OSError(errno=number) if number is not None:
            return {'os': [number, error.strerror]}
        case ValueError():
            return {'unreadable': str(error)}
    return {'broken': traceback.format_exc()}


class Parent(typing.Protocol):

    def command(self) -> Message: ...

    def report(self, message: Message) -> None: ...

    def tell(self, phase: str, done: int, total: int) -> None: ...
