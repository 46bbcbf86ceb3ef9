"""What the seals of a file say of a log that has lost what was acknowledged,
and never of one that has it all."""

import itertools
import struct
import typing
import unittest
import zlib

from fsyncstorage.format import scan
from fsyncstorage.format import seal
from fsyncstorage.format.window import Window
from fsyncstorage.quorum.following.evidence import durable_end

#: Where the kept end is, and the last tid before it.
END, TID = 100, (1000).to_bytes(8, 'big')
#: Bytes that a power cut takes as a whole: fewer than on a disk, but more than
#: what stands from the header of a transaction to its first tid.
BLOCK = 128
#: What a record begins with: an oid and a tid.
RECORD = 16
ROOM = seal.room(b'')
SEAL_END = scan.HEADER + ROOM


def transaction(position, tid, durable, size, room=ROOM):
    """The bytes of one that begins with a record; without room, it has no
    seal.  An honest one says no `durable` behind its position."""
    length = scan.HEADER + room + RECORD + size
    front = struct.pack(
        '>8sQcHHH', tid.to_bytes(8, 'big'), length, b' ', 0, 0, room)
    behind = struct.pack('>8sQ', b'an oid', tid) + bytes(
        [tid % 251 + 1]) * size + struct.pack('>Q', length)
    sealed = seal.make(front, b'', b' ', position, length, durable,
                       zlib.crc32(behind)) if room else b''
    return front + sealed + behind


def with_data(raw, data):
    """The same transaction, whose record has this data in the end."""
    end = len(raw) - 8
    return raw[:end - len(data)] + data + raw[end:]


class Written(typing.NamedTuple):
    begin: int
    raw: bytes

    def is_found(self, image):
        """Are its header, its seal and its first tid there?"""
        return image[self.begin - END:].startswith(
            self.raw[:SEAL_END + RECORD])


def written(begin, tid, sizes):
    """One transaction behind the other, all of it durable before the next."""
    made = []
    for number, size in enumerate(sizes, tid):
        made.append(Written(begin, transaction(begin, number, begin, size)))
        begin += len(made[-1].raw)
    return made


def content(transactions):
    return b''.join(each.raw for each in transactions)


def said(image):
    """Up to where an image that begins at END says that all was durable."""
    return durable_end(Window(
        lambda length, position: (bytes(END) + image)[
            position:position + length], END + len(image)), END, TID)


class Seals(unittest.TestCase):

    def test_whatever_blocks_a_power_cut_takes(self):
        """In their place there are zeros, or what the disk had there before:
        older transactions."""
        ours = written(END, 2000, [0, 50, 90, 10])
        image, old = content(ours), content(written(END, 500, [37] * 9))
        blocks = range(0, len(image), BLOCK)
        for kept in itertools.product(
                (image, old, bytes(len(image))), repeat=len(blocks)):
            left = b''.join(each[at:at + BLOCK] for each, at in zip(
                kept, blocks))[:len(image)]
            self.assertEqual(said(left), max((
                each.begin for each in ours if each.is_found(left)),
                default=0))

    def test_what_a_client_has_stored(self):
        """It may look like a transaction in its place."""
        begin = END + SEAL_END + RECORD
        within = transaction(begin, 4000, 1 << 40, 10)
        ours = with_data(
            transaction(END, 2000, END, len(within)), within)
        self.assertEqual(said(ours), END)
        self.assertEqual(said(bytes(begin - END) + within), 1 << 40)

    def test_what_a_client_has_stored_where_there_is_no_room_for_a_seal(self):
        """It neither speaks against the log, nor hides what speaks."""
        begin = END + scan.HEADER + RECORD
        within = transaction(begin, 4000, 1 << 40, 10)
        without = with_data(
            transaction(END, 2000, END, len(within), room=0), within)
        self.assertEqual(said(without), 0)
        # One that seems to be so long that all the others are parts of it.
        front = within[:8] + struct.pack('>Q', 1 << 40) + within[
            16:scan.HEADER]
        within = front + seal.make(
            front, b'', b' ', begin, 1 << 40, END, 0) + within[SEAL_END:]
        ours = written(END + len(without), 2001, [10, 20])
        self.assertEqual(
            said(with_data(without, within) + content(ours)), ours[-1].begin)
