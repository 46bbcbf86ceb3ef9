"""The disk: a plugin for nbdkit, which runs it in a process of its own.

What was flushed is in the image file.  What was written since is in this
process alone, except for what the disk stored early, of its own accord, in any
order.  To kill the process is to cut the power.

The next flush fails when the file `fail` is there (which is removed by that),
and the disk forgets what the flush should have kept.

Of this project nothing is imported: nbdkit brings a Python of its own.
"""

import errno
import os
import random

API_VERSION = 2

SECTOR = 512
#: One write in so many makes the disk store something early.
EARLY = 4

parameters = {}


class Disk:

    def __init__(self, image, fail):
        self._image = os.open(image, os.O_RDWR)
        self._fail = fail
        self._unflushed = {}  # number of the sector -> content
        self.size = os.fstat(self._image).st_size

    def read(self, buffer, offset):
        os.preadv(self._image, [buffer], offset)
        for at in range(0, len(buffer), SECTOR):
            sector = self._unflushed.get((offset + at) // SECTOR)
            if sector is not None:
                buffer[at:at + SECTOR] = sector

    def write(self, data, offset):
        for at in range(0, len(data), SECTOR):
            self._unflushed[(offset + at) // SECTOR] = data[at:at + SECTOR]
        if random.randrange(EARLY) == 0:
            self._store(random.choice(list(self._unflushed)))

    def _store(self, number):
        os.pwrite(self._image, self._unflushed.pop(number), number * SECTOR)

    def flush(self):
        if os.path.exists(self._fail):
            os.remove(self._fail)
            self._unflushed.clear()
            raise OSError(errno.EIO, 'this flush was to fail')
        while self._unflushed:
            self._store(next(iter(self._unflushed)))


# What nbdkit calls

def config(name, value):
    parameters[name] = value


def open(readonly):
    return Disk(**parameters)


def get_size(disk):
    return disk.size


def block_size(disk):
    return SECTOR, 4096, 1 << 20


def can_flush(disk):
    return True


def pread(disk, buffer, offset, flags):
    disk.read(buffer, offset)


def pwrite(disk, data, offset, flags):
    disk.write(bytes(data), offset)


def flush(disk, flags):
    disk.flush()
