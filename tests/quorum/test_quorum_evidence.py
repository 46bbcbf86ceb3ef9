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
from fsyncstorage.quorum.following.evidence import judge
from fsyncstorage.quorum.following.evidence import sealed_behind

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


def verdict(image, log, index_end=0):
    """`image` and `log` begin at END."""
    window = Window(
        lambda length, position: (bytes(END) + image)[
            position:position + length], END + len(image))
    reads = []

    def of_log(position, length):
        assert END <= position and position + length <= END + len(log)
        assert position >= max(reads, default=0)
        reads.append(position)
        return log[position - END:position - END + length]

    return judge(
        sealed_behind(window, END, TID), END + len(log), of_log, index_end)


class AnyHistory(unittest.TestCase):
    """M6: of which log something is said, and of which nothing."""

    level = 2

    @given(strategies.data(), histories(), SOME, strategies.booleans())
    @settings(max_examples=150)
    def test_a_log_that_has_all_is_followed(self, data, ours, others, primary):
        """It has what was acknowledged, and some of the rest, or what others
        have written; the file may have lost what was not synced there."""
        more = data.draw(strategies.integers(0, len(ours.unfinished)))
        log = ours.acknowledged + ours.unfinished[:more]
        end = log[-1].end if log else END
        log = content(log) + content(by_others(end, others))
        image = content(ours.acknowledged + ours.unfinished)
        synced = ours.end - END if primary else 0
        image = data.draw(lost_blocks(bytes(END) + image, END + synced))[END:]
        self.assertIsNone(verdict(image, log))

    @given(strategies.data(), histories(), SOME)
    @settings(max_examples=150)
    def test_what_a_seal_has_confirmed_is_not_lost(self, data, ours, others):
        """The log has only some of what was acknowledged, and others may have
        gone on.  The primary is refused if a seal is left that says so."""
        number = data.draw(strategies.integers(0, len(ours.acknowledged)))
        log = ours.acknowledged[:number]
        lost_at = log[-1].end if log else END
        log = content(log) + content(by_others(lost_at, others))
        image = data.draw(lost_blocks(
            bytes(END) + content(ours.acknowledged + ours.unfinished),
            ours.end))[END:]
        says = any(
            each.durable > lost_at for each in
            ours.acknowledged + ours.unfinished
            if each.is_found(image))
        self.assertEqual(verdict(image, log) is not None, says)

    @given(strategies.data(), histories())
    @settings(max_examples=100)
    def test_a_standby_knows_that_a_log_has_lost_its_end(self, data, ours):
        """Whatever blocks its file lacks, if a seal is there."""
        number = data.draw(strategies.integers(0, len(ours.acknowledged)))
        log = content(ours.acknowledged[:number])
        image = data.draw(lost_blocks(
            bytes(END) + content(ours.acknowledged + ours.unfinished),
            END))[END:]
        says = any(
            each.durable > END + len(log) for each in
            ours.acknowledged + ours.unfinished
            if each.is_found(image))
        self.assertEqual(verdict(image, log) is not None, says)


class Said(unittest.TestCase):

    def setUp(self):
        self.ours = written(END, 2000, None, [10, 20, 30])
        self.image = content(self.ours)

    def test_what_a_client_has_stored(self):
        """It may look like a transaction in its place."""
        begin = END + scan.HEADER + seal.room(b'')
        length = len(transaction(begin, 4000, 1 << 40, 10))
        begin += RECORD
        within = transaction(begin, 4000, 1 << 40, 10)
        ours = bytearray(transaction(END, 2000, END, length))
        ours[begin - END:begin - END + length] = within
        self.assertIsNone(verdict(bytes(ours), b''))
        self.assertRegex(
            verdict(bytes(begin - END) + within, b''), 'the log ends at 100')

    def test_what_a_client_has_stored_where_there_is_no_room_for_a_seal(self):
        """It neither speaks against the log, nor hides what speaks."""
        begin = END + scan.HEADER + RECORD
        within = transaction(begin, 4000, 1 << 40, 10)
        without = unsealed(END, 2000, within)
        self.assertIsNone(verdict(without, b''))
        # One that seems to be so long that all the others are parts of it.
        within = bytearray(transaction(begin, 4000, END, 10))
        front = within[:8] + struct.pack('>Q', 1 << 40) + within[
            16:scan.HEADER]
        within[:scan.HEADER + seal.room(b'')] = front + seal.make(
            bytes(front), b'', b' ', begin, 1 << 40, END, 0)
        without = unsealed(END, 2000, bytes(within))
        ours = content(written(END + len(without), 2001, None, [10, 20]))
        self.assertRegex(verdict(without + ours, b''), 'the log ends at 100')

    def test_an_index_is_a_witness_like_a_seal(self):
        """Of the last transaction, too."""
        end = self.ours[-1].end
        for index_end in 0, END, end:
            self.assertIsNone(verdict(self.image, self.image, index_end))
        self.assertRegex(
            verdict(self.image, content(self.ours[:2]), end),
            'the log ends at .* when the index of our file was written, all'
            f' before {end} had')
        others = content(self.ours[:2]) + content(
            by_others(self.ours[1].end, [30]))
        self.assertIsNone(verdict(self.image, others, self.ours[1].end))
        self.assertRegex(
            verdict(self.image, others, end), 'not have the transaction'
            f' 00000000000007d2 at {self.ours[1].end} of our')
