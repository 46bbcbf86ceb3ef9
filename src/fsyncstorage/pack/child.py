"""The child process that packs or makes a forecast, and reports to its parent.

The parent has opened all files, and passes the numbers of their descriptors:
no file name is used here.  The list of commands and reports is in
docs/internals/pack.rst; processes.parent receives and sends them.
"""

import traceback
import typing

from ZODB.POSException import POSKeyError

from .. import datafile
from ..format import index
from ..format import scan
from ..format.references import references
from ..format.seal import UnknownVersion
from ..format.window import Pread
from ..format.window import Window
from ..processes.parent import Message
from ..processes.parent import ParentProcess
from ..processes.parent import serve
from ..processes.reading import Reader
from .copying import Copier
from .output import Pacer
from .plan import Job
from .plan import NothingToDo
from .plan import References
from .work import NoRoom
from .work import copied
from .work import foreseen


def main(pid: int) -> None:
    serve(pid, _work, _failure)


def _work(job: Message, parent: ParentProcess) -> Message:
    removed = None if job['removed'] is None else _file(job['removed'])
    wanted = Job(
        bytes.fromhex(job['stop']), job['end'], job['gc'], job['rate'],
        job['share'], job['sums'])
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
    index.write_unchanging(to_index, copier.written_to, copier.index, new,
                           Pacer(to_index).written)
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
