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
"""

import functools

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
                versions.setdefault(number, [self._block(content, number)])
            powercut.replay(content, event)
            for number in touched:
                page = number * self._block_size // powercut.PAGE
                self._note(versions[number], self._block(content, number),
                           sure=count <= self._file.floors.get(page, 0))
            self._note(sizes, len(content), sure=count
                       <= self._file.floors.get(self._file.SIZE, 0))
        return sizes, versions

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


MODELS = {
    'byte prefix': Prefix,
    '512-byte blocks': functools.partial(Blocks, 512),
    '4-KiB blocks': functools.partial(Blocks, 4096),
}
