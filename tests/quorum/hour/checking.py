"""What must hold when all was healed, the load is held, and both have all.

- The two files are the same, byte for byte, and so are the blobs.
- Each commit that was acknowledged is there, with its tid; none is there of
  which a client was told that it never will be.
- Each of them was in the log, in its epoch (`watcher`), before the record of
  the next one.
- The sum of the accounts is what it was.
- Each blob that an object has is there, and is that of its transaction.
"""

import os
import subprocess
import sys

import ZODB
from ZODB.blob import FilesystemHelper
from ZODB.FileStorage import FileStorage

from . import bank
from . import notes
from .contents import Blobs
from .contents import Contents
from .contents import difference
from .world import Violation

#: What fsync-check is where no scripts are installed.
CHECK = sys.executable, '-m', 'fsyncstorage.check.commandline'


class Checking:

    def __init__(self, world, account):
        self._world = world
        self._account = account
        first, second = world.nodes
        self._contents = Contents(first.data)
        self._blobs = Blobs(first.blobs, second.blobs)
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
        world.wait(self._have_all, 'both files end where the log says')
        self.same()
        self._contents.read()
        self._look_for_commits()
        self._look_at_blobs()
        total = sum(bank.EACH if each is None else each
                    for each in self._contents.accounts())
        if total != bank.SUM:
            raise Violation(f'the sum of the accounts is {total}')
        generation, end = world.watcher.end
        world.say(
            f'QUIET: all is well: {len(self._acknowledged)} commits'
            f' acknowledged, {len(self._refused)} transactions refused;'
            f' epoch {world.watcher.epoch}, generation {generation}, {end}'
            ' bytes')

    def _have_all(self):
        end = self._world.watcher.end[1]
        return not self._world.watcher.is_packing and all(
            os.path.getsize(each.data) == end for each in self._world.nodes)

    def same(self):
        first, second = self._world.nodes
        position = difference(first.data, second.data)
        if position is not None:
            raise Violation(
                f'the files differ from {position} on; they have'
                f' {os.path.getsize(first.data)} and'
                f' {os.path.getsize(second.data)} bytes')
        words = self._blobs.difference()
        if words is not None and ' only in ' in words:
            self._world.say(f'(a known limit: {words})')
        elif words is not None:
            raise Violation(words)

    def _look_for_commits(self):
        marks, watcher = self._contents.marks(), self._world.watcher
        for mark, found in self._acknowledged.items():
            if marks.get(mark) != found:
                raise Violation(
                    f'the commit {mark}, acknowledged as {found[1].hex()}, is'
                    f' lost: there is {marks.get(mark)}')
            if found[1] not in watcher.epochs and watcher.trouble is None:
                raise Violation(
                    f'the commit {mark}, acknowledged as {found[1].hex()}, was'
                    ' in no epoch of the log')
        for mark in self._refused & marks.keys():
            raise Violation(
                f'the commit {mark} is there, of which its client was told'
                f' that it never will be: {marks[mark][1].hex()}')
        if watcher.trouble is not None:
            self._world.say(f'the watcher of the log: {watcher.trouble}')

    def _look_at_blobs(self):
        marks = self._contents.marks()
        helper = FilesystemHelper(self._world.nodes[0].blobs)
        for oid, tid in self._contents.blobs():
            path = helper.getBlobFilename(oid, tid)
            try:
                with open(path, 'rb') as file:
                    mark = file.read(100).split(b' ')[0].decode()
            except FileNotFoundError:
                raise Violation(f'there is no {path}') from None
            if mark != 'empty' and marks.get(mark, (None, None))[1] != tid:
                raise Violation(
                    f'{path} is of {mark}, which is {marks.get(mark)}')

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
            db = ZODB.DB(FileStorage(
                node.data, read_only=True, blob_dir=node.blobs))
            with db.transaction() as connection:
                total = bank.total(connection.root())
            db.close()
            if total != bank.SUM:
                raise Violation(f'the sum of {node.name} is {total}')
            left = node.leftovers()
            if left and all('quorum.blobs-' in each for each in left):
                self._world.say(f'(a known limit: {left} of {node.name})')
            elif left:
                raise Violation(f'left behind beside the data of {node.name}:'
                                f' {left}')
        self._world.say('END: all is well')
