"""The process that packs: it does the work, and reports to its parent.

Its parent has opened all files, and passes the numbers of their descriptors:
no name is used here.  Commands come on the standard input, reports go to what
was the standard output, each a line of JSON (their list is in
docs/internals/pack.rst).

It says that it is ready before it has its job, and touches no file until then.

It ends when its parent does: then the commands end, or it has another parent.
(Another child of the parent may hold the other end of the socket.)
"""

import contextlib
import json
import os
import queue
import sys
import threading
import traceback
import typing
from typing import Any

from ZODB.POSException import POSKeyError

from .. import datafile
from ..format import index
from ..format import scan
from ..format.references import references
from ..format.window import Pread
from ..format.window import Window
from . import priority
from .copying import Copier
from .marking import References
from .pacing import Pacer
from .reading import Reader
from .version import VERSION
from .work import Job
from .work import NothingToDo
from .work import copied

Message = dict[str, Any]

# After so many seconds it looks whether it still has its parent.
_LOOK_AFTER = 1.0


def main(pid: int) -> None:
    """Called with the commands on the standard input, behind the first line
    (`process`), and with the number of the parent."""
    priority.give_way()
    parent = _Parent(pid)
    try:
        parent.report({'ready': VERSION})
        job = parent.command()
        removed = None if job['removed'] is None else _file(job['removed'])
        do(Job(bytes.fromhex(job['stop']), job['end'], job['gc']),
           Reader(job['old']), _file(job['new']), _file(job['index']), removed,
           references, parent)
    except Exception as error:
        parent.report(_failure(error))
    # An ordinary end would wait for the thread that listens.
    os._exit(0)


def _file(number: int) -> datafile.DataFile:
    return datafile.DataFile(
        f'descriptor {number}', 0, lambda path, flags: number)


def do(job: Job, pread: Pread, new: datafile.DataFile,
       to_index: datafile.DataFile, removed: datafile.DataFile | None,
       references: References, parent: 'Parent') -> None:
    """Copy, until the parent says that the rest is small.

    A large index takes its time: so it is written before the last copies, and
    does not know what they bring.
    """
    pacer = Pacer(new)
    copier = copied(job, pread, new, pacer, removed, references, parent.tell)
    _catch_up(copier, pread, pacer, parent)
    index.write_unchanging(to_index, copier.written_to, copier.index, new,
                           Pacer(to_index).written)
    _catch_up(copier, pread, pacer, parent)
    parent.report({'done': {
        'copied_to': copier.copied_to, 'written_to': copier.written_to,
        'places': copier.places.as_json()}})


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
        case scan.Damage():
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


class _Parent:

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._reports = os.fdopen(os.dup(1), 'w')
        os.dup2(2, 1)  # what else is printed is no report
        self._commands: queue.SimpleQueue[Message] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            for line in sys.stdin:
                self._commands.put(json.loads(line))
        finally:
            os._exit(1)  # the parent has ended, or sends what cannot be

    def command(self) -> Message:
        while True:
            self._end_with_the_parent()
            with contextlib.suppress(queue.Empty):
                return self._commands.get(timeout=_LOOK_AFTER)

    def _end_with_the_parent(self) -> None:
        if os.getppid() != self._pid:
            os._exit(1)

    def report(self, message: Message) -> None:
        self._end_with_the_parent()
        self._reports.write(json.dumps(message) + '\n')
        self._reports.flush()

    def tell(self, phase: str, done: int, total: int) -> None:
        self.report({'tell': [phase, done, total]})

