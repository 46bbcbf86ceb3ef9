"""Reads from the disk: past the page cache, and around what is bad."""

import errno
import fcntl
import os
import random
import unittest
from unittest import mock

from fsyncstorage.scrub import fromdisk
from fsyncstorage.scrub.fromdisk import BLOCK
from fsyncstorage.scrub.fromdisk import PIECE
from fsyncstorage.scrub.fromdisk import FromDisk
from fsyncstorage.scrub.fromdisk import past_the_cache

from ..processes.test_rate import Clock
from ..processes.test_reading import cached
from ..support import TestCase


class FileTestCase(TestCase):

    def setUp(self):
        super().setUp()
        self.content = random.Random(1).randbytes(4 * PIECE + 1234)
        with open(self.path(), 'wb') as file:
            file.write(self.content)
            os.fsync(file.fileno())
        self.spent = []

    def open(self):
        number = os.open(self.path(), os.O_RDONLY)
        self.addCleanup(os.close, number)
        return number

    def disk(self):
        return self.disk_of(self.open())

    def disk_of(self, number):
        return FromDisk(past_the_cache(number), self.spent.append, 0)


class FromDiskTests(FileTestCase):

    def check_bytes(self, disk):
        for position in (0, 1, BLOCK - 1, BLOCK, PIECE - 3, PIECE + 7,
                         len(self.content) - 10, len(self.content),
                         len(self.content) + BLOCK):
            for length in (0, 1, 20, BLOCK, PIECE, PIECE + 1,
                           2 * PIECE + 5, len(self.content)):
                self.assertEqual(
                    disk(length, position),
                    self.content[position:position + length])

    def is_direct(self, number):
        return bool(fcntl.fcntl(number, fcntl.F_GETFL) & os.O_DIRECT)

    def test_the_same_bytes(self):
        self.check_bytes(self.disk())

    @unittest.skipUnless(hasattr(os, 'O_DIRECT'), 'no direct reads here')
    def test_past_the_page_cache(self):
        """What is there is not read there, and stays; nothing is added."""
        number = self.open()
        disk = self.disk_of(number)
        try:
            os.close(os.open(self.path(), os.O_RDONLY | os.O_DIRECT))
        except OSError:
            self.skipTest('this file system has no direct reads')
        self.assertTrue(self.is_direct(number))
        os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
        if any(cached(number)):
            self.skipTest('this file system is in memory')
        other = self.open()
        os.posix_fadvise(other, 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(other, PIECE, PIECE)
        before = cached(number)
        self.assertEqual(sum(before), PIECE // BLOCK)
        self.check_bytes(disk)
        self.assertEqual(cached(number), before)

    @unittest.skipUnless(hasattr(os, 'O_DIRECT'), 'no direct reads here')
    def test_a_file_system_without_direct_reads(self):
        """It says so at once, or at the first read."""
        set_flags, preadv = fcntl.fcntl, os.preadv

        def refuse(number, command, flags=0):
            if command == fcntl.F_SETFL and flags & os.O_DIRECT:
                raise OSError(errno.EINVAL, 'no')
            return set_flags(number, command, flags)

        def refuse_later(number, buffers, position):
            if self.is_direct(number):
                raise OSError(errno.EINVAL, 'no')
            return preadv(number, buffers, position)

        for patch in (
                mock.patch.object(fromdisk.fcntl, 'fcntl', refuse),
                mock.patch.object(fromdisk.os, 'preadv', refuse_later)):
            number = self.open()
            with patch:
                disk = self.disk_of(number)
            self.assertFalse(self.is_direct(number))
            self.check_bytes(disk)


class BadPlaces(FileTestCase):

    def bad(self, *blocks, error=errno.EIO):
        """A disk that cannot read these blocks; and what was tried."""
        pread = past_the_cache(self.open())
        self.tried = []

        def read(length, position):
            self.tried.append((length, position))
            for block in blocks:
                if position < block + BLOCK and block < position + length:
                    raise OSError(error, os.strerror(error))
            return pread(length, position)

        return FromDisk(read, self.spent.append, 0)

    def with_zeros(self, *blocks):
        content = bytearray(self.content)
        for block in blocks:
            content[block:block + BLOCK] = bytes(
                len(content[block:block + BLOCK]))
        return bytes(content)

    def test_they_read_as_zeros(self):
        for blocks in ((0,), (7 * BLOCK,), (5 * BLOCK, 6 * BLOCK),
                       (3 * BLOCK, 60 * BLOCK)):
            disk = self.bad(*blocks)
            self.assertEqual(disk(len(self.content), 0),
                             self.with_zeros(*blocks))
            self.assertEqual(
                disk.unreadable(0, len(self.content)),
                f'the disk cannot read the block at {blocks[0]}'
                ' (Input/output error)')
            # Only where they are, to the byte.
            first = blocks[0]
            self.assertIsNone(disk.unreadable(0, first))
            self.assertIsNotNone(disk.unreadable(first, first + 1))
            last = blocks[-1] + BLOCK
            self.assertIsNotNone(disk.unreadable(last - 1, last))
            self.assertIsNone(disk.unreadable(last, last + 1))

    def test_they_are_tried_twice_only(self):
        """A disk may take a minute for each try."""
        disk = self.bad(5 * BLOCK, 6 * BLOCK)
        disk(len(self.content), 0)
        tried = len(self.tried)
        self.assertEqual(disk(2 * BLOCK, 5 * BLOCK), bytes(2 * BLOCK))
        self.assertEqual(disk(10, 6 * BLOCK + 7), bytes(10))
        self.assertEqual(len(self.tried), tried)

    def test_a_disk_that_tries_for_long_is_left_alone(self):
        """For as long, since a commit may wait for each try."""
        clock = Clock()
        begin, busy = clock.now, 0

        def read(length, position):
            nonlocal busy
            busy += 7
            clock.now += 7
            raise OSError(errno.EIO, 'bad')

        disk = FromDisk(read, lambda size: None, 0, clock.wait, clock)
        disk(5 * BLOCK, 0)
        self.assertEqual(busy, 6 * 7)
        self.assertEqual(clock.now - begin, 2 * busy)

    def test_other_errors_are_raised(self):
        disk = self.bad(3 * BLOCK, error=errno.ENOMEM)
        with self.assertRaises(OSError):
            disk(PIECE, 0)
