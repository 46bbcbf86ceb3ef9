"""A node that follows has the blobs of a batch, durably, before the batch
counts (I11); and none that the log does not name.  Goes with
`quorum/following/fetching.py`.
"""

import os
import time
from unittest import mock

from ZODB.serialize import referencesf

from fsyncstorage import datafile
from fsyncstorage.pack import packedblobs
from fsyncstorage.quorum.following.repacking import Options
from fsyncstorage.quorum.following.standby import Standby
from fsyncstorage.quorum.history.record import MOST
from fsyncstorage.quorum.history.record import Blob
from fsyncstorage.quorum.history.record import place_of
from fsyncstorage.quorum.log.reading import Refused

from ..support import oid
from ..support import until
from . import blobnodes
from .blobnodes import BlobNodeTest
from .blobnodes import found_blobs
from .fakelog import MEMBERS
from .nodes import state_behind
from .samples import LOG
from .samples import data
from .samples import following
from .wrongmember import EngineWithWrong

LARGE = bytes(range(256)) * (MOST // 256) * 2 + b'the rest'


class FetchingTest(BlobNodeTest):

    def setUp(self):
        super().setUp()
        self.storage = self.lead()
        self.follower = self.follow()


class Fetched(FetchingTest):

    def test_they_are_durable_before_the_batch_counts(self):
        """I11."""
        done, follower = [], self.follower

        class Watched(datafile.Disk):

            def sync(self, fd):
                super().sync(fd)
                done.append(os.path.basename(os.readlink(
                    f'/proc/self/fd/{fd}'))[:7])

            def sync_directory(self, path, opener=None):
                super().sync_directory(path, opener)
                done.append('directory')

            def replace(self, source, target):
                super().replace(source, target)
                done.append('named')

        counted = follower._indexing.count
        follower._indexing.count = lambda *args: (
            done.append('counts'), counted(*args))
        self.commit_blobs(self.storage, {1: b'small'})
        with mock.patch.object(datafile, 'disk', Watched()):
            self.apply(follower)
        self.assertEqual(done[:4], [
            'Data.fs', 'directory',  # a list of what is to come
            'upload-', 'named'])
        behind = done[4:done.index('counts')]
        self.assertGreaterEqual(behind.count('directory'), 2)
        self.assertEqual(done[-2:], ['counts', 'Data.fs'])

    def test_what_has_other_contents_is_replaced(self):
        tid = self.commit_blobs(self.storage, {1: b'right'})
        path = self.follower.blobs.helper.getBlobFilename(oid(1), tid)
        os.makedirs(os.path.dirname(path))
        with open(path, 'wb') as file:
            file.write(b'wrong')
        os.chmod(path, 0o600)
        self.apply(self.follower)
        self.follower.save()
        self.assertEqual(self.contents('b'), [b'right'])


class OneMemberIsWrong(FetchingTest):

    def setUp(self):
        super().setUp()
        self.commit_blobs(self.storage, {1: LARGE, 2: LARGE[::-1]})
        self.one, self.other = (
            blob.staged for blob in self.blobs_in_the_log())

    def damages(self):
        chunk = self.engine.blobs[self.one, 1]
        yield 'a bit has flipped', chunk[:-1] + bytes([chunk[-1] ^ 1])
        yield 'another blob', self.engine.blobs[self.other, 1]
        yield 'it is shorter', chunk[:-1]
        yield 'it is longer', chunk + b'x'
        yield 'it is not there', None

    def test_another_one_is_asked(self):
        for words, wrong in self.damages():
            with self.subTest(words):
                self.engine.damaged_blobs = {(0, self.one, 1): wrong}
                node = words.replace(' ', '_')
                self.follow(node)
                self.are_the_same_blobs('a', node)

    def are_the_same_blobs(self, one, other):
        self.storage.replica.keep()
        self.assertEqual(self.blob_files(one), self.blob_files(other))

    def test_one_is_wrong_and_another_is_away(self):
        self.engine.damaged_blobs = {(0, self.one, 1): b'wrong'}
        self.engine.away = {1}
        self.follow('c')
        self.are_the_same_blobs('a', 'c')

    def damage_all(self):
        for member in range(MEMBERS):
            self.engine.damaged_blobs[member, self.one, 1] = b'wrong'

    def test_all_are_wrong(self):
        """A start is refused; what it has named is not left."""
        self.damage_all()
        for _ in range(2):
            with self.assertRaisesRegex(
                    Refused, 'no member has the blob.*Replace'):
                self.follow('c')
        self.assertEqual(self.blob_files('c'), {})
        self.engine.damaged_blobs = {}
        self.follow('c')
        self.are_the_same_blobs('a', 'c')


class Misled(BlobNodeTest):

    def test_a_standby_reads_on_from_another_member(self):
        """One shows a record whose blob nobody has."""
        self.engine = EngineWithWrong(LOG)
        storage, follower = self.lead(), self.follow()
        state = follower.state
        raw = following(state, data(state, b'x', blobs=(Blob(
            b'nobody'.ljust(16), oid(9), bytes(8), 1, bytes(32)),)))
        self.engine.own = [*self.engine.records, raw], place_of(raw)
        while follower.log.read(state.place.sequence + 1) != [raw]:
            follower.log.turn()
        self.commit_blobs(storage, {1: b'right'})
        standby = Standby(follower, 1 << 30)
        self.addCleanup(standby.close)
        standby.start()
        until(lambda: standby.state == state_behind(self.engine), 'it follows')
        self.assertEqual(self.contents('b'), [b'right'])


class Failing(FetchingTest):

    def test_a_full_disk(self):
        self.commit_blobs(self.storage, {1: LARGE})

        class Full(datafile.Disk):

            def write(self, fd, data, position):
                if len(data) == MOST and position:
                    raise OSError(28, 'No space left on device')
                super().write(fd, data, position)

        with mock.patch.object(datafile, 'disk', Full()):
            with self.assertRaises(OSError):
                self.apply(self.follower)
        self.assertEqual(self.blob_files('b'), {})
        self.apply(self.follower)
        self.follower.save()
        self.assertEqual(self.contents('b'), [LARGE])

    def test_a_node_without_a_directory(self):
        self.commit_blobs(self.storage, {1: b'x'})
        for _ in range(2):
            with self.assertRaisesRegex(
                    Refused, 'no blob-dir: give it one.*Nothing was changed'):
                self.follow('c', blob_dir=False)
        self.assertEqual(self.content('c'), b'FS30')


class NotNamed(FetchingTest):
    """Files that no transaction has are removed."""

    def test_what_was_being_made(self):
        self.commit_blobs(self.storage, {1: b'x'})
        self.apply(self.follower)
        self.follower.close()
        for name in ('blobs/tmp/upload-1', 'blobs/tmp/of a client',
                     'Data.fs.quorum.blobs-1'):
            with open(self.path(f'b/{name}'), 'wb') as file:
                file.write(b'torn')
        self.follow().close()
        self.assertEqual(os.listdir(self.path('b/blobs/tmp')), ['of a client'])
        self.assertEqual(self.lists('b'), [])


class Killed(BaseException):
    pass


class Packs(BlobNodeTest):
    """What a pack leaves out is taken away on each node."""

    level = 2

    def begin_pair(self, keep_old=False):
        self.packs = Options(own_process=False, keep_old=keep_old)
        self.storage = self.lead(
            pack_process=False, pack_keep_old=keep_old, pack_gc=False)
        self.follower = self.begin_following()

    def begin_following(self):
        with mock.patch.object(blobnodes, 'IN_PROCESS', self.packs):
            return self.follow()

    def pack(self):
        self.storage.pack(time.time() + 1, referencesf)

    def changed(self, number, content, serial=bytes(8)):
        return self.commit_blobs(
            self.storage, {number: content}, {number: serial})

    def test_it_is_removed_or_kept(self):
        """The node that leads links the others beside it; one that follows
        has no time for that."""
        for keep_old in False, True:
            with self.subTest(keep_old=keep_old):
                self.setUp()
                self.begin_pair(keep_old)
                tid = self.changed(1, b'old')
                self.apply(self.follower)
                self.changed(1, b'new', tid)
                self.pack()
                self.apply(self.follower)
                for node in 'a', 'b':
                    self.assertEqual(self.contents(node), [b'new'])
                    old = found_blobs(self.blob_dir(node) + '.old')
                    self.assertEqual(
                        sorted(old.values()), keep_old * (
                            [b'new', b'old'] if node == 'a' else [b'old']))
                self.assertFalse(os.path.exists(self.path('b/blobs/.removed')))

    def dies(self):
        """Before it takes them away."""
        return mock.patch.object(packedblobs, 'take_away', side_effect=Killed)

    def test_a_crash_before_they_are_taken_away(self):
        """And before the state behind the swap is kept."""
        self.begin_pair()
        tid = self.changed(1, b'old', self.changed(1, b'older'))
        self.changed(1, b'new', tid)
        self.pack()
        with self.dies(), self.assertRaises(Killed):
            self.apply(self.follower)
        self.assertEqual(len(self.contents('b')), 3)
        self.follower.close()
        with self.assertLogs(packedblobs.__name__, 'WARNING'):
            self.follower = self.begin_following()
        self.assertEqual(self.contents('b'), [b'new'])
        self.assertFalse(os.path.exists(self.path('b/blobs/.removed')))
        self.has_what_the_log_has('b')

    def test_a_primary_that_dies(self):
        """It may have kept what is behind the swap."""
        self.begin_pair()
        tid = self.changed(1, b'old')
        self.changed(1, b'new', tid)
        with self.dies(), self.assertRaises(Killed):
            self.pack()
        self.storage.replica.keep()
        self.storage.close()
        self.assertEqual(len(self.contents('a')), 2)
        self.lead()
        self.assertEqual(self.contents('a'), [b'new'])
