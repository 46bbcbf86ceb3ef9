"""The pack of a node that follows: its file becomes what the log says, byte
for byte, or it says why not; and what ends it leaves nothing.  A start that
finds two files: each row of what the log and the directory say.
"""

import os
from unittest import mock

from fsyncstorage import datafile
from fsyncstorage.errors import DiskError
from fsyncstorage.format import index
from fsyncstorage.pack import naming
from fsyncstorage.pack import progress
from fsyncstorage.quorum.files import state as states
from fsyncstorage.quorum.following import follower as module
from fsyncstorage.quorum.following import rejoin as starts
from fsyncstorage.quorum.following.repacking import Late
from fsyncstorage.quorum.following.repacking import Options
from fsyncstorage.quorum.history.fold import Why
from fsyncstorage.quorum.history.record import PackBegin
from fsyncstorage.quorum.history.record import place_of
from fsyncstorage.quorum.log.reading import WHAT_TO_DO
from fsyncstorage.quorum.log.reading import Reader
from fsyncstorage.quorum.log.reading import Refused

from ..pack.phases import held_up
from ..support import PATIENCE
from ..support import oid
from .fakelog import FakeLog
from .logged import IN_PROCESS
from .logged import FollowTest
from .logged import Logged
from .logged import contents
from .logged import restored
from .packed import becoming
from .samples import SELF

SIZES = 60, 500, 5, 300, 60, 700, 20, 90
ENOSPC = OSError(28, 'No space left on device')


class RepackingCase(FollowTest):

    def setUp(self):
        super().setUp()
        self.logged.objects = 5
        self.logged.write(*SIZES)
        self.begin()

    def names(self):
        return set(os.listdir(self.directory)) - {'Data.fs.lock'}

    def log(self):
        return FakeLog(self.engine)

    def pack(self):
        """Begun, and swapped, with a commit between."""
        self.logged.begin_pack().write(30, 40).swap()

    def has_come_to_the_end(self, follower):
        self.assertEqual(follower.state, self.here().state)
        self.assertEqual(self.content(), self.logged.content)


class Swaps(RepackingCase):

    def test_by_a_process(self):
        follower = self.rejoin_by(self.log(), Options(keep_old=True))
        before = self.content()
        self.logged.begin_pack().swap()
        self.apply_all(follower)
        self.has_come_to_the_end(follower)
        with open(self.path('Data.fs.old'), 'rb') as old:
            self.assertEqual(old.read(), before)

    def test_the_index_file_belongs_to_the_new_file(self):
        follower = self.rejoin()
        self.pack()
        self.apply_all(follower)
        follower.close()
        loaded = index.load(self.path('Data.fs.index'))
        self.assertEqual(loaded.whole, len(self.logged.content))
        again = self.rejoin()
        self.has_come_to_the_end(again)
        content = self.handed_over(again).content
        self.assertEqual(content.known_to, loaded.position)
        self.assertGreater(content.known_to, 4)


class Away(RepackingCase):
    """It needs nothing but its own file, and what the log says."""

    def test_it_is_kept_what_its_result_depends_on(self):
        """The log does not have the begin any more."""
        self.logged.begin_pack().write(40)
        self.begin()
        self.engine.trim(self.here().state.place.sequence + 1)
        self.logged.swap().write(20)
        self.has_come_to_the_end(self.rejoin())


class PacksAgain(RepackingCase):
    """In the foreground: the node comes no further without it."""

    def failing_first(self, follower):
        self.logged.begin_pack()
        self.apply_all(follower)
        follower._repacking._pack.watch.cancel()
        follower._repacking._pack.wait(PATIENCE)
        self.logged.write(30)

    def test_where_its_own_has_failed(self):
        follower = self.rejoin()
        self.failing_first(follower)
        self.logged.swap()
        with self.assertLogs('fsyncstorage.quorum', 'WARNING') as logs:
            self.apply_all(follower)
        self.assertIn('it is packed now', logs.output[0])
        self.has_come_to_the_end(follower)

    def is_refused(self, follower, words):
        """Its file is that of before the swap, kept as that."""
        before = self.content()
        with self.assertRaisesRegex(Refused, words) as caught:
            self.apply_all(follower)
        self.assertIn('fsync-quorum bootstrap', str(caught.exception))
        self.assertEqual(self.content(), before)
        self.assertFalse({'Data.fs.pack', 'Data.fs.pack.index'} & self.names())
        kept = self.kept()
        self.assertEqual(kept.state, follower.state)
        self.assertEqual(kept.state.end, len(before))
        self.assertIsNone(kept.becoming)

    def test_another_version(self):
        follower = self.rejoin()
        self.logged.say(PackBegin(
            oid(self.logged.file.tid), False, b'other')).swap()
        self.is_refused(
            follower, "another version packs: 3 here, b'other' there")

    def test_another_file(self):
        follower = self.rejoin()
        self.logged.begin_pack()
        self.apply_all(follower)
        self.logged.swap(checksum=bytes(32))
        self.is_refused(follower, 'another file')

    def test_damage_of_our_own_file(self):
        follower = self.rejoin()
        content = bytearray(self.content())
        content[content.index(b'\x06' * 20)] ^= 1
        with open(self.path(), 'r+b') as file:  # the same file
            file.write(content)
        self.logged.begin_pack().swap()
        self.is_refused(follower, 'checksum|seal')

    def test_it_cannot_get_its_name(self):
        """Which file has it is found out by a start."""
        for name in 'link', 'replace', 'sync_directory':
            with self.subTest(name):
                follower = self.rejoin()
                self.pack()
                finish = naming.replace

                def failing(*args, name=name, finish=finish):
                    with mock.patch.object(
                            datafile.disk, name, side_effect=ENOSPC):
                        finish(*args)

                with mock.patch.object(naming, 'replace', failing), \
                        self.assertRaisesRegex(DiskError, 'start this node'):
                    self.apply_all(follower)
                follower.close()
                again = self.rejoin()
                self.has_come_to_the_end(again)
                again.close()


class Confirmed(RepackingCase):

    def test_only_one_member_has_the_swap(self):
        """There would be no way back."""
        follower = self.rejoin()
        self.logged.begin_pack()
        self.apply_all(follower)
        before = self.content()
        self.logged.swap()
        with mock.patch.object(
                module, 'confirmed',
                lambda log, state: state.generation == 0):
            with self.assertRaisesRegex(Refused, 'Replace that') as caught:
                self.apply_all(follower)
        # It is read again: others may have another record there.
        self.assertIs(caught.exception.why, Why.DAMAGED)
        self.assertEqual(self.content(), before)
        self.assertIsNone(self.kept().becoming)
        self.apply_all(follower)
        self.has_come_to_the_end(follower)


class Ends(RepackingCase):
    """Nothing is left of it: no file, and no thread."""

    def begun(self, packs=IN_PROCESS):
        """A pack that goes on until it is ended."""
        follower = self.rejoin_by(self.log(), packs)
        self.logged.begin_pack()
        held = held_up(progress.COPY)
        there = held.__enter__()
        self.addCleanup(held.__exit__, None, None, None)
        self.apply_all(follower)
        self.assertTrue(there.wait(PATIENCE))
        self.assertIn('Data.fs.pack', self.names())
        return follower, follower._repacking._pack

    def is_over(self, pack):
        self.assertFalse(pack._thread.is_alive())
        self.assertFalse({'Data.fs.pack', 'Data.fs.pack.index'} & self.names())

    def test_its_end(self):
        for packs in IN_PROCESS, Options():
            with self.subTest(packs):
                follower, pack = self.begun(packs)
                self.logged.end_pack()
                self.apply_all(follower)
                self.is_over(pack)
                follower.close()

    def test_a_node_that_takes_over(self):
        """It packs for itself, or not at all."""
        follower, pack = self.begun()
        self.handed_over(follower)
        self.is_over(pack)

    def test_a_close_while_the_swap_waits(self):
        follower, pack = self.begun()
        self.logged.swap()
        state = follower.state
        swap, = Reader(self.log(), state).read()
        with self.assertRaises(Late):
            follower.apply(swap)
        self.assertEqual(follower.state, state)
        follower.close()
        self.is_over(pack)


class Rows(RepackingCase):

    def setUp(self):
        super().setUp()
        self.logged.begin_pack().write(30, 40)
        self.begin()
        #: The old file, the new one, and the log before the swap.
        self.old, self.state = self.logged.content, self.kept().state
        self.before = restored(self.engine, len(self.engine.records))
        self.logged.swap()
        self.new = self.logged.content
        self.keeps(becoming(self.new))

    def keeps(self, becoming):
        """What will take the place of the old file."""
        states.save(
            self.path(), self.state, lambda position, length:
            self.old[position:position + length], SELF, becoming)

    def put(self, content, suffix=''):
        with open(self.path('Data.fs') + suffix, 'wb') as file:
            file.write(content)

    def comes_to(self, engine, follower=None):
        follower = self.rejoin(engine) if follower is None else follower
        expected = contents(engine.records)
        self.assertEqual(follower.state, expected.state)
        self.assertEqual(self.content(), expected.content)
        self.assertEqual(self.kept().state, expected.state)
        self.assertIsNone(self.kept().becoming)
        self.assertEqual(self.kept().node, SELF)
        follower.close()
        self.assertFalse({'Data.fs.pack', 'Data.fs.pack.index'} & self.names())

    def refused(self, words, engine):
        with self.nothing_changes(), \
                self.assertRaisesRegex(Refused, words) as caught:
            self.rejoin(engine)
        self.assertIn('Nothing was changed', str(caught.exception))
        return caught.exception

    def is_behind(self, engine):
        error = self.refused('does not have that', engine)
        self.assertIs(error.why, Why.BEHIND)
        self.assertIn(WHAT_TO_DO[Why.BEHIND], str(error))

    def finishes(self, engine):
        """It packs nothing for that."""
        with mock.patch.object(
                starts.Follower, '_swap', side_effect=self.fail):
            self.comes_to(engine)

    def test_each_row(self):
        """What has the name (nothing: a power cut has left half a rename), is
        the packed file beside it; and what comes of it if the log has the
        swap, or has it not."""
        for file, is_beside, agreed, not_agreed in (
                (self.old, True, self.finishes, self.comes_to),
                (self.old, False, self.comes_to, self.comes_to),
                (self.new, False, self.finishes, self.is_behind),
                (None, True, self.finishes, self.is_behind)):
            for engine, comes_of_it in (
                    (self.engine, agreed), (self.before, not_agreed)):
                with self.subTest(
                        old=file == self.old, new=file == self.new,
                        is_beside=is_beside, agreed=engine is self.engine):
                    for name in self.names():
                        os.remove(self.path(name))
                    self.put(self.old)
                    self.keeps(becoming(self.new))
                    if file is None:
                        os.remove(self.path())
                    else:
                        self.put(file)
                    if is_beside:
                        self.put(self.new, '.pack')
                    comes_of_it(engine)

    def test_not_agreed_yet(self):
        """The record comes when the node has started: it packs again."""
        self.put(self.new, '.pack')
        follower = self.rejoin(self.before)
        swap = self.engine.records[-1]
        self.engine = self.before
        self.engine.append(self.engine.head, place_of(swap), swap)
        self.apply_all(follower)
        follower.sync()
        follower.save()
        self.comes_to(self.engine, follower)
        self.assertEqual(self.content(), self.new)

    def test_neither(self):
        for engine in self.engine, self.before:
            self.put(b'FS30 is another file' * 1000)
            self.refused('neither', engine)
            os.remove(self.path())
            self.refused('neither', engine)

    def test_what_is_no_file_in_the_place_of_the_packed_one(self):
        """It is not opened: that would wait for a writer."""
        os.mkfifo(self.path('Data.fs.pack'))
        self.comes_to(self.engine)

    def test_what_was_said_to_be_durable_in_the_old_file(self):
        """Seals of the old file are held against the log up to the swap."""
        self.keeps(None)
        other = Logged(self.before, 'other')
        at = other.add(20, durable=len(self.old) + 1)
        self.put(self.old + other.content[at:])
        # In the log the file gets longer than that; but it is another one.
        self.logged.write(3000)
        self.refused(f'the log ends at {len(self.old)} of', self.engine)
