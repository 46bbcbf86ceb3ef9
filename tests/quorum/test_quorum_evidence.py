"""What the seals of a file say of a log that has lost what was acknowledged,
and never of one that has it all."""

import struct
import typing
import unittest
import zlib

from hypothesis import strategies

from fsyncstorage.format import scan
from fsyncstorage.format import seal
from fsyncstorage.format.window import Window
from fsyncstorage.quorum.following.evidence import durable_end

from ..generated import given
from ..generated import settings

#: Where the kept end is, and the last tid before it.
END, TID = 100, (1000).to_bytes(8, 'big')
#: Bytes that a power cut takes as a whole: fewer than on a disk, but more than
#: what stands from the header of a transaction to its first tid.
BLOCK = 128
#: What a record begins with: an oid and a tid.
RECORD = 16


def transaction(position, tid, durable, size):
    """The bytes of a sealed one, which begins with a record; an honest one
    says no `durable` behind its position."""
    room = seal.room(b'')
    size += RECORD
    length = scan.HEADER + room + size
    front = struct.pack(
        '>8sQcHHH', tid.to_bytes(8, 'big'), length, b' ', 0, 0, room)
    behind = struct.pack('>8sQ', b'an oid', tid) + bytes(
        [tid % 251 + 1]) * (size - RECORD) + struct.pack('>Q', length)
    return front + seal.make(
        front, b'', b' ', position, length, durable, zlib.crc32(behind)
        ) + behind


def unsealed(position, tid, data):
    """One that has no room for a seal."""
    length = scan.HEADER + RECORD + len(data)
    return struct.pack(
        '>8sQcHHH', tid.to_bytes(8, 'big'), length, b' ', 0, 0, 0
        ) + struct.pack('>8sQ', b'an oid', tid) + data + struct.pack(
        '>Q', length)


class Written(typing.NamedTuple):
    begin: int
    durable: int
    raw: bytes

    @property
    def end(self):
        return self.begin + len(self.raw)

    @property
    def seal_end(self):
        return self.begin + scan.HEADER + seal.room(b'')

    def is_found(self, image):
        """Are its header, its seal and its first tid there?"""
        front = self.raw[:self.seal_end - self.begin + RECORD]
        return image[self.begin - END:].startswith(front)


def written(begin, tid, durable, sizes):
    """One transaction behind the other.  Each says that all before `durable`
    was so; if that is None, all that is before it.
    """
    made = []
    for number, size in enumerate(sizes):
        said = begin if durable is None else durable
        each = Written(
            begin, said, transaction(begin, tid + number, said, size))
        made.append(each)
        begin = each.end
    return made


def content(transactions):
    return b''.join(each.raw for each in transactions)


SIZES = strategies.integers(0, 90)
SOME = strategies.lists(SIZES, max_size=4)


class History(typing.NamedTuple):
    """What was acknowledged, and what the primary has written behind that."""

    acknowledged: list
    unfinished: list

    @property
    def end(self):
        return self.acknowledged[-1].end if self.acknowledged else END


@strategies.composite
def histories(draw):
    """Each transaction says that some part of what was acknowledged before it
    was durable, and no less than the one before said."""
    acknowledged, begin, durable = [], END, END
    ends = [END]
    for size in draw(strategies.lists(SIZES, max_size=5)):
        durable = draw(strategies.sampled_from(
            [each for each in ends if each >= durable]))
        acknowledged.append(Written(begin, durable, transaction(
            begin, 2000 + len(acknowledged), durable, size)))
        begin = acknowledged[-1].end
        ends.append(begin)
    unfinished = []
    for size in draw(SOME):
        durable = draw(strategies.sampled_from(
            [each for each in ends if each >= durable]))
        unfinished.append(Written(begin, durable, transaction(
            begin, 3000 + len(unfinished), durable, size)))
        begin = unfinished[-1].end
    return History(acknowledged, unfinished)


def by_others(begin, sizes):
    """What another node has written from there on."""
    return written(begin, 5000, None, sizes)


@strategies.composite
def lost_blocks(draw, content, begin):
    """The content, without some of its blocks behind a position: they are
    zeros, or what the disk had there before, an older transaction."""
    old = content[:begin] + b''.join(
        transaction(at, 500, at, 37) for at in range(begin, 2000, 127))
    image = bytearray(content)
    for at in range(begin - begin % BLOCK, len(content), BLOCK):
        kept = draw(strategies.sampled_from(('ours', 'ours', 'old', 'zeros')))
        first, last = max(at, begin), min(at + BLOCK, len(content))
        if kept != 'ours':
            image[first:last] = (
                old[first:last] if kept == 'old' else bytes(last - first))
    return bytes(image)


def said(image):
    """Up to where an image that begins at END says that all was durable."""
    return durable_end(Window(
        lambda length, position: (bytes(END) + image)[
            position:position + length], END + len(image)), END, TID)


class AnyHistory(unittest.TestCase):
    level = 2

    @given(strategies.data(), histories(), SOME, strategies.booleans())
    @settings(max_examples=150)
    def test_a_log_that_has_all_is_followed(self, data, ours, others, primary):
        """Others may have gone on; the file may lack what was not synced."""
        more = data.draw(strategies.integers(0, len(ours.unfinished)))
        log = ours.acknowledged + ours.unfinished[:more]
        log += by_others(log[-1].end if log else END, others)
        image = content(ours.acknowledged + ours.unfinished)
        synced = ours.end - END if primary else 0
        image = data.draw(lost_blocks(bytes(END) + image, END + synced))[END:]
        self.assertLessEqual(said(image), log[-1].end if log else END)

    @given(strategies.data(), histories(), strategies.booleans())
    @settings(max_examples=150)
    def test_a_log_that_has_lost_its_end_is_not(self, data, ours, primary):
        """If a seal is left that says so, whatever blocks the file lacks."""
        image = data.draw(lost_blocks(
            bytes(END) + content(ours.acknowledged + ours.unfinished),
            ours.end if primary else END))[END:]
        self.assertEqual(said(image), max((
            each.durable for each in ours.acknowledged + ours.unfinished
            if each.is_found(image)), default=0))


class Stored(unittest.TestCase):

    def test_what_a_client_has_stored(self):
        """It may look like a transaction in its place."""
        begin = END + scan.HEADER + seal.room(b'')
        length = len(transaction(begin, 4000, 1 << 40, 10))
        begin += RECORD
        within = transaction(begin, 4000, 1 << 40, 10)
        ours = bytearray(transaction(END, 2000, END, length))
        ours[begin - END:begin - END + length] = within
        self.assertEqual(said(bytes(ours)), END)
        self.assertEqual(said(bytes(begin - END) + within), 1 << 40)

    def test_what_a_client_has_stored_where_there_is_no_room_for_a_seal(self):
        """It neither speaks against the log, nor hides what speaks."""
        begin = END + scan.HEADER + RECORD
        within = transaction(begin, 4000, 1 << 40, 10)
        without = unsealed(END, 2000, within)
        self.assertEqual(said(without), 0)
        # One that seems to be so long that all the others are parts of it.
        within = bytearray(transaction(begin, 4000, END, 10))
        front = within[:8] + struct.pack('>Q', 1 << 40) + within[
            16:scan.HEADER]
        within[:scan.HEADER + seal.room(b'')] = front + seal.make(
            bytes(front), b'', b' ', begin, 1 << 40, END, 0)
        without = unsealed(END, 2000, bytes(within))
        ours = written(END + len(without), 2001, None, [10, 20])
        self.assertEqual(said(without + content(ours)), ours[-1].begin)
