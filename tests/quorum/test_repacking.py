"""The pack of a node that follows: its file becomes what the log says, byte
for byte, or it says why not; and what ends it leaves nothing."""

import os
from unittest import mock

from fsyncstorage import datafile
from fsyncstorage.errors import DiskError
from fsyncstorage.format import index
from fsyncstorage.pack import naming
from fsyncstorage.pack import progress
from fsyncstorage.quorum.files import state as states
from fsyncstorage.quorum.following import follower as module
from fsyncstorage.quorum.following.repacking import Options
from fsyncstorage.quorum.history.fold import Why
from fsyncstorage.quorum.log.interface import Unanswered
from fsyncstorage.quorum.log.reading import Refused

from ..pack.phases import held_up
from ..support import PATIENCE
from ..support import Thread
from .fakelog import FakeLog
from .logged import FollowTest
from .logged import Watched
from .packed import becoming

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

    def test_the_order_of_the_steps(self):
        follower = self.rejoin()
        self.logged.begin_pack()
        self.apply_all(follower)
        follower._repacking._pack.wait(PATIENCE)
        self.logged.write(30).swap()
        done, kept = [], []
        disk = Watched(self.path())
        save = states.save

        def saves(path, state, read, node, becoming=None):
            save(path, state, read, node, becoming)
            kept.append((state.generation, becoming))
            done.append('kept')

        disk.done = done
        with mock.patch.object(datafile, 'disk', disk), \
                mock.patch.object(states, 'save', saves):
            self.apply_all(follower)
        made = becoming(self.logged.content)
        # The old file is synced, and kept to the swap; then what it becomes.
        self.assertEqual(kept, [(0, None), (0, made)])
        self.assertEqual([each for each in done if each != 'write'], [
            'sync', 'Data.fs.quorum', 'kept', 'Data.fs.quorum', 'kept',
            'Data.fs.index', 'Data.fs'])


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
        follower._repacking._pack.cancel()
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
        # It may be that others have another record there.
        self.assertIs(caught.exception.why, Why.HOLE)
        self.assertEqual(self.content(), before)
        self.assertIsNone(self.kept().becoming)
        self.apply_all(follower)
        self.has_come_to_the_end(follower)


class Ends(RepackingCase):
    """Nothing is left of it: no file, and no thread."""

    def begun(self):
        """A pack that goes on until it is ended."""
        follower = self.rejoin()
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
        follower, pack = self.begun()
        self.logged.end_pack()
        self.apply_all(follower)
        self.is_over(pack)

    def test_a_stop_within_the_swap(self):
        follower, pack = self.begun()
        self.logged.swap()
        state = follower.state
        waits = Thread(self.apply_all, follower)
        self.stopping.set()
        with self.assertRaises(Unanswered):
            waits.result()
        self.assertEqual(follower.state, state)
        follower.close()
        self.is_over(pack)
