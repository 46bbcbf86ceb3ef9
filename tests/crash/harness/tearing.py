"""The ways in which the unsynced data of a file survive in part.

A model is a class that is made with a `powercut.File`.  Its `options` are the
numbers of possibilities of each independent piece: 0 is "nothing new got
there", the last one "all of it".  `content(chosen)` is what the file then
contains.

Prefix
    The changes got there in their order, up to some byte.
Blocks, of 512 or 4096 bytes
    Each block that was changed shows what it contained at some moment since
    the last sync, independent of all others; and so does the size.  A block
    that did not get there, in a file whose size did, reads as zeros.
StaleBlocks
    It reads as what the disk had there before: what a data file had in this
    place that is gone or was cut back, or else random bytes.  A file gets new
    blocks by whole pages, and what it does not write of them is zeros.

`MODELS` are what a power cut is taken to do; `STALE` and `TORN_RENAMES` go
beyond it.
"""

import functools
import random
import typing

from . import events
from . import powercut


class Prefix:

    def __init__(self, file):
        self._file = file
        self._lengths = [_bytes_of(event) for event in file.changes]
        self.options = [1 + sum(self._lengths)]

    def content(self, chosen):
        left, = chosen
        content = bytearray(self._file.durable)
        whole = 0
        for event, length in zip(self._file.changes, self._lengths):
            if left < length:
                break
            left -= length
            whole += 1
            powercut.replay(content, event)
        if left:
            event = self._file.changes[whole]
            powercut.replay(content, event._replace(data=event.data[:left]))
        return self._with_what_is_sure(content, whole)

    def _with_what_is_sure(self, content, whole):
        """After a failed sync, a later one may keep pages out of order."""
        for page, floor in self._file.floors.items():
            if floor <= whole:
                continue
            sure = self._file.content(floor)
            if page == self._file.SIZE:
                content.extend(bytes(max(0, len(sure) - len(content))))
                del content[len(sure):]
            else:
                part = slice(page * powercut.PAGE, (page + 1) * powercut.PAGE)
                content.extend(bytes(max(0, part.start - len(content))))
                content[part] = sure[part]
        return bytes(content)


def _bytes_of(event):
    # A truncation happens or not, like one byte.
    return 1 if isinstance(event, events.Truncated) else len(event.data)


class Blocks:

    def __init__(self, block_size, file):
        self._block_size = block_size
        self._file = file
        self._durable = bytes(file.durable)
        self._sizes, self._versions = self._history()
        self.options = [len(self._sizes)] + [
            len(versions) for versions in self._versions.values()]

    def _history(self):
        """Each size, and each content of each block that was changed."""
        content = bytearray(self._durable)
        sizes, versions = [len(content)], {}
        for count, event in enumerate(self._file.changes, 1):
            start, end = powercut.extent(len(content), event)
            touched = range(start // self._block_size,
                            -(-end // self._block_size))
            for number in touched:
                versions.setdefault(number, [self._before(content, number)])
            powercut.replay(content, event)
            for number in touched:
                page = number * self._block_size // powercut.PAGE
                self._note(versions[number], self._block(content, number),
                           sure=count <= self._file.floors.get(page, 0))
            self._note(sizes, len(content), sure=count
                       <= self._file.floors.get(self._file.SIZE, 0))
        return sizes, versions

    def _before(self, content, number):
        """What a block shows to which nothing of the changes got."""
        return self._block(content, number)

    @staticmethod
    def _note(versions, version, sure):
        if sure:
            versions[:] = [version]
        elif version != versions[-1]:
            versions.append(version)

    def _block(self, content, number):
        start = number * self._block_size
        block = bytes(content[start:start + self._block_size])
        return block.ljust(self._block_size, b'\0')

    def content(self, chosen):
        size, *chosen = chosen
        content = bytearray(self._durable)
        for (number, versions), version in zip(
                self._versions.items(), chosen):
            start = number * self._block_size
            end = start + self._block_size
            content.extend(bytes(max(0, end - len(content))))
            content[start:end] = versions[version]
        size = self._sizes[size]
        content.extend(bytes(max(0, size - len(content))))
        return bytes(content[:size])


class StaleBlocks(Blocks):

    def _before(self, content, number):
        page, offset = divmod(number * self._block_size, powercut.PAGE)
        if page < powercut.pages_of(len(self._durable)):
            return self._block(content, number)
        found = self._file.stale.get(page)
        if found is None:
            return random.Random(number).randbytes(self._block_size)
        return found[offset:offset + self._block_size]


class Model(typing.NamedTuple):

    tear: typing.Callable   # a file
    torn_renames: bool = False


MODELS = {
    'byte prefix': Model(Prefix),
    '512-byte blocks': Model(functools.partial(Blocks, 512)),
    '4-KiB blocks': Model(functools.partial(Blocks, 4096)),
}
STALE = {
    'stale sectors': Model(functools.partial(StaleBlocks, 512)),
    'stale pages': Model(functools.partial(StaleBlocks, 4096)),
}
TORN_RENAMES = {
    'halves of renames': Model(functools.partial(Blocks, 4096), True),
}
ALL_MODELS = MODELS | STALE | TORN_RENAMES
