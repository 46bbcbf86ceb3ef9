"""A pack swaps when the nodes that follow have their packed files, too: for
whom it waits, how long, and what it does if one of them has another file.
"""

import time

from ZODB.FileStorage.FileStorage import FileStorageError
from ZODB.serialize import referencesf

from fsyncstorage.quorum.history.record import PackSwap
from fsyncstorage.quorum.history.record import Place
from fsyncstorage.quorum.history.record import node_name
from fsyncstorage.quorum.history.record import parse
from fsyncstorage.quorum.log.notes import NO_PART
from fsyncstorage.quorum.log.notes import Health
from fsyncstorage.quorum.log.notes import Note
from fsyncstorage.quorum.log.notes import parse_note
from fsyncstorage.quorum.roles import packs
from fsyncstorage.quorum.roles.packs import PATIENCE
from fsyncstorage.quorum.roles.presence import Heard

from ..server.serving import record
from ..support import TestCase
from ..support import commit
from ..support import until
from .roles import RolesTest
from .samples import OTHER

B, C = node_name('b'), node_name('c')
#: A pack, with size and checksum; another result of it; none; another pack.
PART = b'p' * 16 + b'1' * 40
DIFFERENT = b'p' * 16 + b'2' * 40
DAMAGED = b'p' * 16 + NO_PART
ANOTHER = b'o' * 16 + b'1' * 40


def content(path):
    with open(path, 'rb') as file:
        return file.read()


class Waits(TestCase):
    """By a clock of the test."""

    def setUp(self):
        super().setUp()
        self.now = 1e6
        self.heard = {}
        self.patch(packs, time=self)
        self.others = packs.Others(PART)

    def monotonic(self):
        return self.now

    def note(self, name, part=b'', pulse=0, is_new=True):
        self.heard[name] = Heard(Note(OTHER, Place(1, bytes(16)), Health(
            1.0, 0.1, True, '', pulse, part)), self.now, is_new)

    def waits(self, seconds=0.0):
        self.now += seconds
        return self.others.is_waited_for(self.heard)

    def test_for_each_node_until_it_has_the_same(self):
        self.note(B)
        self.note(C, ANOTHER)
        self.assertTrue(self.waits())
        self.note(B, PART)
        self.assertTrue(self.waits())
        self.note(C, PART)
        self.assertFalse(self.waits())

    def test_not_for_one_that_is_away(self):
        self.note(B, is_new=False)
        self.note(C)
        self.now += PATIENCE
        self.assertFalse(self.waits())

    def test_as_long_as_its_pack_gets_on(self):
        for pulse in range(1, 4):
            self.note(B, pulse=pulse)
            self.assertTrue(self.waits(PATIENCE - 1))
        self.note(B, pulse=pulse)
        self.assertTrue(self.waits(PATIENCE - 1))
        self.note(B, pulse=pulse)
        self.assertFalse(self.waits(1))

    def test_one_that_has_other_data(self):
        """It has another file, or cannot pack its own: its copy would be
        refused at the swap."""
        for part in DIFFERENT, DAMAGED:
            self.note(B, part)
            with self.assertLogs('fsyncstorage', 'CRITICAL'), \
                    self.assertRaisesRegex(FileStorageError, 'node b .* anew'):
                self.waits()

    def test_whom_it_went_on_without(self):
        self.note(B, is_new=False)
        self.note(C, PART)
        self.assertFalse(self.waits())
        with self.assertLogs('fsyncstorage', 'WARNING') as said:
            self.others.log_late(self.heard)
        self.assertEqual(len(said.output), 1)
        self.assertIn('without the node b', said.output[0])


class Swaps(RolesTest):

    def setUp(self):
        super().setUp()
        self.both()
        until(lambda: any(each.is_new for each in
                          self.a.node._presence.heard.values()),
              'it has heard of it since it leads')
        tid = None
        for number in range(9):
            tid = commit(self.a.storage, {0: record(number)}, {0: tid} if (
                tid) else {})
        self.found = []

    def when_it_swaps(self, raw):
        if isinstance(parse(raw).body, PackSwap):
            self.found.append(parse_note(self.engine.kept[B]).health.part)

    def test_the_other_one_is_ready_before(self):
        self.engine.landed = self.when_it_swaps
        self.a.storage.pack(time.time() + 1, referencesf)
        part, = self.found
        self.assertTrue(part)
        self.b.follows()
        self.assertEqual(self.a.storage.stats()['quorum']['generation'], 1)
        self.assertEqual(self.b.node.stats()['generation'], 1)

    def test_the_other_one_has_another_file(self):
        """Nobody swaps, and the next pack can be made."""
        of_pack = self.b.node._presence._of_pack

        def otherwise():
            pulse, part = of_pack()
            return pulse, part and part[:-1] + bytes([part[-1] ^ 1])

        self.engine.landed = self.when_it_swaps
        self.b.node._presence._of_pack = otherwise
        with self.assertLogs('fsyncstorage', 'CRITICAL'), \
                self.assertRaisesRegex(FileStorageError, 'other bytes'):
            self.a.storage.pack(time.time() + 1, referencesf)
        self.assertEqual(self.found, [])
        self.b.node._presence._of_pack = of_pack
        self.a.storage.pack(time.time() + 1, referencesf)
        self.assertEqual(len(self.found), 1)

    def test_the_other_one_is_damaged(self):
        """At the swap it would be refused, and one copy would be left."""
        until(lambda: record(8) in content(self.b.path), 'it has all')
        at = content(self.b.path).index(record(8)) + 5
        with open(self.b.path, 'r+b') as file:
            file.seek(at)
            file.write(b'?')
        self.engine.landed = self.when_it_swaps
        with self.assertLogs('fsyncstorage', 'CRITICAL'), \
                self.assertRaisesRegex(FileStorageError, 'cannot pack'):
            self.a.storage.pack(time.time() + 1, referencesf)
        self.assertEqual(self.found, [])
        commit(self.a.storage, {1: b'x'})
        self.b.follows()
