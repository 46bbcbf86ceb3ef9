"""Mutated data files and indexes, through check, salvage and opening.

Each takes at most 2 times the memory of the sound file, and raises nothing but
what a damaged file is refused with.  Everything comes from a seed: a failure
names the number of the mutation, and `Mutations.make` makes it again.  (What
is read of a file that means harm is counted in test_hostile_files.)
"""

import contextlib
import logging
import os
import random
import struct
import tracemalloc
import zlib
from unittest import mock

from ZODB._compat import dumps
from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.FileStorage.FileStorage import FileStorageFormatError
from ZODB.FileStorage.format import CorruptedError
from ZODB.POSException import POSKeyError
from ZODB.utils import z64

from fsyncstorage import FsyncStorage
from fsyncstorage import datafile
from fsyncstorage.check import salvage
from fsyncstorage.check import verify
from fsyncstorage.check.tails import NoDataFile
from fsyncstorage.format import index
from fsyncstorage.format.window import Window
from fsyncstorage.storage.recovery import DamagedFile

from ..format.sealing import positions
from ..format.sealing import sealed
from ..format.sealing import write
from ..often import often
from ..support import TestCase
from ..support import oid

# The memory of the sound file counts as at least so much.
LEAST_MEMORY = 2 << 20
MOST_MEMORY = 2

EXTREMES = [
    0, 1, 8, 23, 42, 255, 1 << 16, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 40,
    (1 << 48) - 1, 1 << 48, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
PIECES = [
    b'FS30', b'\xf5FSYNC\r\n', b'\xf5FSYNCIX', bytes(23), b'c' * 40,
    b'r\xff\xff\xff\xff', b'B\xff\xff\xff\xff', b'\x8b\xff\xff\xff\x7f',
    b'.z' + zlib.compress(bytes(1 << 20)), b'(' * 200, b'\x85' * 200,
    b'cos\nsystem\n(S"false"\ntR.']


def sound_file(directory):
    """Data and index: records of many kinds, undos, sealed and not."""
    path = os.path.join(directory, 'sound.fs')
    storage = FileStorage(path)
    other = random.Random(1)
    for number in range(60):
        metadata = TransactionMetaData(b'user', b'description', {'n': number})
        storage.tpc_begin(metadata)
        if number % 10 == 9:
            storage.undo(storage.undoLog(0, 1)[0]['id'], metadata)
        else:
            for key in other.sample(range(60), 4) if number else range(60):
                serial = storage.getTid(oid(key)) if number else z64
                storage.store(
                    oid(key), serial, _record(other), '', metadata)
        storage.tpc_vote(metadata)
        storage.tpc_finish(metadata)
    storage.close()
    with open(path, 'rb') as file:
        data = sealed(file.read(), lambda each: each % 5)
    write(path, data)
    os.remove(path + '.index')
    FsyncStorage(path).close()
    with open(path + '.index', 'rb') as file:
        return data, file.read()


def _record(other):
    pickle = b'\x80\x03cmodule\nName\nq\0.\x80\x03}q\1' + b''.join(
        b'X\3\0\0\0abcq\2(C\x08' + oid(other.randrange(60))
        + b'q\3h\0tq\4Qs' for _ in range(other.randrange(9))) + b'.'
    return other.choice([pickle, b'.z' + zlib.compress(pickle)])


class Mutations:

    def __init__(self, data, index_file):
        self.data = data
        self.index_file = index_file
        self.positions = positions(data)

    def make(self, number):
        """Data and index file of that number."""
        other = random.Random(number)
        data, index_file = bytearray(self.data), bytearray(self.index_file)
        if other.random() < 0.3:
            self.change_index(other, index_file)
            if other.random() < 0.5:
                return bytes(data), bytes(index_file)
        for _ in range(other.choice([1, 1, 1, 2, 5, 20])):
            if data:
                other.choice(CHANGES)(self, other, data)
        return bytes(data), bytes(index_file)

    def change_index(self, other, index_file):
        for _ in range(other.choice([1, 2, 5])):
            if index_file:
                other.choice(CHANGES[:8])(self, other, index_file)
        if other.random() < 0.3:
            index_file[:0] = dumps(other.choice(EXTREMES), 3)
        if other.random() < 0.7 and len(index_file) > index.TRAILER_SIZE:
            # Who means harm makes the checksum fit.
            content = self.with_position(other, bytes(index_file))
            index_file[:] = content + struct.pack('>I', zlib.crc32(content))

    def with_position(self, other, content):
        trailer = index._TRAILER.pack(
            index.MAGIC, other.choice([len(self.data), *EXTREMES]),
            other.choice([0, zlib.crc32(self.data)]))
        return content[:-index.TRAILER_SIZE] + other.choice([
            trailer, content[-index.TRAILER_SIZE:-4]])

    # What is done to a bytearray

    def flip(self, other, data):
        for _ in range(other.choice([1, 1, 8, 100])):
            data[other.randrange(len(data))] ^= 1 << other.randrange(8)

    def zero(self, other, data):
        at, size = other.randrange(len(data)), other.choice([8, 512, 4096])
        data[at:at + size] = bytes(len(data[at:at + size]))

    def truncate(self, other, data):
        del data[other.randrange(len(data)):]

    def splice(self, other, data):
        at, begin = other.randrange(len(data)), other.randrange(len(data))
        size = other.choice([8, 50, 500, 5000])
        data[at:at + other.choice([0, size])] = data[begin:begin + size]

    def remove(self, other, data):
        at = other.randrange(len(data))
        del data[at:at + other.choice([1, 8, 50, 500])]

    def number(self, other, data):
        at = other.randrange(len(data))
        data[at:at + 8] = struct.pack('>Q', other.choice(EXTREMES))

    def piece(self, other, data):
        at, piece = other.randrange(len(data)), other.choice(PIECES)
        data[at:at + other.choice([0, len(piece)])] = piece

    def repeat(self, other, data):
        at = other.randrange(len(data))
        data += data[at:at + 3000] * other.randrange(1, 4)

    def status(self, other, data):
        for position in other.sample(
                self.positions[:-1], other.randrange(1, 50)):
            if position + 16 < len(data):
                data[position + 16] = other.choice(b'ccccup x')

    def length(self, other, data):
        at = other.choice(self.positions[:-1]) + other.choice([8, 17, 19, 21])
        if at + 8 < len(data):
            size = 8 if at % 2 else 2
            value = other.choice([
                *EXTREMES, len(data) - at, len(data) - at - 8])
            data[at:at + size] = (value % (1 << 8 * size)).to_bytes(
                size, 'big')

    def pointer(self, other, data):
        at = data.find(b'\0\0\0\0\0\0\0', other.randrange(len(data)))
        if at > 0:
            data[at + 8:at + 16] = struct.pack(
                '>Q', other.randrange(len(data)))

    def transaction(self, other, data):
        """One of them, somewhere else."""
        number = other.randrange(len(self.positions) - 1)
        piece = self.data[self.positions[number]:self.positions[number + 1]]
        at = other.choice(self.positions + [len(data)])
        data[at:at] = piece * other.choice([1, 3])


CHANGES = [
    Mutations.flip, Mutations.zero, Mutations.truncate, Mutations.splice,
    Mutations.remove, Mutations.number, Mutations.piece, Mutations.repeat,
    Mutations.status, Mutations.length, Mutations.pointer,
    Mutations.transaction]

# How a damaged file is refused, and what a reader of a damaged record gets.
REFUSALS = DamagedFile, FileStorageFormatError
READ_ERRORS = POSKeyError, CorruptedError


class Fuzzer:
    """Reads mutations in every way, in a directory of its own.

    With `traced` it counts memory, which takes time.
    """

    def __init__(self, directory, traced=True):
        data, index_file = sound_file(directory)
        self.directory = directory
        self.path = os.path.join(directory, 'Data.fs')
        self.out = os.path.join(directory, 'saved.fs')
        self.traced = traced
        self.mutations = Mutations(data, index_file)
        self.write(data, index_file)
        self.ways = {
            'check': self.check, 'salvage': self.salvage,
            'read-only': self.open_read_only, 'open': self.open}
        self.sound = {}
        for name, way in self.ways.items():
            self.sound[name] = max(
                LEAST_MEMORY, *(self.cost(way) for _ in range(3)))

    def write(self, data, index_file):
        for name in os.listdir(self.directory):
            os.remove(os.path.join(self.directory, name))
        write(self.path, data)
        write(self.path + '.index', index_file)

    def run(self, number):
        """Way -> memory: as many times as the sound file takes."""
        self.write(*self.mutations.make(number))
        return {name: self.cost(way) / self.sound[name]
                for name, way in self.ways.items()}

    def cost(self, way):
        if self.traced:
            tracemalloc.start()
        try:
            with contextlib.suppress(*REFUSALS):
                way()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    def check(self):
        try:
            stored = index.load(self.path + '.index')
        except index.Damaged:
            stored = None
        with (open(self.path, 'rb') as file,
              contextlib.suppress(NoDataFile)):
            verify.verify(Window.of_file(file.fileno()), stored=stored)

    def salvage(self):
        with open(self.path, 'rb') as file:
            try:
                salvage.salvage(
                    verify.verify(Window.of_file(file.fileno())), self.out)
            except NoDataFile:
                return
        with contextlib.closing(FsyncStorage(self.out, read_only=True)) as got:
            for _ in got.iterator():
                pass
        os.remove(self.out)
        os.remove(self.out + '.index')

    def open_read_only(self):
        with contextlib.closing(
                FsyncStorage(self.path, read_only=True)) as storage:
            self.read(storage)

    def open(self):
        with contextlib.closing(
                FsyncStorage(self.path, durability='none')) as storage:
            self.read(storage)

    def read(self, storage):
        for key in range(70):
            try:
                storage.load(oid(key))
                storage.loadBefore(oid(key), storage.lastTransaction())
            except READ_ERRORS:
                pass


class MutationTests(TestCase):

    level = 2
    #: So many mutations, and so many of which the memory is counted.
    number = often(30, 20_000)
    traced = often(8, 1000)

    def setUp(self):
        super().setUp()
        logging.disable()
        self.addCleanup(logging.disable, logging.NOTSET)
        # What is durable is not asked here.
        self.patch(datafile.Disk, sync=mock.Mock(), sync_directory=mock.Mock())

    def test_nothing_else_is_raised(self):
        fuzzer = Fuzzer(self.directory, traced=False)
        for number in range(self.number):
            with self.subTest(number):
                fuzzer.run(number)

    def test_memory(self):
        fuzzer = Fuzzer(self.directory)
        for number in range(self.traced):
            for name, memory in fuzzer.run(number).items():
                self.assertLess(memory, MOST_MEMORY, (number, name))
