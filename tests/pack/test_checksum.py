"""The checksum of a file that is being written: in any pieces, by several."""

import hashlib
import os
import random
from unittest import mock

from fsyncstorage import datafile
from fsyncstorage.pack import checksum
from fsyncstorage.pack.checksum import Checksum
from fsyncstorage.pack.output import Output

from ..support import TestCase

BLOCK = 100


def by_hand(content):
    """By the definition."""
    def hashed(data):
        return hashlib.blake2b(data, digest_size=32).digest()

    return hashed(b''.join(
        hashed(content[at:at + BLOCK])
        for at in range(0, len(content), BLOCK)))


class Checksums(TestCase):

    def setUp(self):
        super().setUp()
        for name, value in ('BLOCK', BLOCK), ('_AT_ONCE', 17):
            patch = mock.patch.object(checksum, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        self.rng = random.Random(1)

    def file(self, content):
        with open(self.path(), 'wb') as file:
            file.write(content)
        file = open(self.path(), 'rb')
        self.addCleanup(file.close)
        return file.fileno()

    def test_of_files_of_any_length(self):
        for size in 0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 777:
            content = self.rng.randbytes(size)
            number = self.file(content)
            self.assertEqual(
                checksum.of_first(number, size), by_hand(content))
            self.assertIsNone(checksum.of_first(number, size + 1))
            self.assertEqual(
                checksum.of_first(number, size // 2),
                by_hand(content[:size // 2]))

    def test_in_any_pieces_and_handed_on(self):
        """Another one reads only what is behind the last whole block."""
        content = self.rng.randbytes(1234)
        number = self.file(content)
        for _ in range(50):
            found = Checksum.of_file(number)
            for end in sorted(self.rng.sample(range(1234), 3)):
                found.read_to(end)
                self.assertEqual(found.of_all(), by_hand(content[:end]))
                found = Checksum.of_file(number, found.blocks)
                self.assertGreater(found.position + BLOCK, end)
            found.read_to(1234)
            self.assertEqual(found.of_all(), by_hand(content))

    def test_of_what_is_written_in_another_order(self):
        """A header is filled in when what is behind it was written."""
        for buffer in 1, 10, 64, 10_000:
            for _ in range(20):
                self.check_written(buffer)

    def check_written(self, buffer):
        with datafile.open_new(self.path()) as file, \
                mock.patch.object(Output, 'BUFFER', buffer):
            out = Output(file, checksum=Checksum.of_file(file.fileno()))
            for _ in range(self.rng.randrange(1, 6)):
                begin = out.end
                out.append(bytes(20))
                for _ in range(self.rng.randrange(5)):
                    out.append(self.rng.randbytes(self.rng.randrange(90)))
                    if self.rng.random() < .1:
                        out.flush()
                out.fill_in(self.rng.randbytes(20), begin)
                if self.rng.random() < .3:
                    out.flush()
            out.flush()
            content = os.pread(file.fileno(), 10_000, 0)
            self.assertEqual(out.checksum.position, len(content))
            self.assertEqual(out.checksum.of_all(), by_hand(content))
