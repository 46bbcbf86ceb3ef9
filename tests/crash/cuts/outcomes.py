"""What clients were told of their commits, held against the file.

The file is read here byte by byte, by nothing of what is tested, while the
server writes it.  What is wrong at any time is a problem:

- an attempt that was committed is not there, once, with the tid it was told;
- one that was refused is there, then or later;
- two attempts of one block are there;
- in the end, a counter is not the sum of the attempts that have incremented
  it, or stock's FileStorage reads another file.
"""

import collections
import contextlib
import os
import re
import struct

import ZODB
from ZODB.FileStorage.FileStorage import FileIterator

from fsyncstorage import FsyncStorage

from .client import COUNTERS

_HEAD = struct.Struct('>8sQcHHH')
_LENGTH = struct.Struct('>Q')
# Of a file.
_MAGIC_SIZE = 4
_MARKER = re.compile(rb'marker<([^>]+)>')


class Outcomes:

    def __init__(self, data, log):
        self._data = data
        self._log = open(log, 'ab+')
        self.problems = []
        self._said = {}  # marker -> (word, what is said with it)
        self._read_again()

    def close(self):
        self._log.close()

    def counts(self):
        counts = collections.Counter(word for word, _ in self._said.values())
        counts['unknown, and there'] = sum(
            word == 'unknown' and marker in self._found
            for marker, (word, _) in self._said.items())
        counts['not told, and there'] = len(
            self._found.keys() - self._said.keys())
        return counts

    def look(self):
        """At what was said and written since the last look."""
        # In this order: what is said to be there is looked for afterwards.
        touched = self._new_words()
        touched.update(self._new_transactions())
        for marker in touched:
            self._judge(marker)

    def look_again(self):
        """At all of the file: a server has recovered it."""
        self._read_again()
        self.look()
        for marker in self._said:
            self._judge(marker)

    def look_at_the_end(self):
        """When no process has the file open."""
        self.look_again()
        with contextlib.closing(FileIterator(self._data)) as stock:
            if [each.tid for each in stock] != self._tids:
                self._problem('stock reads other transactions')
        if os.path.getsize(self._data) != self._position:
            self._problem('there is more in the file')
        with contextlib.closing(ZODB.DB(FsyncStorage(
                self._data, read_only=True))) as db:
            with db.transaction() as connection:
                root = connection.root()
                values = root['resolving'](), root['plain']['value']
        sums = tuple(self._increments[name] for name in COUNTERS)
        if values != sums:
            self._problem(f'the counters are {values}, not {sums}')

    def _problem(self, words):
        self.problems.append(words)

    # What was said

    def _new_words(self):
        touched = set()
        for line in self._log:
            word, marker, *more = line.decode().rstrip().split(' ', 2)
            if word == 'failed':
                self._problem(line.decode())
            else:
                self._said[marker] = word, ''.join(more)
                touched.add(marker)
        return touched

    # What is there

    def _read_again(self):
        self._position = _MAGIC_SIZE
        self._tids = []
        self._found = collections.defaultdict(list)  # marker -> tids
        self._blocks = {}  # block -> marker
        self._increments = collections.Counter()

    def _new_transactions(self):
        touched = set()
        for tid, description, data, end in _transactions(
                self._data, self._position):
            self._position = end
            self._tids.append(tid)
            markers = [each.decode() for each in _MARKER.findall(data)]
            described, _, counter = description.decode().partition(' ')
            if markers != [described] and (markers or counter in COUNTERS):
                self._problem(f'{description} has {markers}')
            for marker in markers:
                self._increments[counter] += 1
                self._add(marker, tid)
                touched.add(marker)
        return touched

    def _add(self, marker, tid):
        self._found[marker].append(tid)
        block = marker.rpartition('.')[0]
        other = self._blocks.setdefault(block, marker)
        if other != marker:
            self._problem(f'{marker} is there, and {other}')

    def _judge(self, marker):
        word, more = self._said.get(marker, (None, None))
        found = [tid.hex() for tid in self._found.get(marker, ())]
        if len(found) > 1:
            self._problem(f'{marker} is there {len(found)} times')
        if word == 'committed' and found != [more]:
            self._problem(
                f'{marker} was committed with {more}, and there is {found}')
        if word == 'refused' and found:
            self._problem(f'{marker} was refused, and is there: {more}')


def _transactions(path, position):
    """The complete ones from there: tid, description, records, end."""
    file = os.open(path, os.O_RDONLY)
    try:
        while True:
            head = os.pread(file, _HEAD.size, position)
            if len(head) < _HEAD.size:
                return
            tid, length, status, user, description, _ = _HEAD.unpack(head)
            size = length - _HEAD.size + _LENGTH.size
            if status == b'c' or size < 0:
                return
            rest = os.pread(file, size, position + _HEAD.size)
            if rest[-_LENGTH.size:] != _LENGTH.pack(length) or (
                    len(rest) < size):
                return
            position += length + _LENGTH.size
            yield tid, rest[user:user + description], rest, position
    finally:
        os.close(file)
