"""A node that is made of another one's files, also while that one writes; and
how a log begins, with the file of its first node.
"""

import os
import time
from unittest import mock

from ZODB.blob import FilesystemHelper
from ZODB.FileStorage.FileStorage import FileStorageError
from ZODB.POSException import StorageError
from ZODB.serialize import referencesf
from ZODB.utils import p64
from ZODB.utils import z64

from fsyncstorage import datafile
from fsyncstorage.quorum.beginning import copying
from fsyncstorage.quorum.beginning.bootstrap import begin
from fsyncstorage.quorum.beginning.copying import copied
from fsyncstorage.quorum.files import state as states
from fsyncstorage.quorum.history.record import Trim
from fsyncstorage.quorum.history.record import node_name
from fsyncstorage.quorum.log.interface import Unanswered
from fsyncstorage.quorum.log.notes import Note
from fsyncstorage.quorum.log.notes import parse_note

from ..server.serving import record
from ..support import TestCase
from ..support import begin as begin_transaction
from ..support import commit
from ..support import oid
from ..support import until
from .blobnodes import RECORD
from .blobnodes import found_blobs
from .fakelog import Engine
from .fakelog import FakeLog
from .fakelog import Fault
from .logged import found_in
from .roles import InProcess
from .roles import RolesTest
from .samples import SELF

C = node_name('c')


def content(path):
    with open(path, 'rb') as file:
        return file.read()


class Case(RolesTest):

    def setUp(self):
        super().setUp()
        self.log = FakeLog(self.engine)
        self.c = InProcess(self, 'c')
        self.addCleanup(self.c.close)
        self.patch(copying, PAUSE=0.0)

    def leading(self):
        self.a.open()
        return self.a.leads()

    def copied(self, **options):
        return copied(self.a.path, self.c.path, self.log, C, **options)

    def refused(self, words):
        before = sorted(os.listdir(os.path.dirname(self.c.path)))
        noted = self.engine.kept.get(C)
        with self.assertRaisesRegex(StorageError, words):
            self.copied()
        self.assertEqual(self.engine.kept.get(C), noted)
        self.assertEqual(
            {*os.listdir(os.path.dirname(self.c.path)), 'Data.fs.lock'},
            {*before, 'Data.fs.lock'})

    def check_that_the_copy_leads(self):
        """When the first node has ended; with the same bytes."""
        self.c.open()
        until(lambda: self.c.node.stats().get('sequence')
              == self.engine.head.sequence, 'it has all')
        self.a.close()
        self.c.leads()
        self.assertEqual(content(self.c.path), content(self.a.path))


class UnderLoad(Case):

    level = 2

    def test_the_log_does_not_wait_while_it_copies(self):
        """The note comes at the end, with what was committed meanwhile."""
        storage = self.leading()
        noted, during = [], []

        def commits(*told):
            noted.append(C in self.engine.kept)
            if len(during) < 3:
                during.append(commit(storage, {len(during): b'x'}))
                until(lambda: states.load(self.a.path).tie.tid == during[-1],
                      'it is kept')

        kept = self.copied(tell=commits)
        self.assertEqual(noted, [False, False, True])
        self.assertGreaterEqual(kept.tie.tid, during[0])
        self.assertEqual(parse_note(self.engine.kept[C]),
                         Note(kept.node, kept.state.place))
        self.check_that_the_copy_leads()

    def test_a_look_at_all_blobs_takes_longer_than_a_trim(self):
        """What was kept before is too old to be noted, at the end of each
        look."""
        storage, noted = self.leading(), []

        def look(*args):
            tid = commit(storage, {len(noted): b'x'})
            until(lambda: states.load(self.a.path).tie.tid == tid, 'kept')
            noted.append(C in self.engine.kept)
            if not noted[-1]:
                storage.replica.say(Trim(self.engine.head.sequence))
                self.engine.trim(self.engine.head.sequence)

        with mock.patch.object(copying, '_copy_blobs', look):
            self.copied(blobs=(None, None))
        self.assertEqual((noted.count(True), noted[-1]), (1, True))
        self.check_that_the_copy_leads()

    def test_the_log_is_trimmed_past_it_meanwhile(self):
        """That is found when it is noted."""
        storage, note = self.leading(), self.log.note

        def late(*args):
            for number in range(1, 4):
                commit(storage, {number: b'x'})
            storage.replica.say(Trim(self.engine.head.sequence))
            note(*args)

        with mock.patch.object(self.log, 'note', late):
            self.refused('is too old')


class Packed(Case):

    level = 2

    def test_a_node_that_packs_meanwhile(self):
        """The new one packs its copy, when it meets that in the log."""
        storage = self.leading()
        tid = commit(storage, {0: record(1)})
        for number in range(2, 9):
            tid = commit(storage, {0: record(number)}, {0: tid})
        load, packed = states.load, []

        def and_pack(path):
            kept = load(path)
            if not packed:
                packed.append(storage.getSize())
                storage.pack(time.time(), referencesf)
                self.assertLess(storage.getSize(), packed[0])
            return kept

        until(lambda: load(self.a.path).tie.tid == tid, 'all is kept')
        with mock.patch.object(states, 'load', and_pack):
            self.copied()
        commit(storage, {0: record(9)}, {0: tid})
        self.check_that_the_copy_leads()

    def test_a_node_that_packs_behind_the_rounds(self):
        """The log does not wait while all of the packed file is copied, and
        blobs that the pack removes are not in the copy."""
        storage = self.leading()
        tid = z64
        for content_of_blob in b'old', b'new':
            transaction = begin_transaction(storage)
            self.store_blob(
                storage, transaction, 5, content_of_blob, tid, RECORD)
            storage.tpc_vote(transaction)
            tid = storage.tpc_finish(transaction)
        tid = commit(storage, {0: record(1)})
        for number in range(2, 9):
            tid = commit(storage, {0: record(number)}, {0: tid})
        until(lambda: states.load(self.a.path).tie.tid == tid, 'all is kept')
        newer, noted = copying._newer, []

        def and_pack(source):
            if not noted:
                storage.pack(time.time(), referencesf, gc=False)
            until(lambda: states.load(source).becoming is None, 'swapped')
            noted.append(C in self.engine.kept)
            return newer(source)

        copies = []
        with mock.patch.object(copying, '_newer', and_pack):
            self.copied(tell=lambda stage, position: copies.append(
                stage == 'file' and C in self.engine.kept), blobs=[
                FilesystemHelper(node.blob_dir, 'bushy')
                for node in (self.a, self.c)])
        self.assertNotIn(True, copies)
        self.assertEqual(found_blobs(self.c.blob_dir),
                         found_blobs(self.a.blob_dir))
        commit(storage, {0: record(9)}, {0: tid})
        self.check_that_the_copy_leads()

    def test_files_that_do_not_belong_together(self):
        with open(self.a.path, 'wb') as file:
            file.write(b'FS2')
        self.refused('do not belong together: .* copy .* first')


class Refused(Case):

    def test_what_is_no_node_or_no_place_for_one(self):
        with open(self.c.path, 'wb') as file:
            file.write(b'something')
        self.refused('is there already')
        self.assertEqual(content(self.c.path), b'something')
        os.remove(self.c.path)
        ours, self.log = self.log, FakeLog(Engine(None))
        begin(self.path('other.fs'), self.log)
        self.refused('of another log')
        self.log = ours
        with open(self.a.path + '.quorum', 'r+b') as file:
            file.write(b'x')
        self.refused('Take another node')

    def test_the_name_of_another_node(self):
        """Its note would be replaced."""
        for raw in Note(SELF, self.engine.head).packed(), b'nonsense':
            self.log.note(C, raw)
            self.refused('another node of the name c.*fsync-quorum forget c')
        self.log.forget(C)
        self.copied()

    def test_a_copy_that_is_damaged_on_its_way(self):
        write = datafile.DataFile.write_at

        def wrong(file, data, position):
            return write(file, bytes(len(data)), position)

        with mock.patch.object(datafile.DataFile, 'write_at', wrong):
            self.refused('is no copy of what was kept')

    def test_broken_off_and_repeated(self):
        replace = datafile.disk.replace

        def fails(source, target):
            if target == self.c.path + suffix:
                raise OSError('a fault')
            replace(source, target)

        for suffix in '.quorum', '':
            with mock.patch.object(datafile.disk, 'replace', fails):
                with self.assertRaises(OSError):
                    self.copied()
            self.assertEqual(self.engine.kept, {})
            self.assertFalse(os.path.exists(self.c.path))
            self.assertFalse(os.path.exists(self.c.path + '.copied'))
        self.copied()
        self.c.open()
        self.c.leads()


class Blobs(Case):

    def setUp(self):
        super().setUp()
        storage = self.leading()
        self.tid = commit(storage, {1: b'x'})
        storage.close()
        self.source = FilesystemHelper(self.path('blobs'), 'bushy')
        self.target = FilesystemHelper(self.path('new'), 'bushy')
        self.source.create()

    def blob(self, number, tid, text):
        path = self.source.getBlobFilename(oid(number), tid)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'wb') as file:
            file.write(text)

    def test_those_that_belong_to_the_copy(self):
        """The others come from the log."""
        later = p64(int.from_bytes(self.tid, 'big') + 1)
        for number, tid in (1, self.tid), (2, p64(5)), (3, later):
            self.blob(number, tid, b'%d' % number)
        with open(os.path.join(os.path.dirname(
                self.source.getBlobFilename(oid(1), self.tid)),
                'notes.blob'), 'wb'):
            pass
        self.copied(blobs=(self.source, self.target))
        found = sorted(
            os.path.join(path, name)
            for path, _, names in os.walk(self.target.base_dir)
            for name in names)
        self.assertEqual(found, sorted([
            os.path.join(self.target.base_dir, '.layout'),
            self.target.getBlobFilename(oid(1), self.tid),
            self.target.getBlobFilename(oid(2), p64(5))]))
        self.assertEqual(content(found[-1]) + content(found[-2]), b'21')


class Begins(TestCase):

    def setUp(self):
        super().setUp()
        self.engine = Engine(None)
        self.log = FakeLog(self.engine)

    def filled(self):
        storage = self.open()
        commit(storage, {1: b'x', 2: b'y'})
        storage.close()
        with open(self.path(), 'rb') as file:
            return file.read()

    def test_it_can_be_broken_off_anywhere(self):
        """And repeated: there is one log, and it is that of this file."""
        self.filled()
        for fault in Fault.BEFORE, Fault.AFTER:
            for answered in range(4):
                with self.subTest(fault=fault, answered=answered):
                    engine = Engine(None)
                    log = FakeLog(engine)
                    log.faults.extend([Fault.NONE] * answered + [fault] * 2)
                    with self.assertRaises(Unanswered):
                        begin(self.path(), log)
                    identity = begin(self.path(), log)
                    self.assertEqual(engine.log, identity)
                    self.assertEqual(begin(self.path(), log), identity)

    def test_two_logs_never_have_one_identity(self):
        """The first one was made under another name, or on another etcd."""
        other = Engine(None)
        first = begin(self.path(), FakeLog(other))
        second = begin(self.path(), self.log)
        self.assertNotEqual(first, second)
        self.assertEqual((other.log, self.engine.log), (first, second))
        self.assertEqual(states.load(self.path()).state.log, second)

    def test_a_log_that_comes_late(self):
        """The first call was not answered; the second one takes another
        identity, and finds the first one there."""
        self.log.faults.extend([Fault.NONE] * 2 + [Fault.DELAYED])
        with self.assertRaises(Unanswered):
            begin(self.path(), self.log)
        kept = states.load(self.path())
        create = self.log.create
        with mock.patch.object(self.log, 'create', lambda identity: (
                self.engine.deliver(), create(identity))):
            with self.assertRaisesRegex(FileStorageError, 'already'):
                begin(self.path(), self.log)
        self.assertEqual(states.load(self.path()), kept)
        self.assertEqual(begin(self.path(), self.log), kept.state.log)

    def test_a_refusal_leaves_no_file_behind(self):
        """It would be in the way of a copy of a node."""
        begin(self.path('other.fs'), self.log)
        before = found_in(self.directory)
        with self.assertRaisesRegex(
                FileStorageError, 'bootstrap --from DIRECTORY'):
            begin(self.path(), self.log)
        self.assertEqual(found_in(self.directory), before)
