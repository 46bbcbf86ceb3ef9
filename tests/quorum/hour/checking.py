"""What must hold when all was healed, the load is held, and both have all.

- The two files are the same, byte for byte, and so are the blobs.
- Each commit that was acknowledged is there, with its tid; none is there of
  which a client was told that it never will be.
- The sum of the accounts is what it was.
- Each blob that an object has is there, and is that of its transaction.
"""

import contextlib
import filecmp
import os
import subprocess
import sys

import ZODB
from ZODB.blob import FilesystemHelper
from ZODB.FileStorage import FileStorage

from fsyncstorage.quorum.files import state as states

from . import bank
from . import notes
from .world import Violation

#: What fsync-check is where no scripts are installed.
CHECK = sys.executable, '-m', 'fsyncstorage.check.commandline'


class Checking:

    def __init__(self, world, account):
        self._world = world
        self._account = account
        #: Mark -> its oid and its tid, of what was acknowledged.
        self._acknowledged = {}
        self._refused = set()
        #: Notes that the account has not had yet, and when their time began.
        self._new = []
        self._since = 0.0

    def begin(self, now):
        """The load begins, or goes on."""
        self._since = now

    def listen(self):
        """Has any client seen what it must not see?"""
        for note in self._world.notes.new():
            self._new.append(note)
            if note.kind == notes.WRONG:
                raise Violation(f'{note.worker} saw {note.rest}')
            if note.kind == notes.ACKNOWLEDGED:
                tid, oid = note.rest.split(' ')
                self._acknowledged[note.mark] = (
                    int(oid).to_bytes(8, 'big'), bytes.fromhex(tid))
            elif note.kind == notes.REFUSED:
                self._refused.add(note.mark)

    def all(self):
        """When the load is held."""
        world = self._world
        self.listen()
        self._account.take(self._since, self._new, world.kinds)
        self._new = []
        world.wait(self._have_all, 'both files have one end')
        self.same()
        node = world.nodes[0]
        with _root(node) as (root, storage):
            marks = {mark.text: (mark._p_oid, storage.getTid(mark._p_oid))
                     for worker in root['workers'].values()
                     for mark in worker.marks.values()}
            self._look_for_commits(marks)
            for worker in root['workers'].values():
                for each in worker.blobs:
                    self._look_at_blob(
                        node, each._p_oid, storage.getTid(each._p_oid), marks)
        world.say(
            f'QUIET: all is well: {len(self._acknowledged)} commits'
            f' acknowledged, {len(self._refused)} transactions refused;'
            f' {os.path.getsize(node.data)} bytes, after'
            f' {states.load(node.data).state.generation} packs')

    def _have_all(self):
        """And none of them packs."""
        first, second = (each.data for each in self._world.nodes)
        return os.path.getsize(first) == os.path.getsize(second) and not any(
            os.path.exists(each + '.pack') for each in (first, second))

    def same(self):
        first, second = self._world.nodes
        if not filecmp.cmp(first.data, second.data, shallow=False):
            raise Violation(
                f'the files differ; they have {os.path.getsize(first.data)}'
                f' and {os.path.getsize(second.data)} bytes')
        ours, others = _blobs(first.blobs), _blobs(second.blobs)
        if alone := ours ^ others:
            self._world.say(f'(a known limit: {len(alone)} blobs of one node'
                            f' only, as {min(alone)})')
        for name in sorted(ours & others):
            if not filecmp.cmp(os.path.join(first.blobs, name),
                               os.path.join(second.blobs, name), False):
                raise Violation(f'the blob {name} differs')

    def _look_for_commits(self, marks):
        for mark, found in self._acknowledged.items():
            if marks.get(mark) != found:
                raise Violation(
                    f'the commit {mark}, acknowledged as {found[1].hex()}, is'
                    f' lost: there is {marks.get(mark)}')
        for mark in self._refused & marks.keys():
            raise Violation(
                f'the commit {mark} is there, of which its client was told'
                f' that it never will be: {marks[mark][1].hex()}')

    @staticmethod
    def _look_at_blob(node, oid, tid, marks):
        path = FilesystemHelper(node.blobs).getBlobFilename(oid, tid)
        try:
            with open(path, 'rb') as file:
                mark = file.read(100).split(b' ')[0].decode()
        except FileNotFoundError:
            raise Violation(f'there is no {path}') from None
        if mark != 'empty' and marks.get(mark, (None, None))[1] != tid:
            raise Violation(f'{path} is of {mark}, which is {marks.get(mark)}')

    def at_rest(self):
        """When nothing runs any more."""
        self.same()
        for node in self._world.nodes:
            checked = subprocess.run(
                [*CHECK, node.data, '--blobs', node.blobs],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if checked.returncode:
                raise Violation(f'fsync-check of {node.name}: '
                                f'{checked.stdout}')
            with _root(node):
                pass
            left = node.leftovers()
            if left and all('quorum.blobs-' in each for each in left):
                self._world.say(f'(a known limit: {left} of {node.name})')
            elif left:
                raise Violation(f'left behind beside the data of {node.name}:'
                                f' {left}')
        self._world.say('END: all is well')


@contextlib.contextmanager
def _root(node):
    """The root and the storage of a node's file, whose sum is right."""
    storage = FileStorage(node.data, read_only=True)
    db = ZODB.DB(storage)
    try:
        with db.transaction() as connection:
            total = bank.total(connection.root())
            if total != bank.SUM:
                raise Violation(f'the sum of the accounts is {total}')
            yield connection.root(), storage
    finally:
        db.close()


def _blobs(home):
    """The names of all files of blobs."""
    return {os.path.relpath(os.path.join(parent, name), home)
            for parent, _, names in os.walk(home)
            for name in names if name.endswith('.blob')}
