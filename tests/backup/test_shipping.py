"""What is durable is shipped, in an order that leaves nothing half there; and
two writers never make two histories of one timeline."""

import contextlib
import itertools
import os
import random
import shutil
import time

from ZODB.FileStorage import FileStorage
from ZODB.utils import z64

from fsyncstorage.backup import bodies
from fsyncstorage.backup import content
from fsyncstorage.backup import head as heads
from fsyncstorage.backup import restore
from fsyncstorage.backup import segment
from fsyncstorage.backup import timeline
from fsyncstorage.backup.prefix import Unreachable
from fsyncstorage.backup.segment import NotShipped
from fsyncstorage.backup.store import Exists
from fsyncstorage.backup.store import StoreError
from fsyncstorage.backup.timeline import History
from fsyncstorage.backup.uploader import Stopped
from fsyncstorage.backup.verification import verify

from ..support import begin
from ..support import commit
from ..support import oid
from .shipped import DATABASE
from .shipped import RECORD
from .shipped import Shipped
from .stores import end_of_chain


class WhatIsShipped(Shipped):

    def read_chain(self):
        return end_of_chain(
            self.store, History(self.store, DATABASE, 1))

    def test_the_bytes_of_the_file(self):
        uploader = self.uploader()
        for number in range(3):
            tid = commit(self.storage, {number: b'%d' % number})
            self.assertTrue(uploader.ship())
            self.assertFalse(uploader.ship())
            self.assertEqual(self.content_of_log(), self.content_of_file())
        self.assertEqual(self.read_chain(), uploader.tip)
        self.assertEqual(uploader.tip[3:], (tid, oid(2), 0))
        self.assertEqual(len(self.keys('t000001/log/')), 3)

    def test_an_empty_file_is_not_shipped(self):
        self.assertFalse(self.uploader().ship())
        self.assertEqual(self.keys('t000001/log/'), [])

    def test_only_what_is_durable(self):
        """Under `none` a commit is published before it is synced; its server
        syncs it when it is asked to."""
        storage = self.open('Other.fs', durability='none',
                            blob_dir=self.path('Other.fs.blobs'))
        handout = self.hand_out(storage)
        uploader = self.uploader('Other.fs')
        handout.close()
        commit(storage, {0: b'data'})
        self.assertFalse(uploader.ship())
        self.hand_out(storage)
        self.assertTrue(uploader.ship())

    def test_only_what_is_published(self):
        """`f` is called when the transaction is durable."""
        commit(self.storage, {0: b'data'})
        uploader = self.uploader()
        uploader.ship()
        before = uploader.tip
        commit(self.storage, {1: b'data'}, f=lambda tid: uploader.ship())
        self.assertEqual(uploader.tip, before)
        self.assertTrue(uploader.ship())

    def test_tids_rise_over_segments(self):
        uploader = self.uploader()
        commit(self.storage, {0: b'data'})
        file = uploader._prefix.file
        with self.assertRaisesRegex(NotShipped, 'does not rise'):
            segment.next_segment(
                segment.Window(file.read, file.end),
                uploader.tip._replace(tid=b'\xff' * 8))

    def test_segments_end_with_transactions(self):
        self.patch(content, PART=1000)
        sizes = [10, 300, 300, 300, 5000, 10, 900, 900]
        for size in sizes:
            commit(self.storage, {len(sizes): bytes(size)}, {
                len(sizes): self.storage.lastTransaction()})
        uploader = self.uploader()
        uploader.ship()
        self.assertEqual(self.read_chain(), uploader.tip)
        found = [heads.unpack(self.store.objects[key], (heads.SEGMENT,))
                 for key in self.keys('t000001/log/')]
        ends = {transaction.end for transaction in segment.scan.transactions(
            segment.Window(uploader._prefix.file.read, found[-1].end))}
        self.assertEqual(found[-1].end, os.stat(self.path()).st_size)
        self.assertLessEqual({head.end for head in found}, ends)
        for head in found:
            self.assertTrue(
                head.length <= 1000 or head.form == heads.MANIFEST, head)
        self.assertLess(len(found), len(sizes))

    def test_a_start_goes_on(self):
        for number in range(3):
            commit(self.storage, {number: b'data'})
            self.uploader().ship()
        self.assertEqual(self.content_of_log(), self.content_of_file())

    def test_a_damaged_file_is_not_shipped(self):
        commit(self.storage, {0: b'data'})
        commit(self.storage, {1: b'something'})
        data = self.content_of_file()
        with open(self.path(), 'r+b') as file:
            file.seek(data.index(b'something'))
            file.write(b'S')
        with self.assertRaisesRegex(NotShipped, 'checksum'):
            self.uploader().ship()
        self.assertEqual(self.keys('t000001/log/'), [])


class Blobs(Shipped):

    def test_they_are_there_before_the_segment(self):
        """Also where the store fails at any put."""
        self.commit_blob(1, b'one')
        self.commit_blob(2, bytes(100))
        uploader = self.uploader()
        order = []
        self.store.before = lambda method, key: order.append((method, key))
        uploader.ship()
        order = [key.split('/')[1:] for method, key in order
                 if method == 'create']
        self.assertEqual([names[0] for names in order],
                         ['t000001', 'blobs', 'blobs', 't000001'])
        self.assertEqual([order[0][1], order[-1][1]], ['lists', 'log'])

    def test_a_list_names_them(self):
        tids = [self.commit_blob(number, bytes(number)) for number in (2, 1)]
        commit(self.storage, {3: b'no blob'})
        self.uploader().ship()
        key, = self.keys('t000001/lists/')
        listed = bodies.read_blob_list(self.store.objects[key][heads.SIZE:])
        self.assertEqual(
            [(blob.oid, blob.tid, blob.size) for blob in listed],
            [(oid(2), tids[0], 2), (oid(1), tids[1], 1)])
        for blob in listed:
            data = self.store.objects[DATABASE.blob(
                blob.oid, blob.tid, blob.sum)]
            self.assertEqual(data[heads.SIZE:], bytes(blob.size))
        last = self.store.objects[self.keys('t000001/log/')[0]]
        self.assertIn(heads.unpack(last, (heads.SEGMENT,)).blobs.hex(), key)

    def test_one_that_stock_has_stored_twice(self):
        """As stock's client does over ZEO: the transaction has two records."""
        stock = FileStorage(self.path('Stock.fs'),
                            blob_dir=self.path('Stock.fs.blobs'))
        transaction = begin(stock)
        stock.store(oid(1), z64, RECORD, '', transaction)
        self.store_blob(stock, transaction, 1, b'one', z64, RECORD)
        stock.tpc_vote(transaction)
        tid = stock.tpc_finish(transaction)
        stock.close()
        self.handed_out('Stock.fs')
        self.uploader('Stock.fs').ship()
        key, = self.keys('t000001/lists/')
        listed, = bodies.read_blob_list(self.store.objects[key][heads.SIZE:])
        self.assertEqual((listed.oid, listed.tid), (oid(1), tid))
        restore.restore(History(self.store, DATABASE, 1), self.path('R.fs'),
                        self.path('R.fs.blobs'))
        self.assertEqual(self.content_of_file('R.fs'),
                         self.content_of_file('Stock.fs'))

    def test_of_an_undo(self):
        """The record has no data of its own, and the blob has a file."""
        first = self.commit_blob(1, b'one')
        self.commit_blob(1, b'two', serial=first)
        undone = self.storage.undoLog(0, 1)[0]['id']
        transaction = begin(self.storage)
        self.storage.undo(undone, transaction)
        self.storage.tpc_vote(transaction)
        tid = self.storage.tpc_finish(transaction)
        self.uploader().ship()
        self.assertTrue([key for key in self.keys('blobs/')
                         if tid.hex() in key])
        self.assertEqual(len(self.keys('blobs/')), 3)

    def test_one_that_is_missing_is_shipped_as_missing(self):
        tid = self.commit_blob(1, b'one')
        self.commit_blob(2, b'two')
        os.remove(self.storage.fshelper.getBlobFilename(oid(1), tid))
        uploader = self.uploader()
        with self.assertLogs('fsyncstorage', 'WARNING') as logs:
            uploader.ship()
        self.assertIn(tid.hex(), logs.output[0])
        self.assertEqual(len(self.keys('blobs/')), 1)

    def test_of_a_wrapper_that_encrypts(self):
        """Its records may be of blobs, or not: files are shipped."""
        transaction = begin(self.storage)
        self.store_blob(self.storage, transaction, 1, record=b'.cfgh')
        self.storage.store(oid(2), z64, b'.cijk', '', transaction)
        self.storage.tpc_vote(transaction)
        self.storage.tpc_finish(transaction)
        with self.assertNoLogs('fsyncstorage', 'WARNING'):
            self.uploader().ship()
        self.assertEqual(len(self.keys('blobs/')), 1)

    def pack_meanwhile(self, storage, uploader):
        """Ship three segments, and pack at the second one: it leaves out a
        blob of the third."""
        self.commit_blob(1, b'one', storage)
        commit(storage, {5: bytes(2000)})
        tid = self.commit_blob(2, b'two', storage)
        self.commit_blob(2, b'new', storage, serial=tid)
        self.patch(content, PART=1000)

        def pack(method, key):
            if key.endswith('/log/000000000001'):
                self.store.before = lambda method, key: None
                storage.pack(time.time(), None, gc=False)

        self.store.before = pack
        uploader.ship()

    def test_those_that_a_pack_takes_away_meanwhile(self):
        """They are where the pack has moved them."""
        with self.assertNoLogs('fsyncstorage', 'WARNING'):
            self.pack_meanwhile(self.storage, self.uploader())
        self.assertEqual(len(self.keys('blobs/')), 3)

    def test_those_that_a_pack_removes_meanwhile(self):
        """They are not shipped as missing, and neither is their segment."""
        self.storage = self.handed_out('Other.fs', pack_keep_old=False)
        uploader = self.uploader('Other.fs')
        with self.assertRaisesRegex(Unreachable, 'pack'):
            self.pack_meanwhile(self.storage, uploader)
        self.assertEqual(len(self.keys('t000001/log/')), 2)
        with self.assertLogs('fsyncstorage', 'WARNING') as logs:
            uploader.ship()
        self.assertIn('what was between is lost', logs.output[0])

    def test_a_store_that_fails_at_any_call(self):
        """The next round goes on; and whenever there is a segment, its blobs
        are there."""
        self.commit_blob(1, b'one')
        commit(self.storage, {3: b'no blob'})
        self.commit_blob(2, b'two')
        for number in itertools.count():
            self.store.objects.clear()
            uploader = self.uploader()
            with self.store.failing(number) as failed, \
                    contextlib.suppress(StoreError):
                uploader.ship()
                uploader.beat()
            if failed and self.keys('t000001/log/'):
                self.assertEqual(len(self.keys('blobs/')), 2)
            uploader.ship()
            self.assertEqual(self.content_of_log(), self.content_of_file())
            if not failed:
                break
        self.assertGreater(number, 5)

    def test_a_large_one_that_was_cut_off(self):
        """Its parts are found again, and what names them is put last."""
        self.patch(content, PART=1000)
        self.commit_blob(1, random.Random(1).randbytes(3500))
        uploader, created = self.uploader(), []

        def fail(method, key):
            if method == 'create' and len(self.keys('parts/')) == 2:
                raise StoreError('away')

        self.store.before = fail
        with self.assertRaises(StoreError):
            uploader.ship()
        self.store.before = lambda method, key: (
            method == 'create' and '/blobs/' in key and created.append(key))
        uploader.ship()
        self.assertEqual(len(created), 3)
        self.assertEqual(self.keys('blobs/'), created[-1:])
        self.assertEqual(len(self.keys('parts/')), 4)

    def test_one_that_changes_meanwhile(self):
        """Somebody writes to its file; what is put is what the list says, or
        nothing."""
        self.patch(content, PART=1000)
        for number, size in enumerate((3, 3500)):
            tid = self.commit_blob(number, bytes(size))
            path = self.storage.fshelper.getBlobFilename(oid(number), tid)

            def change(method, key):
                if '/lists/' in key:
                    os.chmod(path, 0o600)
                    with open(path, 'r+b') as file:
                        file.write(b'x')

            uploader = self.uploader()
            self.store.before = change
            with self.assertRaises(content.Changed):
                uploader.ship()
            self.store.before = lambda method, key: None
            self.assertEqual(len(self.keys('blobs/')), number)
            uploader.ship()

    def test_a_directory_that_is_not_named(self):
        uploader = self.uploader(start=False)
        uploader._prefix._blob_dir = None
        with self.assertRaisesRegex(Unreachable, 'no directory of blobs'):
            uploader.start()


class Fence(Shipped):

    def setUp(self):
        super().setUp()
        for number in range(3):
            commit(self.storage, {number: b'data %d' % number})

    def copy(self, name='Copy.fs'):
        """Last night's copy, started elsewhere."""
        shutil.copyfile(self.path(), self.path(name))
        self.copied = self.handed_out(name)
        return self.copied

    def test_a_put_whose_answer_was_lost(self):
        uploader = self.uploader()
        create = self.store.create

        def lost(key, data):
            create(key, data)
            raise StoreError('no answer')

        self.store.create = lost
        with self.assertRaises(StoreError):
            uploader.ship()
        self.store.create = create
        uploader.ship()
        self.assertEqual(self.content_of_log(), self.content_of_file())

    def test_a_store_that_lists_late_what_was_put(self):
        """It is asked again in the next round, and nothing is put twice."""
        first = self.uploader()
        first.ship()
        late = self.uploader()
        commit(self.storage, {7: b'data'})
        first.ship()
        listed = self.store.list
        self.store.list = lambda directory, after='': (
            entry for entry in listed(directory, after)
            if not entry.key.endswith('/log/000000000001'))
        for _ in range(3):
            with self.assertRaisesRegex(StoreError, 'does not list it yet'):
                late.ship()
        self.store.list = listed
        self.assertFalse(late.ship() and late.tip != first.tip)
        self.assertEqual(self.content_of_log(), self.content_of_file())

    def test_a_put_that_arrives_when_its_writer_is_dead(self):
        """Before the next writer puts that object, or behind that."""
        for arrives_first in True, False:
            with self.subTest(arrives_first):
                self.store.objects.clear()
                uploader, create, late = self.uploader(), self.store.create, []

                def keep(key, data):
                    if '/log/' not in key:
                        return create(key, data)
                    late.append((key, data))
                    raise StoreError('killed')

                self.store.create = keep
                with self.assertRaises(StoreError):
                    uploader.ship()
                self.store.create = create
                commit(self.storage, {8: b'more'}, {
                    8: self.storage.lastTransaction()
                    if not arrives_first else z64})
                following = self.uploader()
                if arrives_first:
                    create(*late[0])
                    following.ship()
                else:
                    following.ship()
                    with self.assertRaises(Exists):
                        create(*late[0])
                following.beat()
                self.assertEqual(self.content_of_log(),
                                 self.content_of_file())

    def test_a_writer_that_sleeps_for_hours(self):
        """Another one has gone on with the same file, and packs."""
        sleeper, other = self.uploader(), self.uploader()
        sleeper.ship()
        for number in range(3):
            commit(self.storage, {number: b'later'}, {
                number: self.storage.load(oid(number))[1]})
            other.ship()
        self.storage.pack(time.time(), None, gc=False)
        commit(self.storage, {9: b'behind the pack'})
        other.ship()
        other.beat()
        sleeper.ship()
        sleeper.beat()
        self.assertEqual(sleeper.tip, other.tip)

    def test_a_copy_that_has_gone_on(self):
        """Whoever is second stops: at a segment, and at a heartbeat."""
        self.uploader().ship()
        copy = self.copy()
        commit(copy, {7: b'of the copy'})
        commit(self.storage, {7: b'of the site'})
        for stop in 'ship', 'beat':
            with self.subTest(stop):
                first, second = self.uploader(), self.uploader('Copy.fs')
                self.store.objects = dict(self.store.objects)
                first.ship()
                before = dict(self.store.objects)
                with self.assertRaisesRegex(Stopped, '--new-timeline'):
                    getattr(second, stop)()
                self.assertEqual(
                    self.log_and_heartbeat(), self.log_and_heartbeat(before))
            self.store.objects.popitem()

    def log_and_heartbeat(self, objects=None):
        return {key: data for key, data in (
            self.store.objects if objects is None else objects).items()
            if '/log/' in key or key.endswith('heartbeat')}

    def test_a_copy_whose_store_fails_while_it_compares(self):
        """It compares again, and does not go on behind the site's."""
        self.copy()
        second = self.uploader('Copy.fs')
        second.ship()
        commit(self.storage, {7: b'of the site'})
        self.uploader().ship()
        shipped = self.log_and_heartbeat()
        commit(self.copied, {7: b'of the copy'})
        for number in range(20):
            with self.store.failing(number), self.assertRaises(Stopped):
                for _ in range(3):
                    with contextlib.suppress(StoreError):
                        second.ship()
            self.assertEqual(self.log_and_heartbeat(), shipped)

    def test_a_copy_at_its_start(self):
        copy = self.copy()
        commit(copy, {7: b'of the copy'})
        commit(self.storage, {7: b'of the site'})
        self.uploader().ship()
        with self.assertRaisesRegex(Stopped, 'not the file that was shipped'):
            self.uploader('Copy.fs')

    def test_a_copy_that_is_behind(self):
        self.copy()
        commit(self.storage, {7: b'of the site'})
        self.uploader().ship()
        with self.assertRaisesRegex(Stopped, 'cut back'):
            self.uploader('Copy.fs')

    def test_the_end_of_a_timeline(self):
        uploader = self.uploader()
        uploader.ship()
        History(self.store, DATABASE, 1).end()
        with self.assertRaisesRegex(Stopped, 'another site has taken over'):
            uploader.beat()
        commit(self.storage, {7: b'later'})
        with self.assertRaisesRegex(Stopped, 'another site has taken over'):
            uploader.ship()
        with self.assertRaisesRegex(Stopped, 'another site has taken over'):
            self.uploader()

    def test_a_store_that_overwrites(self):
        def create(key, data):
            self.store.objects[key] = data

        self.store.create = create
        with self.assertRaisesRegex(Stopped, 'create-only'):
            self.uploader()

    def test_a_store_that_has_lost_objects(self):
        uploader = self.uploader()
        uploader.ship()
        commit(self.storage, {7: b'later'})
        uploader.ship()
        uploader.beat()
        del self.store.objects[DATABASE.timeline(1).segment(1)]
        with self.assertRaisesRegex(Stopped, 'has lost some'):
            self.uploader().beat()

    def test_what_is_no_object_of_a_backup(self):
        uploader = self.uploader()
        self.store.create(DATABASE.timeline(1).segment(0), b'something')
        with self.assertRaises(Stopped):
            uploader.ship()

    # A timeline of its own

    def test_a_new_timeline_leaves_the_old_one_where_it_differs(self):
        first = self.uploader()
        first.ship()
        copy = self.copy()
        fork = first.tip
        commit(self.storage, {7: b'of the site'})
        first.ship()
        commit(copy, {7: b'of the copy'})
        second = self.uploader('Copy.fs', new_timeline='staging')
        second.ship()
        begin = timeline.read_begin(self.store, DATABASE, 2)
        self.assertEqual(begin.sequence, fork.sequence)
        self.assertEqual((begin.parent, begin.why), (1, 'staging'))
        self.assertEqual(
            self.content_of_file('Copy.fs'),
            self.content_of_file()[:fork.position] + self.content_of_log(2))
        # Its next start goes on with it.
        commit(copy, {8: b'of the copy'})
        self.uploader('Copy.fs').ship()
        self.assertEqual(
            self.content_of_file('Copy.fs'),
            self.content_of_file()[:fork.position] + self.content_of_log(2))

    def test_a_new_timeline_of_a_file_that_differs_early(self):
        """What is equal behind the difference does not count."""
        uploader = self.uploader()
        uploader.ship()
        commit(self.storage, {7: b'later'})
        uploader.ship()
        self.copy()
        first = DATABASE.timeline(1).segment(0)
        head = heads.unpack(self.store.objects[first], (heads.SEGMENT,))
        self.uploader('Copy.fs')
        changed = head._replace(plain=bytes(32))
        self.store.objects[first] = (
            changed.pack() + self.store.objects[first][heads.SIZE:])
        self.uploader('Copy.fs', new_timeline='a test').ship()
        begin = timeline.read_begin(self.store, DATABASE, 2)
        self.assertEqual((begin.parent, begin.sequence), (0, 0))

    def test_a_new_timeline_ships_anew_what_the_store_has_lost(self):
        uploader = self.uploader()
        for number in 10, 11, 12:
            self.commit_blob(number, b'%d' % number)
            uploader.ship()
        whole = dict(self.store.objects)
        lost = [self.keys(directory)[1] for directory in (
            'blobs/', 't000001/log/', 't000001/lists/')]
        for key, is_cut in [(each, False) for each in lost] + [
                (each, True) for each in lost[1:]]:
            with self.subTest(key, is_cut=is_cut):
                self.store.objects = dict(whole)
                del self.store.objects[key]
                if is_cut:
                    self.store.objects[key] = whole[key][:-1]
                self.uploader(new_timeline='a test').ship()
                begin = timeline.read_begin(self.store, DATABASE, 2)
                self.assertEqual((begin.parent, begin.sequence), (1, 1))
                self.assertEqual(verify(
                    History(self.store, DATABASE, 2), True).problems, [])

    def test_a_new_timeline_of_another_file(self):
        self.uploader().ship()
        other = self.handed_out('Other.fs')
        commit(other, {0: b'of another'})
        self.uploader('Other.fs', new_timeline='another').ship()
        begin = timeline.read_begin(self.store, DATABASE, 2)
        self.assertEqual((begin.parent, begin.sequence), (0, 0))
        self.assertEqual(self.content_of_log(2),
                         self.content_of_file('Other.fs'))


class Heartbeats(Shipped):

    def test_it_says_how_far(self):
        uploader = self.uploader()
        names = DATABASE.timeline(1)
        uploader.beat()
        commit(self.storage, {0: b'data'})
        uploader.ship()
        uploader.beat()
        found = timeline.read_heartbeat(self.store, names)
        self.assertEqual(found['sequence'], 1)


class Reachable(Shipped):

    def test_no_server(self):
        with self.assertRaisesRegex(Unreachable, 'no server'):
            self.uploader('Other.fs')

    def test_a_server_that_has_ended(self):
        """What it has made durable before is shipped."""
        uploader = self.uploader()
        commit(self.storage, {0: b'data'})
        self.end_handing_out()
        self.storage.close()
        uploader.ship()
        self.assertEqual(self.content_of_log(), self.content_of_file())

    def test_a_link_to_the_file(self):
        """Its server is asked beside the link, as it names its socket."""
        os.mkdir(self.path('disk'))
        self.end_handing_out()
        self.storage.close()
        os.rename(self.path(), self.path('disk/real.fs'))
        os.symlink(self.path('disk/real.fs'), self.path())
        self.storage = self.handed_out()
        commit(self.storage, {0: b'data'})
        self.uploader().ship()
        self.assertEqual(self.content_of_log(), self.content_of_file())

    def test_another_file_has_its_name(self):
        """What was committed in the old one is shipped; but nobody is told
        that all is well."""
        uploader = self.uploader()
        commit(self.storage, {0: b'data'})
        shutil.copyfile(self.path(), self.path('Copy.fs'))
        os.rename(self.path('Copy.fs'), self.path())
        with self.assertRaisesRegex(Unreachable, 'another file'):
            self.uploader()
        self.end_handing_out()
        self.storage.close()
        uploader.ship()
        self.assertEqual(self.content_of_log(), self.content_of_file())
        with self.assertRaises(Unreachable):
            uploader.beat()
        self.assertEqual(self.keys('t000001/heartbeat'), [])

    def test_a_server_that_is_started_again(self):
        uploader = self.uploader()
        for number in range(3):
            commit(self.storage, {number: b'data'})
            uploader.ship()
            self.end_handing_out()
            self.storage.close()
            self.storage = self.handed_out()
        commit(self.storage, {9: b'data'})
        uploader.ship()
        self.assertEqual(self.content_of_log(), self.content_of_file())

    def end_handing_out(self):
        self.handout.close()

    def hand_out(self, storage):
        self.handout = super().hand_out(storage)
        return self.handout
