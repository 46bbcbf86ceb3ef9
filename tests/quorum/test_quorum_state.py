"""What a node keeps on its disk: all of it, or what was there before."""

import dataclasses
import os
import struct
import unittest
import zlib
from unittest import mock

from hypothesis import given
from hypothesis import strategies

from fsyncstorage import datafile
from fsyncstorage.quorum import state as states
from fsyncstorage.quorum.fold import Incomplete
from fsyncstorage.quorum.fold import State
from fsyncstorage.quorum.record import LIMIT
from fsyncstorage.quorum.record import Damaged
from fsyncstorage.quorum.record import Place

from ..support import TestCase

NUMBERS = strategies.integers(0, LIMIT - 1)
IDENTITIES = strategies.binary(min_size=16, max_size=16)
STATES = strategies.builds(
    State, IDENTITIES, strategies.builds(Place, NUMBERS, IDENTITIES), NUMBERS,
    IDENTITIES, NUMBERS, NUMBERS, strategies.none(),
    strategies.one_of(strategies.none(), IDENTITIES))

FIRST = State(b'l' * 16, Place(7, b'k' * 16), 2, b'w' * 16, 1, 104)
SECOND = dataclasses.replace(FIRST, place=Place(8, b'j' * 16), end=120)


class Bytes(unittest.TestCase):

    @given(STATES)
    def test_what_is_packed_is_parsed(self, state):
        self.assertEqual(states.parse(states.pack(state)), state)

    @given(STATES, strategies.data())
    def test_a_changed_bit_is_damage(self, state, data):
        raw = bytearray(states.pack(state))
        bit = data.draw(strategies.integers(0, len(raw) * 8 - 1))
        raw[bit // 8] ^= 1 << bit % 8
        with self.assertRaises(Damaged):
            states.parse(bytes(raw))

    def test_a_part_and_more_than_all_are_damage(self):
        raw = states.pack(FIRST)
        for each in (raw + b'\0', *(raw[:at] for at in range(len(raw)))):
            with self.assertRaises(Damaged):
                states.parse(each)

    def test_what_cannot_be_is_damage(self):
        """Also where the CRC is right."""
        for changed in {'end': LIMIT}, {'place': Place(LIMIT, b'k' * 16)}:
            with self.assertRaisesRegex(Damaged, 'a number'):
                states.parse(states.pack(dataclasses.replace(
                    FIRST, **changed)))
        raw = bytearray(states.pack(FIRST)[:-4])
        raw[9] = 2  # a pack, or none
        with self.assertRaisesRegex(Damaged, 'a number'):
            states.parse(raw + struct.pack('>I', zlib.crc32(raw)))
        with mock.patch.object(states, 'VERSION', 2):
            later = states.pack(FIRST)
        with self.assertRaisesRegex(Damaged, 'version 2'):
            states.parse(later)

    def test_not_within_a_batch(self):
        with self.assertRaises(ValueError):
            states.pack(dataclasses.replace(
                FIRST, incomplete=Incomplete(b'b' * 16, 120, 110)))


class Disk(datafile.Disk):
    """It is gone when it has done so much."""

    def __init__(self, left=1000):
        self.left = left
        self.done = []

    def _do(self, name, *args):
        if not self.left:
            raise InterruptedError(name)
        self.left -= 1
        self.done.append(name)
        return getattr(datafile.Disk, name)(*args)

    def remove(self, *args):
        return self._do('remove', *args)

    def open(self, *args):
        return self._do('open', self, *args)

    def write(self, *args):
        return self._do('write', self, *args)

    def sync(self, *args):
        return self._do('sync', *args)

    def replace(self, *args):
        return self._do('replace', *args)

    def sync_directory(self, path, opener=None):
        return self._do('sync_directory', datafile.Disk(), path)


class Files(TestCase):

    def save(self, state, disk):
        with mock.patch.object(datafile, 'disk', disk):
            states.save(self.path(), state)

    def kept(self):
        return states.load(self.path())

    def test_nothing_is_kept(self):
        self.assertIsNone(self.kept())

    def test_it_is_durable_before_it_has_its_name(self):
        disk = Disk()
        self.save(FIRST, disk)
        self.assertEqual(self.kept(), FIRST)
        self.assertEqual(
            [name for name in disk.done if name not in ('remove', 'open')],
            ['write', 'sync', 'replace', 'sync_directory'])

    def test_after_any_end_it_is_one_or_the_other(self):
        self.save(FIRST, Disk())
        found = []
        for left in range(100):
            try:
                self.save(SECOND, Disk(left))
            except InterruptedError:
                found.append(self.kept())
            else:
                break
            if self.kept() == SECOND:
                self.save(FIRST, Disk())
        self.assertEqual(self.kept(), SECOND)
        self.assertGreater(len(found), 4)
        self.assertEqual({each.end for each in found}, {104, 120})

    def test_damage_is_not_taken_for_nothing(self):
        path = self.path() + states.SUFFIX
        for content in b'', b'other', states.pack(FIRST)[:-1]:
            with open(path, 'wb') as file:
                file.write(content)
            with self.assertRaisesRegex(Damaged, 'Data.fs.quorum'):
                self.kept()
        os.remove(path)
        os.mkfifo(path)
        with self.assertRaisesRegex(Damaged, 'no file'):
            self.kept()
