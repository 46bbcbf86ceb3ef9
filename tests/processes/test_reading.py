"""Reads that leave the page cache to others."""

import ctypes
import mmap
import os
import sys
import unittest
from unittest import mock

from fsyncstorage.processes import reading
from fsyncstorage.processes.reading import Reader

from ..support import TestCase

PIECE = 1 << 18


def cached(number):
    """Of each page of a file: is it in the page cache?

    (Any read would bring it there.)
    """
    size = os.fstat(number).st_size
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    # A private mapping can be written to, which ctypes needs for its address.
    with mmap.mmap(number, size, mmap.MAP_PRIVATE) as memory:
        first = ctypes.c_char.from_buffer(memory)
        libc = ctypes.CDLL(None, use_errno=True)
        failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(first)),
                              ctypes.c_size_t(size), pages)
        del first
    if failed:
        raise OSError(ctypes.get_errno(), 'mincore')
    return [page & 1 for page in pages]


class Reading(TestCase):

    def setUp(self):
        super().setUp()
        self.content = b''.join(
            number.to_bytes(8, 'big') for number in range(PIECE // 2))
        with open(self.path('file'), 'wb') as file:
            file.write(self.content)
            os.fsync(file.fileno())
        self.number = os.open(self.path('file'), os.O_RDONLY)
        self.addCleanup(os.close, self.number)

    def read(self, reader):
        return b''.join(reader(PIECE, position)
                        for position in range(0, len(self.content), PIECE))

    def forget(self):
        os.posix_fadvise(self.number, 0, 0, os.POSIX_FADV_DONTNEED)
        if any(cached(self.number)):
            self.skipTest('this file system always has its files in memory')

    def another(self):
        """The file, open for another reader, without read-ahead."""
        other = os.open(self.path('file'), os.O_RDONLY)
        self.addCleanup(os.close, other)
        os.posix_fadvise(other, 0, 0, os.POSIX_FADV_RANDOM)
        return other

    def test_the_same_bytes(self):
        for position in 0, 5, PIECE - 3, len(self.content) - 10:
            for length in 0, 1, 20, PIECE:
                self.assertEqual(
                    Reader(self.number)(length, position),
                    self.content[position:position + length])

    @unittest.skipUnless(sys.platform == 'linux', 'mincore is not the same')
    def test_what_was_not_in_the_cache_is_not_there_afterwards(self):
        self.forget()
        # Somebody needs the second piece.
        os.pread(self.another(), PIECE, PIECE)
        before = cached(self.number)
        self.assertEqual(sum(before), PIECE // mmap.PAGESIZE)
        self.assertEqual(self.read(Reader(self.number)), self.content)
        self.assertEqual(cached(self.number), before)

    @unittest.skipUnless(sys.platform == 'linux', 'mincore is not the same')
    def test_pages_that_others_need_stay_between_those_that_nobody_needs(self):
        self.forget()
        other = self.another()
        for page in range(0, len(self.content) // mmap.PAGESIZE, 3):
            os.pread(other, 1, page * mmap.PAGESIZE)
        before = cached(self.number)
        self.assertEqual(sum(before), -(-len(before) // 3))
        self.assertEqual(self.read(Reader(self.number)), self.content)
        self.assertEqual(cached(self.number), before)

    def test_where_the_system_cannot_tell_what_is_cached(self):
        with mock.patch.object(reading, 'pages_cached',
                               side_effect=OSError(38, 'no')):
            self.assertEqual(self.read(Reader(self.number)), self.content)
