"""What a pack makes of the content of a file (I15)."""

import functools
import hashlib
import os

from fsyncstorage import datafile
from fsyncstorage.format.references import references
from fsyncstorage.format.window import Window
from fsyncstorage.pack import checksum
from fsyncstorage.pack import work
from fsyncstorage.pack.agreed import Becoming
from fsyncstorage.pack.plan import Job

from ..memory import scratch_directory


@functools.lru_cache(maxsize=1000)
def packed(content, pack):
    """`pack` is what the state of a node says of it.

    Raise NothingToDo if there is nothing to free.
    """
    with scratch_directory() as directory:
        path = os.path.join(directory, 'new')
        with datafile.open_new(path + '.old') as old, \
                datafile.open_new(path) as new, \
                datafile.open_new(path + '.index') as index:
            old.write_at(content, 0)
            copier = work.copied(
                Job(pack.time, pack.end, pack.collects, None),
                work.Files(old, None, new, index), references,
                lambda *progress: None, lambda: pack.end)
            copier.copy_later(Window.of_data_file(old, len(content)))
            copier.flush()
        with open(path, 'rb') as file:
            return file.read()


def becoming(content):
    row = b''.join(
        hashlib.blake2b(
            content[begin:begin + checksum.BLOCK],
            digest_size=checksum.SIZE).digest()
        for begin in range(0, len(content), checksum.BLOCK))
    return Becoming(len(content), hashlib.blake2b(
        row, digest_size=checksum.SIZE).digest())
