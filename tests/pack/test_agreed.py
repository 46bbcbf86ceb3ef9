"""What a pack agrees on with other nodes: when it asks, what becomes of it if
that fails, and the checksum of the file.
"""

import contextlib
import hashlib
import os
import random
from unittest import mock

from ZODB.FileStorage.FileStorage import FileStorageError
from ZODB.FileStorage.format import CorruptedError
from ZODB.serialize import referencesf

from fsyncstorage import datafile
from fsyncstorage.errors import OutcomeUnknown
from fsyncstorage.errors import WritingStopped
from fsyncstorage.pack import agreed
from fsyncstorage.pack import checksum
from fsyncstorage.pack import generation
from fsyncstorage.pack import naming
from fsyncstorage.pack import progress

from ..support import TestCase
from . import oracle
from . import test_oracle
from .histories import History
from .histories import Options
from .histories import tid
from .nodes import Hooks
from .phases import at
from .undos import LEAF
from .undos import NODE
from .undos import UndoInPackCase


class AgreedCase(UndoInPackCase):

    def filled(self, **options):
        storage = super().filled(
            **{'pack_process': False, 'pack_keep_old': False, **options})
        self.hooks = Hooks(storage)
        return storage

    def content(self, suffix=''):
        with open(self.storage._file_name + suffix, 'rb') as file:
            return file.read()

    def names(self):
        return set(os.listdir(self.directory))

    def pack_to(self, gc=True):
        self.storage.pack(self.time, referencesf, gc=gc)


class Begins(AgreedCase):

    def test_undos_are_refused_before_it_begins(self):
        """So each is before the end, where all nodes see it."""
        def begins(*agreed):
            self.refused('disabled while', changed)
            return Hooks.begins(self.hooks, *agreed)

        self.filled()
        changed = self.store({NODE: self.state(), LEAF: self.state()})
        with mock.patch.object(self.hooks, 'begins', begins):
            self.pack_to()
        self.assertEqual(
            self.hooks.calls, ['begins', 'swaps', 'over: True'])

    def test_what_others_are_told(self):
        for gc in True, False:
            self.filled(pack_keep_old=True)
            self.pack_to(gc)
            begin = self.hooks.begin
            self.assertEqual(begin.collects_garbage, gc)
            self.assertLess(self.before, begin.stop)
            self.assertLess(self.storage.lastTransaction(), begin.stop)
            self.assertEqual(begin.end, len(self.content('.old')))

    def test_a_wrapper_reads_references(self):
        """Others would read them otherwise."""
        storage = self.filled()
        before = self.content()
        with self.assertRaisesRegex(FileStorageError, 'its own way'):
            storage.pack(self.time, lambda data: referencesf(data))
        self.assertEqual(self.hooks.calls, [])
        self.assertEqual(self.content(), before)

    def test_commits_go_on_behind_the_end(self):
        """The pack reads up to the end that it was told, and decides; what
        comes later is copied."""
        def begins(*agreed):
            end = Hooks.begins(self.hooks, *agreed)
            self.wanted[NODE] = self.state()
            self.store({NODE: self.wanted[NODE]})
            return end

        for own_process in False, True:
            storage = self.filled(pack_process=own_process)
            read = []
            with mock.patch.object(self.hooks, 'begins', begins), at(
                    progress.CHECK,
                    lambda watch: read.append(watch.progress.total)):
                self.pack_to()
            self.assertEqual(read, [self.hooks.begin.end])
            self.assertGreater(
                storage.lastTransaction(), self.hooks.begin.stop)
            self.check()

    def test_an_end_that_is_none(self):
        storage = self.filled()
        before, names = self.content(), self.names()
        for end in 5, storage.getSize() - 1, storage.getSize() + 1:
            with self.subTest(end), mock.patch.object(
                    self.hooks, 'begins', lambda *agreed: end):
                with self.assertRaisesRegex(
                        CorruptedError, 'ends before it is complete'):
                    self.pack_to()
                self.assertEqual(self.content(), before)
                self.assertEqual(self.names(), names)
        self.assertEqual(self.hooks.calls, 3 * ['over: False'])

    def test_others_cannot_be_told(self):
        self.filled()
        before, names = self.content(), self.names()
        with mock.patch.object(
                self.hooks, 'begins', side_effect=OSError(5, 'fenced')):
            with self.assertRaisesRegex(OSError, 'fenced'):
                self.pack_to()
        self.assertEqual(self.hooks.calls, [])
        self.assertEqual(self.content(), before)
        self.assertEqual(self.names(), names)
        self.assertFalse(self.storage.is_packing)
        self.pack_to()

class Ends(AgreedCase):
    """A pack that has begun is over for all, or swapped by all."""

    def test_nothing_to_free(self):
        self.filled()
        self.pack_to()
        self.pack_to()
        self.assertEqual(
            self.hooks.calls,
            ['begins', 'swaps', 'over: True', 'begins',
             'over: False'])

    def test_a_cancel(self):
        self.filled()
        for phase in progress.CHECK, progress.COPY, progress.SWAP:
            with at(phase, lambda watch: watch.cancel()):
                with self.assertRaises(progress.Cancelled):
                    self.pack_to()
        self.assertEqual(self.hooks.calls, 3 * ['begins', 'over: False'])


class Swaps(AgreedCase):

    def filled(self, **options):
        """With an `.old` of an earlier pack."""
        storage = super().filled(**{'pack_keep_old': True, **options})
        storage.pack_hooks = None
        self.pack_to()
        storage.pack_hooks = self.hooks
        self.store({NODE: self.state(), LEAF: self.state()})
        self.later()
        self.state_before = self.everything()
        return storage

    def everything(self):
        found = {}
        for name in self.names():
            with open(self.path(name), 'rb') as file:
                found[name] = file.read()
        return found

    def swaps(self, look):
        def swaps(becoming):
            Hooks.swaps(self.hooks, becoming)
            look()

        return mock.patch.object(self.hooks, 'swaps', swaps)

    def test_when_it_is_asked(self):
        """The new file is complete and durable, nothing has another name, and
        nothing can be appended."""
        for own_process in False, True:
            disk = self.controlled_disk()
            storage = self.filled(pack_process=own_process)
            looked = []

            def look(storage=storage, disk=disk, looked=looked):
                self.assertTrue(storage._commit_lock.locked())
                self.assertEqual(
                    storage._sequencer.durable, storage._sequencer.appended)
                self.assertFalse(storage._sequencer.pipeline.queue)
                # Of the new file and its index, all is synced.
                self.assertEqual(disk.log[-1], 'sync')
                found = self.everything()
                for name in self.state_before:
                    self.assertEqual(found[name], self.state_before[name])
                new = found[f'{self.name}.pack']
                with open(f'{storage._file_name}.pack', 'rb') as file:
                    self.assertEqual(
                        self.hooks.becoming,
                        (len(new), checksum.of_first(
                            file.fileno(), len(new))))
                looked.append(new)

            with self.swaps(look):
                self.pack_to()
            [new] = looked
            self.assertEqual(self.content(), new)

    def test_others_refuse(self):
        """All is as it was, with what the last pack has kept."""
        storage = self.filled()
        with mock.patch.object(
                self.hooks, 'swaps', side_effect=OSError(5, 'fenced')):
            with self.assertRaisesRegex(OSError, 'fenced'):
                self.pack_to()
        self.assertEqual(self.everything(), self.state_before)
        self.assertEqual(self.hooks.calls, ['begins', 'over: False'])
        self.assertFalse(storage._commit_lock.locked())
        self.store({NODE: self.state()})
        self.pack_to()

    def test_it_is_not_known_whether_they_were_told(self):
        """Nothing may be appended to the old file; the new one stays."""
        for error in OutcomeUnknown('closed'), KeyboardInterrupt():
            with self.subTest(error):
                self.filled()
                self.check_left(
                    mock.Mock(side_effect=error), type(error))

    def test_it_fails_behind_the_answer(self):
        """There is no way back."""
        error = OSError(28, 'No space left')
        for name in 'link', 'replace', 'sync_directory':
            with self.subTest(name):
                self.filled()
                self.check_left(lambda stack, name=name: stack.enter_context(
                    mock.patch.object(
                        datafile.disk, name, side_effect=error)), OSError)

    def check_left(self, trouble, error):
        """`trouble(stack)` is called when the others were told."""
        with contextlib.ExitStack() as stack:
            with self.swaps(lambda: trouble(stack)), \
                    self.assertRaises(error):
                self.pack_to()
        self.assertEqual(self.goes_on(), generation.Found.READY)

    def goes_on(self):
        """Nothing is written any more, and the next start finds its file.

        Return what it finds.
        """
        storage = self.storage
        self.assertEqual(self.hooks.calls, ['begins', 'swaps'])
        self.assertFalse(storage._commit_lock.locked())
        with self.assertRaisesRegex(WritingStopped, 'a pack failed'):
            self.store({NODE: self.state()})
        storage.close()
        old = self.state_before[self.name]

        def look():
            return generation.look(
                self.path(self.name), self.hooks.becoming,
                lambda file: os.pread(file.fileno(), len(old) + 1, 0) == old)

        found = look()
        if found is generation.Found.READY:
            naming.replace(self.path(self.name), keep_old=True)
        self.assertEqual(look(), generation.Found.NEW)
        self.assertEqual(self.content('.old'), old)
        self.storage = self.open(self.name)
        self.check()
        return found


class Versions(TestCase):
    """Of what packs."""

    ours = test_oracle.Oracle.ours

    def test_these_bytes_are_those_of_this_version(self):
        """If a change makes other bytes of the same file, `agreed.VERSION`
        must be another one, too; and then these figures."""
        self.blobs = self.path('blobs')
        os.mkdir(self.blobs)
        before, after = hashlib.sha256(), hashlib.sha256()
        for number in range(40):
            rng = random.Random(number)
            history = History(rng, Options(
                transactions=12, sealed=number % 2 == 0,
                twice=number % 5 == 0))
            packed = self.ours(
                bytes(history), tid(rng.randrange(12)), number % 3 > 0)
            before.update(bytes(history))
            after.update(packed.content if isinstance(packed, oracle.Packed)
                         else packed.encode())
        self.assertEqual(
            before.hexdigest()[:16], BEFORE,
            'the random histories are others: no pack is to blame')
        self.assertEqual(
            (agreed.VERSION, after.hexdigest()[:16]), (b'3', AFTER))


BEFORE, AFTER = '9c1a03f306569916', '38f8bd610f675b64'


BLOCK = 100


def by_hand(content):
    """By the definition."""
    def hashed(data):
        return hashlib.blake2b(data, digest_size=32).digest()

    return hashed(b''.join(
        hashed(content[at:at + BLOCK])
        for at in range(0, len(content), BLOCK)))


class Checksums(TestCase):

    def setUp(self):
        super().setUp()
        self.patch(checksum, BLOCK=BLOCK, _AT_ONCE=17)
        self.rng = random.Random(1)

    def file(self, content):
        with open(self.path(), 'wb') as file:
            file.write(content)
        file = open(self.path(), 'rb')
        self.addCleanup(file.close)
        return file.fileno()

    def test_of_files_of_any_length(self):
        for size in 0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 777:
            content = self.rng.randbytes(size)
            number = self.file(content)
            self.assertEqual(
                checksum.of_first(number, size), by_hand(content))
            self.assertIsNone(checksum.of_first(number, size + 1))
            self.assertEqual(
                checksum.of_first(number, size // 2),
                by_hand(content[:size // 2]))
