"""A scrub beside a storage: damage is reported, and nobody waits for it; what
it notes is there after a restart, and is believed if it can be.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import time
import unittest
from unittest import mock

from ZODB.serialize import referencesf

from fsyncstorage import datafile
from fsyncstorage.scrub import notes
from fsyncstorage.scrub import scrubbing
from fsyncstorage.scrub.notes import Notes
from fsyncstorage.scrub.notes import Pass

from ..pack.histories import state
from ..support import TestCase
from ..support import commit
from ..support import oid
from ..support import until
from .scrubs import DAMAGE
from .scrubs import ENDED
from .scrubs import INTERRUPTED
from .scrubs import ScrubTestCase
from .scrubs import read
from .scrubs import says


class Damage(ScrubTestCase):

    def test_a_flipped_byte(self):
        ends = self.fill()
        self.flip(ends[4] - 20)
        storage = self.scrubbed()
        said = self.heard.wait(DAMAGE)
        self.assertIn(f'{self.path()}: ', said)
        self.assertIn(f'transaction at {ends[3]} (tid ', said)
        self.assertIn('does not fit the checksum in its seal', said)
        self.assertIn('fsync-check', said)
        self.assertIn('9 sound transactions (0 of them without a seal, and 0'
                      ' whose tid does not rise), 1 damaged',
                      self.heard.wait(ENDED))
        [of_damage] = self.heard.those(DAMAGE)
        [of_end] = self.heard.those(ENDED)
        self.assertEqual(of_damage.levelname, 'ERROR')
        self.assertEqual(of_end.levelname, 'WARNING')
        figures = storage.stats()['scrub']
        self.assertEqual(
            (figures['damaged'], figures['first_damaged'], figures['passes']),
            (1, ends[3], 1))
        # Nothing else is different.
        self.assertEqual(storage.load(oid(7))[0], b'N.' + b'x' * 100)
        commit(storage, {100: b'N.'})

    def test_a_backup_was_restored(self):
        """After a start, all is read anew, wherever the pass was; and what
        was damaged is known until then."""
        ends = self.fill()
        storage = self.open()
        tid = [each.tid for each in storage.iterator()][7]
        storage.close()
        for noted in (
                notes.Notes(Pass(1700000000, ends[8], int.from_bytes(
                    tid, 'big'), 7, 0, 0, 1, ends[3], ends[3]), Pass(0)),
                notes.Notes(Pass(0), Pass(
                    1, damaged=2, first_damaged=ends[3],
                    last_damaged=ends[5]), 3, 1700000000)):
            notes.save(self.path('Data.fs.scrub'), noted)
            self.heard.records.clear()
            with self.python_that_says(says()):
                storage = self.scrubbed()
                self.assertEqual(
                    storage.stats()['scrub']['first_damaged'], ends[3])
                storage.close()
            storage = self.scrubbed()
            self.assertIn(' 10 sound', self.heard.wait(ENDED))
            self.assertEqual(storage.stats()['scrub']['damaged'], 0)
            storage.close()

    def test_it_stays_known(self):
        """After a restart, also where the process was killed."""
        self.fill()
        found = Pass(1700000000, damaged=1, first_damaged=300,
                     last_damaged=300)
        with self.python_that_says(says(read(Pass(1700000000)),
                                        read(found, 'words'))):
            self.scrubbed()
            self.heard.wait(DAMAGE)
            # It does not wait for the next time at which it saves.
            until(lambda: notes.load(self.path('Data.fs.scrub'))
                  .known_damage() == (1, 300), 'it is saved')
            os.mkdir(self.path('restarted'))
            for name in 'Data.fs', 'Data.fs.scrub':
                shutil.copy(self.path(name), self.path(f'restarted/{name}'))
            restarted = self.open('restarted/Data.fs', scrub_rate='1GB')
            figures = restarted.stats()['scrub']
        self.assertEqual((figures['damaged'], figures['first_damaged']),
                         (1, 300))


class Passes(ScrubTestCase):

    level = 2

    def test_no_damage(self):
        ends = self.fill()
        storage = self.scrubbed()
        begin = int(time.time())
        self.assertIn(
            f'{self.path()}: a scrub has read {ends[-1]:,} bytes in ',
            self.heard.wait(ENDED))
        [record] = self.heard.those(ENDED)
        self.assertEqual(record.levelname, 'INFO')
        self.assertIn('10 sound transactions (0 of them without a seal, and'
                      ' 0 whose tid does not rise), 0 damaged',
                      record.getMessage())
        figures = storage.stats()['scrub']
        self.assertGreaterEqual(figures.pop('last_pass_ended'), begin)
        self.assertEqual(figures, {
            'rate': 1 << 30, 'position': 4, 'end': ends[-1], 'passes': 1,
            'damaged': 0, 'first_damaged': None, 'interrupted': 0,
            'interrupted_because': None})
        # The next one is not due yet.
        self.assertGreater(storage._scrub._due,
                           time.monotonic() + scrubbing.PASS_AT_LEAST / 2)
        self.assertEqual(len(self.started), 1)

    def test_what_is_not_durable_is_not_read(self):
        end = self.fill()[-1]
        disk = self.controlled_disk()
        self.patch(scrubbing, PASS_AT_LEAST=0)
        storage = self.scrubbed(durability='none')
        syncs = disk.syncs
        commit(storage, {100: b'N.'})
        self.assertGreater(storage.getSize(), end)
        self.heard.wait(ENDED)
        self.heard.wait(ENDED, len(self.heard.those(ENDED)) + 2)
        self.assertEqual(storage.stats()['scrub']['end'], end)
        storage._sequencer.sync_to(storage.getSize())
        self.assertGreater(disk.syncs, syncs)
        until(lambda: storage.stats()['scrub']['end'] == storage.getSize(),
              'what is durable is read')

    def test_it_goes_on_after_a_restart(self):
        ends = self.fill()
        storage = self.open()
        tid = [each.tid for each in storage.iterator()][3]
        storage.close()
        noted = Pass(1700000000, ends[4], int.from_bytes(tid, 'big'),
                     transactions=100, unsealed=50)
        with self.python_that_says(says(read(noted))):
            storage = self.scrubbed()
            self.wait_until_read(storage, ends[4])
            storage.close()
        self.check_gone(self.started[0])
        self.scrubbed()
        self.assertIn('106 sound transactions (50 of them without a seal',
                      self.heard.wait(ENDED))
        self.assertEqual(self.heard.those(INTERRUPTED), [])

    def packable(self):
        storage = self.open()
        serial = commit(storage, {0: state(random.Random(1), [])})
        for _ in range(10):
            serial = commit(
                storage, {0: state(random.Random(1), [])}, {0: serial})
        storage.close()

    def pack(self, storage):
        before = storage.getSize()
        storage.pack(time.time() + 1, referencesf)
        self.assertLess(storage.getSize(), before)

    def test_after_a_pack_it_begins_anew(self):
        """At once, though the next pass is not due."""
        self.packable()
        storage = self.scrubbed()
        self.heard.wait(ENDED)
        self.pack(storage)
        self.heard.wait(f'has read {storage.getSize():,} bytes')
        self.assertEqual(self.heard.those(INTERRUPTED), [])

    def test_what_was_damaged_before_a_pack_is_forgotten(self):
        """And so is where the pass was."""
        self.packable()
        found = Pass(1700000000, 500, 7, damaged=1, first_damaged=300,
                     last_damaged=300)
        with self.python_that_says(says(read(found, 'words'))):
            storage = self.scrubbed(pack_process=False)
            self.heard.wait(DAMAGE)
            self.assertEqual(storage.stats()['scrub']['first_damaged'], 300)
        with self.python_that_says(says()):
            self.pack(storage)
            figures = storage.stats()['scrub']
            self.assertEqual((figures['position'], figures['damaged']),
                             (4, 0))
            until(lambda: len(self.started) == 2, 'it begins anew')
            storage.close()
        for pid in self.started:
            self.check_gone(pid)
        self.assertEqual(self.heard.those(INTERRUPTED), [])
        # Nor does a restart remember it.
        self.assertEqual(notes.load(self.path('Data.fs.scrub')),
                         notes.NOTHING)


class Ends(ScrubTestCase):

    def test_a_close(self):
        """It waits for nothing, and is no trouble."""
        self.fill()
        with self.python_that_says(says()):
            storage = self.scrubbed()
            until(lambda: storage.stats()['scrub']['end'], 'it has begun')
            storage.close()
        self.check_gone(self.started[0])
        self.assertEqual(self.heard.records, [])

    def test_a_supervisor_stops_both(self):
        """The storage has its time to end, and ends it then."""
        self.fill(20, 50_000)
        self.scrubbed('1MB')
        until(lambda: os.path.exists(self.path('Data.fs.scrub')), 'it reads')
        os.kill(self.started[0], signal.SIGTERM)
        self.heard.wait(ENDED)
        self.assertEqual(self.heard.those(INTERRUPTED), [])

    def test_there_is_none(self):
        """By default, and for a storage that only reads."""
        self.fill()
        for options in ({}, {'scrub_rate': 'off'},
                        {'scrub_rate': '1GB', 'read_only': True}):
            storage = self.open(**options)
            self.assertIsNone(storage.stats()['scrub'])
            storage.close()
        self.assertEqual(self.started, [])
        self.assertFalse(os.path.exists(self.path('Data.fs.scrub')))

    @unittest.skipUnless(sys.platform == 'linux', 'it looks into /proc')
    def test_it_gives_way_and_has_one_file(self):
        self.fill(100, 10_000)
        storage = self.scrubbed('64KB')
        until(lambda: os.path.exists(self.path('Data.fs.scrub')), 'it reads')
        [pid] = self.started
        own = os.getpriority(os.PRIO_PROCESS, 0)
        self.assertEqual(os.getpriority(os.PRIO_PROCESS, pid),
                         min(own + 10, 19))
        # Where the file system has no direct reads, each read maps the file,
        # and while it is mapped it has a second descriptor.
        names = set()
        for number in os.listdir(f'/proc/{pid}/fd'):
            with contextlib.suppress(FileNotFoundError):
                names.add(os.readlink(f'/proc/{pid}/fd/{number}'))
        self.assertEqual(
            {name for name in names if name.startswith(self.directory)},
            {self.path()})
        storage.close()
        self.check_gone(pid)

    def test_what_a_kill_leaves(self):
        """New notes that have not got their name."""
        self.fill()
        with open(self.path('Data.fs.scrub.new'), 'w'):
            pass
        self.open()
        self.assertFalse(os.path.exists(self.path('Data.fs.scrub.new')))


PASS = Pass(1700000000, 5000, (1 << 64) - 1, 7, 2, 1, 3, 100, 4000)
NOTES = Notes(PASS, Pass(8, damaged=1, first_damaged=70, last_damaged=70),
              9, 1690000000)


class NotesTests(TestCase):

    def setUp(self):
        super().setUp()
        self.name = self.path('Data.fs.scrub')

    def write(self, content):
        with open(self.name, 'wb') as file:
            file.write(content)

    def test_what_is_saved_is_loaded(self):
        for saved in NOTES, notes.NOTHING:
            notes.save(self.name, saved)
            self.assertEqual(notes.load(self.name), saved)
        self.assertEqual(os.listdir(self.directory), ['Data.fs.scrub'])

    def test_the_old_ones_stay_until_the_new_ones_are_durable(self):
        notes.save(self.name, NOTES)
        disk = self.controlled_disk()
        disk.fail_sync(OSError(28, 'full'))
        with self.assertRaises(OSError):
            notes.save(self.name, notes.NOTHING)
        self.assertEqual(notes.load(self.name), NOTES)

        def replace(new, name):
            self.assertEqual(disk.log[-1], 'sync')
            self.assertEqual(notes.load(self.name), NOTES)
            os.rename(new, name)

        with mock.patch.object(disk, 'replace', replace):
            notes.save(self.name, notes.NOTHING)
        self.assertEqual(notes.load(self.name), notes.NOTHING)

    def test_what_cannot_be(self):
        notes.save(self.name, NOTES)
        with open(self.name, 'rb') as file:
            good = file.read()
        current, last, *numbers = json.loads(good)
        wrong = [b'', b'\0' * 200, b'\xff', good[:-1], good + b'x',
                 b'[' * 4000, b'9' * 4000, b'7', b'[]', b'[1, 2]', b'{}',
                 b'[{}, {}, 0]', b'[{}, {}, 0, 0]', b' ' * 5000 + good]
        for change in (
                {'position': -1}, {'position': '4'}, {'position': None},
                {'position': 1 << 64}, {'tid': 1.5}, {'tid': True},
                {'damaged': []}, {'first_damaged': -1}, {'last_damaged': ''},
                {'more': 1}):
            for passes in ([{**current, **change}, last],
                           [current, {**last, **change}]):
                wrong.append(json.dumps([*passes, *numbers]).encode())
        for numbers in [1], [1, 2, 3], [None, 1], [1, -1], ['1', 1], [1, []]:
            wrong.append(json.dumps([current, last, *numbers]).encode())
        self.assertIsNotNone(notes.load(self.name))
        for content in wrong:
            with self.subTest(content[:200]):
                self.write(content)
                self.assertIsNone(notes.load(self.name))

    def test_no_file_and_no_regular_file(self):
        self.assertIsNone(notes.load(self.name))
        os.mkfifo(self.name)  # an open would wait for a writer
        self.assertIsNone(notes.load(self.name))

    def test_a_link_in_the_place_of_the_new_file(self):
        """What it leads to is not written to."""
        self.write(b'data')
        datafile.disk.link(self.name, self.path('Data.fs.scrub.new'))
        os.rename(self.name, self.path('precious'))
        notes.save(self.name, NOTES)
        with open(self.path('precious'), 'rb') as file:
            self.assertEqual(file.read(), b'data')

    def test_a_pass_that_has_begun_anew(self):
        """What was found before stays known until it has ended."""
        found = NOTES.after(Pass(7, 300, 8, 9))
        self.assertEqual(found.current, Pass(7, 300, 8, 9))
        self.assertEqual(found.known_damage(), (3, 100))
        self.assertEqual(found[2:], NOTES[2:])
        self.assertEqual(NOTES.after(PASS), NOTES)
        self.assertEqual(
            found.after_the_end(Pass(7, 900, 8, 9), 8).known_damage(),
            (0, None))
