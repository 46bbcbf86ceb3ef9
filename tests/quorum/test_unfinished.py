"""A start that finds two files: each row of what the log and the directory
say; and a crash at each step of a swap."""

import contextlib
import os
from unittest import mock

from fsyncstorage import datafile
from fsyncstorage.pack import naming
from fsyncstorage.quorum.files import state as states
from fsyncstorage.quorum.following import rejoin as starts
from fsyncstorage.quorum.following.repacking import Repacking
from fsyncstorage.quorum.history.fold import Why
from fsyncstorage.quorum.history.record import place_of
from fsyncstorage.quorum.log.reading import WHAT_TO_DO
from fsyncstorage.quorum.log.reading import Refused

from ..pack.nodes import Cut
from ..pack.nodes import DiskThatEnds
from .logged import FollowTest
from .logged import Logged
from .logged import contents
from .logged import restored
from .packed import becoming
from .samples import SELF

SIZES = 60, 500, 5, 300, 60, 700, 20, 90


class SwapCase(FollowTest):

    def setUp(self):
        super().setUp()
        self.logged.objects = 5
        self.logged.write(*SIZES).begin_pack().write(30, 40)
        self.begin()
        #: The old file, the new one, and the log before the swap.
        self.old, self.state = self.logged.content, self.kept().state
        self.before = restored(self.engine, len(self.engine.records))
        self.logged.swap()
        self.new = self.logged.content

    def names(self):
        return set(os.listdir(self.directory)) - {'Data.fs.lock'}

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


class Rows(SwapCase):

    def setUp(self):
        super().setUp()
        self.keeps(becoming(self.new))

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
        """What has the name (nothing: between two renames, where there are no
        hard links), is the packed file beside it; and what comes of it if the
        log has the swap, or has it not."""
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

    def test_a_packed_file_that_is_damaged(self):
        """It is not the one."""
        self.put(self.new[:-1] + b'?', '.pack')
        self.comes_to(self.engine)

    def test_only_one_member_has_the_swap(self):
        self.put(self.new, '.pack')
        with mock.patch.object(starts, 'confirmed', return_value=False):
            self.refused('Replace that member', self.engine)

    def test_what_was_said_to_be_durable_in_the_old_file(self):
        """Seals of the old file are held against the log up to the swap."""
        self.keeps(None)
        other = Logged(self.before, 'other')
        at = other.add(20, durable=len(self.old) + 1)
        self.put(self.old + other.content[at:])
        # In the log the file gets longer than that; but it is another one.
        self.logged.write(3000)
        self.refused(f'the log ends at {len(self.old)} of', self.engine)


class Cuts(SwapCase):
    """What is done is durable at once; it ends anywhere."""

    level = 2

    def test_each_cut_of_a_swap(self):
        for links in True, False:
            for left in range(100):
                with self.subTest(links=links, left=left):
                    self.put(self.old)
                    for name in self.names() - {'Data.fs', 'Data.fs.quorum'}:
                        os.remove(self.path(name))
                    self.keeps(None)
                    if not self.is_cut(left, links):
                        break
                    self.comes_to(self.engine)
            self.assertGreater(left, 8)

    def is_cut(self, left, links):
        with contextlib.ExitStack() as stack:
            make = Repacking.made

            def made(*args):
                made = make(*args)
                stack.callback(made.file.close)
                stack.enter_context(mock.patch.object(
                    datafile, 'disk', DiskThatEnds(left, links)))
                return made

            stack.enter_context(mock.patch.object(Repacking, 'made', made))
            try:
                self.rejoin().close()
            except Cut:
                return True
        return False

    def test_the_new_file_has_the_name_of_its_index_first(self):
        """What an index proves is that the file beside it is whole; in its
        place it does not fit the old file."""
        self.keeps(becoming(self.new))
        follower = self.rejoin(self.before)
        pack = follower._repacking
        made = pack.made(follower.state, becoming(self.new))
        made.file.close()
        self.keeps(becoming(self.new))
        os.rename(self.path('Data.fs' + naming.INDEX_OF_PACKED),
                  self.path('Data.fs.index'))
        follower.close()
        self.assertIn('Data.fs.pack', self.names())
        self.comes_to(self.engine)
