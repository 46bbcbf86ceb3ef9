"""What a node keeps on its disk: all of it, or what was there before."""

import dataclasses
import os
import struct
import unittest
import zlib
from unittest import mock

from hypothesis import strategies

from fsyncstorage import datafile
from fsyncstorage.quorum.files import state as states
from fsyncstorage.quorum.files.state import Becoming
from fsyncstorage.quorum.files.state import Kept
from fsyncstorage.quorum.files.state import Tie
from fsyncstorage.quorum.history.fold import Pack
from fsyncstorage.quorum.history.fold import State
from fsyncstorage.quorum.history.record import LIMIT
from fsyncstorage.quorum.history.record import Damaged
from fsyncstorage.quorum.history.record import Place

from ..generated import given
from ..support import TestCase
from .samples import SELF

NUMBERS = strategies.integers(0, LIMIT - 1)
IDENTITIES = strategies.binary(min_size=16, max_size=16)
OIDS = strategies.binary(min_size=8, max_size=8)
STATES = strategies.builds(
    State, IDENTITIES, strategies.builds(Place, NUMBERS, IDENTITIES), NUMBERS,
    IDENTITIES, NUMBERS, NUMBERS, strategies.none(),
    strategies.one_of(strategies.none(), strategies.builds(
        Pack, IDENTITIES, NUMBERS, OIDS, strategies.booleans(),
        strategies.binary(min_size=1, max_size=64))), IDENTITIES, OIDS)
KEPT = strategies.builds(
    Kept, STATES, strategies.builds(Tie, OIDS, IDENTITIES), IDENTITIES,
    strategies.one_of(strategies.none(), strategies.builds(
        Becoming, NUMBERS, strategies.binary(min_size=32, max_size=32))))

FIRST = State(b'l' * 16, Place(7, b'k' * 16), 2, b'w' * 16, 1, 104)
PACK = Pack(b'p' * 16, 90, b'the time', True, b'1')
BECOMING = Becoming(80, b'c' * 32)
TIE = Tie(b't' * 8, b'd' * 16)
SAMPLE = Kept(dataclasses.replace(FIRST, pack=PACK), TIE, SELF, BECOMING)


def transaction(tid, data):
    """As far as a tie looks at it."""
    length = len(tid) + 8 + len(data)
    return b''.join((
        tid, length.to_bytes(8, 'big'), data, length.to_bytes(8, 'big')))


def reader(content):
    return lambda position, length: content[position:position + length]


class Bytes(unittest.TestCase):

    level = 2

    @given(KEPT)
    def test_what_is_packed_is_parsed(self, kept):
        self.assertEqual(states.parse(states.pack(kept)), kept)

    @given(KEPT, strategies.data())
    def test_a_changed_bit_is_damage(self, kept, data):
        raw = bytearray(states.pack(kept))
        bit = data.draw(strategies.integers(0, len(raw) * 8 - 1))
        raw[bit // 8] ^= 1 << bit % 8
        with self.assertRaises(Damaged):
            states.parse(bytes(raw))

    def test_a_part_and_more_than_all_are_damage(self):
        raw = states.pack(SAMPLE)
        for each in (raw + b'\0', *(raw[:at] for at in range(len(raw)))):
            with self.assertRaises(Damaged):
                states.parse(each)

    def test_what_is_not_known_is_damage(self):
        """Also where the CRC is right."""
        large = dataclasses.replace(SAMPLE.state, end=LIMIT)
        with self.assertRaisesRegex(Damaged, 'a number'):
            states.parse(states.pack(SAMPLE._replace(state=large)))
        raw = bytearray(states.pack(SAMPLE)[:-4])
        raw[9] |= 4  # there is something that this release does not know
        with self.assertRaisesRegex(Damaged, 'a number'):
            states.parse(raw + struct.pack('>I', zlib.crc32(raw)))
        with mock.patch.object(states, 'VERSION', 2):
            later = states.pack(SAMPLE)
        with self.assertRaisesRegex(Damaged, 'version 2'):
            states.parse(later)


class TheFile(unittest.TestCase):
    """What is kept is about one file, and no other one of the same length."""

    LONG = b'FS30' + b''.join(
        transaction(b'tid %4d' % number, b'x' * number)
        for number in range(500))

    def misfit(self, content, kept_of=LONG, end=None):
        end = len(kept_of) if end is None else end
        state = dataclasses.replace(FIRST, end=end)
        kept = Kept(state, states.tie_of(reader(kept_of), end), SELF)
        return states.misfit(kept, reader(content), len(content))

    def test_one_whose_last_length_is_any(self):
        """It is another file; nothing before its begin is read."""
        for length in 0, 1, len(self.LONG), (1 << 64) - 1:
            self.assertIsNotNone(self.misfit(
                self.LONG[:-8] + length.to_bytes(8, 'big')))

    def test_what_changes_within_the_last_bytes(self):
        for back in 1, 100, states.TIED:
            at = len(self.LONG) - back
            self.assertIsNotNone(self.misfit(
                self.LONG[:at] + b'?' + self.LONG[at + 1:]))


CONTENT = TheFile.LONG


class Disk(datafile.Disk):
    """What is done to it, in order."""

    def __init__(self):
        self.done = []

    def write(self, *args):
        super().write(*args)
        self.done.append('write')

    def sync(self, *args):
        super().sync(*args)
        self.done.append('sync')

    def replace(self, *args):
        super().replace(*args)
        self.done.append('replace')

    def sync_directory(self, *args):
        super().sync_directory(*args)
        self.done.append('sync_directory')


class Files(TestCase):

    def kept(self):
        return states.load(self.path())

    def test_nothing_is_kept(self):
        self.assertIsNone(self.kept())

    def test_it_is_durable_before_it_has_its_name(self):
        disk = Disk()
        with mock.patch.object(datafile, 'disk', disk):
            states.save(self.path(), FIRST, reader(CONTENT), SELF)
        self.assertEqual(self.kept(), Kept(
            FIRST, states.tie_of(reader(CONTENT), FIRST.end), SELF, None))
        self.assertEqual(
            disk.done, ['write', 'sync', 'replace', 'sync_directory'])

    def test_damage_is_not_taken_for_nothing(self):
        path = self.path() + states.SUFFIX
        for content in b'', b'other', states.pack(SAMPLE)[:-1]:
            with open(path, 'wb') as file:
                file.write(content)
            with self.assertRaisesRegex(Damaged, 'Data.fs.quorum'):
                self.kept()
        os.remove(path)
        os.mkfifo(path)
        with self.assertRaisesRegex(Damaged, 'no file'):
            self.kept()
