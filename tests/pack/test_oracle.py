"""Random histories, packed by stock's packer and by ours: the same is kept."""

import os
import random
import zlib
from base64 import encodebytes
from unittest import mock

from ZODB.POSException import POSKeyError
from ZODB.serialize import referencesf
from ZODB.TimeStamp import TimeStamp
from ZODB.utils import p64

from fsyncstorage import datafile
from fsyncstorage.format import references
from fsyncstorage.format import scan
from fsyncstorage.format import seal
from fsyncstorage.format.window import Window
from fsyncstorage.pack import progress
from fsyncstorage.pack import work

from ..often import often
from ..support import TestCase
from ..support import begin
from ..support import commit
from ..support import oid
from . import oracle
from .histories import BLOB
from .histories import HEADER
from .histories import NOWHERE
from .histories import RECORD
from .histories import History
from .histories import Options
from .histories import random_history
from .histories import state
from .histories import tid


def transactions(content):
    window = Window(lambda length, position:
                    content[position:position + length], len(content))
    position = scan.FIRST
    while position < len(content):
        found = scan.read_transaction(window, position)
        yield found
        position = found.end


def data_at(content, record):
    """The data that this record leads to; None: its creation is undone."""
    window = Window(lambda length, position:
                    content[position:position + length], len(content))
    record = scan.Chains(window).source(record)
    start = record.position + scan.RECORD_HEADER
    return content[start:start + record.length] if record.length else None


def as_read(content):
    """All that a reader sees, without positions."""
    return [(found.tid, found.status, found.user, found.extension,
             [(record.oid, record.tid, data_at(content, record))
              for record in found.records])
            for found in transactions(content)]


def shape(content):
    """With positions, and without seals."""
    return [(found.position, found.end, found.tid, found.status,
             found.records) for found in transactions(content)]


def outline(content):
    """Which records there are."""
    return [(tid, status, [record[:2] for record in records])
            for tid, status, _, _, records in as_read(content)]


def blobs_in(content):
    return {(record.oid, record.tid)
            for found in transactions(content) for record in found.records
            if data_at(content, record) == BLOB}


def blobs_of_lines(lines, blobs):
    """The blobs that are taken away by a list."""
    names = [bytes.fromhex(line.decode()) for line in lines]
    return {(oid, tid) for oid, tid in blobs
            if oid in names or oid + tid in names}


class Oracle(TestCase):

    histories = often(200, 10_000, 60)

    def setUp(self):
        super().setUp()
        self.blobs = self.path('blobs')
        os.mkdir(self.blobs)

    def ours(self, content, stop, gc, tell=lambda *progress: None):
        with open(self.path(), 'wb') as file:
            file.write(content)
        new = datafile.open_new(self.path('Data.fs.pack'))
        removed = datafile.open_new(self.path('removed'))
        index = datafile.open_new(self.path('Data.fs.pack.index'))
        old = datafile.open_existing(self.path())
        with old, new, index, removed:
            try:
                copier = work.copied(
                    work.Job(stop, len(content), gc),
                    work.Files(old, removed, new, index),
                    references.references, tell, lambda: len(content))
            except work.NothingToDo:
                return oracle.NOTHING
            except POSKeyError:
                return oracle.MISSING
            with open(self.path('Data.fs.pack'), 'rb') as file:
                content = file.read()
            with open(self.path('removed'), 'rb') as file:
                lines = file.read().split()
        self.assertEqual(copier.written_to, len(content))
        return oracle.Packed(content, dict(copier.index.items()), lines)

    def stock(self, content, stop, gc):
        with open(self.path(), 'wb') as file:
            file.write(content)
        return oracle.packed(self.path(), self.blobs, stop, gc)

    def compare(self, content, stop, gc, has_duplicates):
        """Return what we made of it."""
        stock = self.stock(content, stop, gc)
        ours = self.ours(content, stop, gc)
        if stock == oracle.GAVE_UP:
            self.assertTrue(not gc or has_duplicates)
            self.assertIsInstance(ours, oracle.Packed)
            self.check_later(content, ours.content, stop)
            return ours
        if isinstance(stock, str) or isinstance(ours, str):
            self.assertEqual(ours, stock)
            return ours
        if has_duplicates:
            # Stock's pointers may lead to the other record of the object,
            # even if that has other data.
            self.assertEqual(outline(ours.content), outline(stock.content))
            self.check_later(content, ours.content, stop)
        else:
            self.assertEqual(as_read(ours.content), as_read(stock.content))
            self.assertEqual(shape(ours.content), shape(stock.content))
            self.assertEqual(ours.index, stock.index)
        blobs = blobs_in(content)
        self.assertEqual(
            blobs_of_lines(ours.removed, blobs),
            blobs_of_lines(stock.removed, blobs) - blobs_in(ours.content))
        return ours

    def check_later(self, before, after, stop):
        """After the pack time nothing has changed."""
        self.assertEqual(
            [each for each in as_read(after) if each[0] > stop],
            [each for each in as_read(before) if each[0] > stop])

    def test_the_same_is_kept(self):
        seen = set()
        for number in range(self.histories):
            with self.subTest(number):
                rng, history = random_history(number)
                content = bytes(history)
                for _ in range(rng.randrange(1, 4)):
                    stop = tid(rng.randrange(-1, history.last + 2))
                    gc = rng.random() < .7
                    result = self.compare(
                        content, stop, gc, history.has_duplicates)
                    seen.add(result if isinstance(result, str) else 'packed')
                    if isinstance(result, oracle.Packed):
                        content = result.content
        self.assertEqual(seen, {oracle.NOTHING, oracle.MISSING, 'packed'})

    def test_without_seals_the_bytes_are_the_same(self):
        compared = 0
        for number in range(self.histories):
            _, history = random_history(number)
            if history._options.sealed or history.has_duplicates:
                continue
            stop = tid(history.last)
            results = [pack(bytes(history), stop, True)
                       for pack in (self.stock, self.ours)]
            if isinstance(results[0], oracle.Packed):
                compared += 1
                self.assertEqual(results[0].content, results[1].content)
        self.assertGreater(compared, self.histories / 10)

    def test_pointers_to_what_is_not_kept(self):
        """Where stock fails: the data are in their place, and pointers to what
        is behind them are right."""
        for number in range(self.histories):
            with self.subTest(number):
                history = History(random.Random(number), Options(
                    transactions=14, undos=.7))
                content = bytes(history)
                stop = tid(number % 14)
                ours = self.ours(content, stop, False)
                if isinstance(ours, oracle.Packed):
                    self.check_later(content, ours.content, stop)

    def test_a_transaction_that_an_old_release_has_undone(self):
        """Its records do not count; what is behind it moves."""
        compared = pointed_to = 0
        for number in range(self.histories):
            history = History(random.Random(number), Options(
                transactions=14, undos=.7))
            content = bytearray(bytes(history))
            undone = list(transactions(content))[10]
            pointed_to += any(
                undone.position < record.back < undone.end
                for found in transactions(content)
                for record in found.records)
            content[undone.position + 16:undone.position + 17] = b'u'
            ours = self.ours(bytes(content), tid(8), False)
            if isinstance(ours, oracle.Packed):
                compared += 1
                self.check_later(bytes(content), ours.content, tid(8))
        self.assertGreater(compared, self.histories / 20)
        self.assertGreater(pointed_to, 3)

    def test_a_seal_of_another_length_is_damage(self):
        """It says that the extension was empty, and it is another pickle."""
        content = bytearray(bytes(History(random.Random(1), Options(2))))
        begin, body = len(content), b'\x80\x03}.'
        record = RECORD.pack(p64(1), tid(6), 0, begin, 0, 1) + b'x'
        field = len(body) + seal.SIZE
        length = scan.HEADER + field + len(record)
        front = HEADER.pack(tid(6), length, b' ', 0, 0, field)
        body += seal._FRONT.pack(seal.MAGIC, seal.VERSION, seal.WAS_EMPTY,
                                 b' ', seal.SIZE, begin, length, begin)
        crc = zlib.crc32(record + p64(length))
        body += seal._REST.pack(
            zlib.crc32(front + body, crc), seal.NO_ID)
        body += seal._CHECK.pack(zlib.crc32(body[-seal.SIZE + 4:]))
        content += front + body + record + p64(length)
        *_, last = transactions(bytes(content))
        self.assertEqual(last.seal, seal.SOUND)
        with self.assertRaisesRegex(scan.Damage, 'another length'):
            self.ours(bytes(content), tid(1), False)

    def test_the_file_changes_between_two_reads(self):
        """Seals are checked again; and all that was current is found."""
        for sealed in False, True:
            with self.subTest(sealed=sealed):
                content = bytes(History(random.Random(1), Options(
                    transactions=6, sealed=sealed)))
                [root, *_] = next(transactions(content)).records
                at = root.position + sealed * scan.RECORD_HEADER

                def change(phase, done, total, at=at):
                    if phase == progress.REFERENCES:
                        with open(self.path(), 'r+b') as file:
                            file.seek(at)
                            file.write(b'\xff')

                # (Else the window would have all of it, from the first.)
                with mock.patch.object(Window, 'SIZE', 64), \
                        self.assertRaisesRegex(
                            scan.Damage,
                            'checksum' if sealed else 'other records'):
                    self.ours(content, tid(0), True, change)

    def test_a_pointer_to_another_object_is_damage(self):
        """Of a transaction before the pack time, or after it."""
        history = History(random.Random(1), Options(transactions=6))
        content = bytearray(bytes(history))
        *_, last = transactions(bytes(history))
        [other, *_] = last.records
        begin, length = len(content), scan.HEADER + scan.SMALLEST_RECORD
        content += HEADER.pack(tid(6), length, b' ', 0, 0, 0)
        content += RECORD.pack(p64(NOWHERE), tid(6), 0, begin, 0, 0)
        content += p64(other.position) + p64(length)
        for stop in 5, 6:
            with self.assertRaisesRegex(scan.Damage, 'no record of its obj'):
                self.ours(bytes(content), tid(stop), False)

    def test_a_seal_says_its_own_position_and_keeps_the_id(self):
        for number in range(self.histories // 10):
            _, history = random_history(number)
            result = self.ours(bytes(history), tid(history.last), False)
            if isinstance(result, str):
                continue
            before = {found.tid: scan.seal.find(found.field)
                      for found in transactions(bytes(history))}
            for found in transactions(result.content):
                if found.seal != scan.seal.ABSENT:
                    self.assertEqual(found.seal, scan.seal.SOUND)
                    new = scan.seal.find(found.field)
                    self.assertEqual(new.durable, found.position)
                    self.assertEqual(new.id, before[found.tid].id)


class MoreThanStock(TestCase):
    """What is kept, and not by stock (docs/internals/pack.rst)."""

    def test_what_an_object_refers_to_that_an_undo_makes_reachable(self):
        storage = self.open(pack_process=False)
        first = commit(storage, {
            0: state_of(1), 1: state_of(2), 2: state_of(3), 3: state_of()})
        # Object 1 goes, and object 2 changes, in one transaction.
        second = commit(storage, {0: state_of(), 2: state_of(3) + b' '},
                        {0: first, 2: first})
        undone = begin(storage)
        storage.undo(encodebytes(second).rstrip(), undone)
        storage.tpc_vote(undone)
        storage.tpc_finish(undone)
        storage.pack(time_of(second), referencesf, gc=True)
        self.assertEqual(storage.load(oid(3))[0], state_of())
        self.assertEqual(storage.load(oid(2))[0], state_of(3))


def state_of(*oids):
    return state(random.Random(1), oids)


def time_of(tid):
    """A pack time just after this transaction."""
    return TimeStamp(tid).timeTime() + 1e-6
