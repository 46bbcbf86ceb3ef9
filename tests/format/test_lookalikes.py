"""Content that could be taken for a transaction in its place."""

import random
import struct
import unittest

from fsyncstorage.format import scan
from fsyncstorage.format import seal
from fsyncstorage.format.lookalikes import MOST_LOOKS
from fsyncstorage.format.lookalikes import Lookalikes

from . import hostilefiles
from .sealing import NOTHING
from .sealing import window_of

START, END = 0x123450, 0x143210


def shown(content, start=START, end=END, step=None):
    lookalikes = Lookalikes(start, end)
    return any([lookalikes.are_in(content[at:at + (step or len(content))])
                for at in range(0, len(content), step or len(content))])


def transaction(position, **options):
    return hostilefiles.transaction(
        position, 1, hostilefiles.record(position, 7, NOTHING), **options)


class Content(unittest.TestCase):

    def test_a_transaction_in_its_place(self):
        for with_seal in False, True:
            for step in None, 1, 7, 64:
                made = b'x' * 50 + transaction(
                    START + 150, with_seal=with_seal) + b'x' * 50
                self.assertTrue(shown(made, step=step), (with_seal, step))

    def test_either_is_enough(self):
        made = transaction(START + 150, with_seal=True)
        size = scan.HEADER + seal.room(b'')
        self.assertTrue(shown(made[:size]))
        self.assertTrue(shown(made[size:]))

    def test_one_in_another_place(self):
        for position in START - 1, START, END, END + 100, 4:
            for with_seal in False, True:
                made = transaction(position, with_seal=with_seal)
                self.assertFalse(shown(made), position)
                self.assertFalse(shown(made, step=9), position)

    def test_what_a_search_behind_damage_believes(self):
        """Wherever the search finds one, so did the look at the content."""
        choice = random.Random(1)
        found = 0
        for _ in range(300):
            size = choice.choice([300, 3000, 70_000])
            start = choice.choice([4, 300, 1 << 16, (1 << 24) - 100, 1 << 33])
            content = bytearray(choice.randbytes(size))
            at = choice.randrange(1, size - 200)
            made = transaction(start + at, with_seal=choice.random() < .5)
            content[at:at + len(made)] = made
            for _ in range(choice.randrange(2)):
                content[at + choice.randrange(len(made))] = 0
            window = window_of(bytes(content))
            window.pread = (lambda content: lambda length, position: bytes(
                content[position - start:][:length]))(content)
            window.end = start + len(content)
            if (scan.find_transaction(window, start + 1) is not None
                    or any(scan.find_sound_seals(window, start + 1))):
                found += 1
                self.assertTrue(shown(
                    bytes(content), start, start + size,
                    choice.choice([None, 50, 1000])))
        self.assertGreater(found, 100)

    def test_a_record_of_the_transaction_itself(self):
        for start in 4, 77, 300, 70_000, START, 1 << 40:
            for count in 1, 20:
                body = b''.join(
                    hostilefiles.record(start, number, b'x' * 100, tid=1 << 50)
                    for number in range(count))
                made = hostilefiles.transaction(
                    start, 1 << 50, body, with_seal=True)
                self.assertFalse(
                    shown(made[:-8], start, start + len(made) - 8), start)

    def test_many_that_are_none_take_no_time(self):
        """Where there are too many places to look at, it is in doubt."""
        number = struct.pack('>Q', START - 1)
        for content in seal.MAGIC, number[:6] + b'x':
            self.assertFalse(shown(content * (MOST_LOOKS - 1)))
            self.assertTrue(shown(content * (MOST_LOOKS + 1)))
        self.assertTrue(shown(bytes(1 << 20), 4, 1 << 24))
