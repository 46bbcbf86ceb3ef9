"""A scrub beside a storage: damage is reported, and nobody waits for it."""

import contextlib
import dataclasses
import json
import os
import random
import shutil
import signal
import sys
import threading
import time
import unittest
from unittest import mock

from ZODB.serialize import referencesf

from fsyncstorage import FsyncStorage
from fsyncstorage.processes import starting
from fsyncstorage.scrub import notes
from fsyncstorage.scrub import scrubbing
from fsyncstorage.scrub.notes import Pass
from fsyncstorage.scrub.notes import Past

from ..pack.histories import state
from ..support import commit
from ..support import in_a_child
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

    def test_while_it_is_open(self):
        """In each pass it is found, and once a day it is said."""
        ends = self.fill()
        self.patch(scrubbing, PASS_AT_LEAST=0)
        storage = self.scrubbed()
        self.heard.wait(ENDED)
        self.assertEqual(storage.stats()['scrub']['damaged'], 0)
        self.flip(ends[4] - 20)
        self.heard.wait(DAMAGE)
        passes = len(self.heard.those(ENDED))
        self.heard.wait(ENDED, passes + 3)
        self.assertEqual(len(self.heard.those(DAMAGE)), 1)
        self.assertEqual(
            [record.levelname for record in self.heard.those(' 1 damaged')
             ][:3], ['WARNING', 'INFO', 'INFO'])
        self.patch(scrubbing, SAY_AGAIN_AFTER=0)
        self.heard.wait(DAMAGE, 2)
        storage.close()

    def test_it_is_mended(self):
        """When a whole pass has found none."""
        ends = self.fill()
        self.flip(ends[4] - 20)
        self.patch(scrubbing, PASS_AT_LEAST=0)
        storage = self.scrubbed()
        self.heard.wait(DAMAGE)
        self.flip(ends[4] - 20)
        until(lambda: not storage.stats()['scrub']['damaged'], 'it is mended')
        self.assertGreater(storage.stats()['scrub']['passes'], 0)

    def test_a_backup_was_restored(self):
        """The next process reads the place first, wherever the pass is."""
        ends = self.fill()
        storage = self.open()
        tid = [each.tid for each in storage.iterator()][7]
        storage.close()
        for noted in (
                notes.Notes(Pass(1700000000, ends[8], int.from_bytes(
                    tid, 'big'), 7, 0, 0, 1, ends[3], ends[3]), Past()),
                notes.Notes(Pass(0), Past(3, 1700000000, 2, ends[3],
                                          ends[5]))):
            self.heard.records.clear()
            notes.save(self.path('Data.fs.scrub'), noted)
            self.flip(ends[4] - 20)
            storage = self.scrubbed()
            self.heard.wait(ENDED)
            self.assertEqual(storage.stats()['scrub']['first_damaged'],
                             ends[3])
            self.assertEqual(self.heard.those('is sound now'), [])
            storage.close()
            self.flip(ends[4] - 20)
            notes.save(self.path('Data.fs.scrub'), noted)
            self.heard.records.clear()
            storage = self.scrubbed()
            self.heard.wait('is sound now')
            self.assertEqual(storage.stats()['scrub']['damaged'], 0)
            # It has begun anew: there may be other damage between them.
            self.assertIn(' 10 sound', self.heard.wait(ENDED))
            storage.close()

    def test_a_pass_that_cannot_be_resumed(self):
        """What was found before is not forgotten."""
        self.fill()
        notes.save(self.path('Data.fs.scrub'), notes.Notes(
            Pass(1700000000, 500, 7, damaged=2, first_damaged=300,
                 last_damaged=400), Past()))
        with self.python_that_says(says(read(Pass(1700000001, 200, 1)))):
            storage = self.scrubbed()
            self.wait_until_read(storage, 200)
            figures = storage.stats()['scrub']
            storage.close()
        self.assertEqual((figures['damaged'], figures['first_damaged']),
                         (2, 300))
        self.assertEqual(notes.load(self.path('Data.fs.scrub'))
                         .known_damage(), (2, 300))

    def test_much(self):
        """Some is said, all is counted."""
        ends = self.fill()
        self.patch(scrubbing, MOST_SAID=2)
        for number in 3, 4, 6, 7:
            self.flip(ends[number] - 20)
        storage = self.scrubbed()
        self.assertIn(' 4 damaged', self.heard.wait(ENDED))
        self.assertEqual(len(self.heard.those(DAMAGE)), 2)
        self.assertEqual(storage.stats()['scrub']['damaged'], 4)

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

    def test_without_seals(self):
        self.fill(checksums=False)
        self.scrubbed()
        self.assertIn('10 sound transactions (10 of them without a seal',
                      self.heard.wait(ENDED))

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

    def test_notes_of_another_file(self):
        self.fill()
        notes.save(self.path('Data.fs.scrub'), notes.Notes(
            Pass(1700000000, 200, 7, transactions=100), Past()))
        self.scrubbed()
        self.assertIn('10 sound transactions', self.heard.wait(ENDED))

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
                         notes.Notes(Pass(0), Past()))

    def test_the_process_ends_before_the_file_is_replaced(self):
        """Else one could get the old file, and the end of the new one."""
        self.packable()
        storage = self.scrubbed(pack_process=False)
        self.heard.wait(ENDED)
        seen = []
        begin_anew = storage._scrub.begin_anew

        def at_once():
            seen.append((storage._file, storage._sequencer.durable.end))
            self.assertTrue(storage._swapping.locked())
            begin_anew()

        before = storage._file, storage._sequencer.durable.end
        with mock.patch.object(storage._scrub, 'begin_anew', at_once):
            self.pack(storage)
        self.assertIsNot(storage._file, before[0])
        self.assertEqual(seen, [before])

    def test_reports_of_a_file_that_was_replaced(self):
        """They came just before its process was ended, and do not count."""
        self.fill()
        late = Pass(1700000000, 500, 7, damaged=1, first_damaged=300,
                    last_damaged=300)
        for report in (read(late), read(late, 'words'),
                       {'ended': dataclasses.asdict(late)}):
            storage = self.open()
            scrub = scrubbing.Scrub(storage, 1)

            def line(within, scrub=scrub, report=report):
                scrub.begin_anew()
                return json.dumps(report)

            process = mock.Mock(report=line)
            before = scrub._notes
            with self.assertRaises(scrubbing.Failed):
                scrub._hear(process, scrub._endings)
            self.assertEqual(scrub._notes, before)
            self.assertEqual(self.heard.records, [])
            storage.close()


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

    def test_a_close_beside_a_process_that_does_not_end(self):
        """What was committed is synced first."""
        self.fill()
        disk = self.controlled_disk()
        self.patch(scrubbing, CLOSE_WITHIN=.01)
        with self.python_that_says(says()):
            storage = self.scrubbed(durability='none')
            until(lambda: storage.stats()['scrub']['end'], 'it has begun')
        go_on = threading.Event()
        ended = starting.ChildProcess.exit_code
        synced = []

        def wait(process):
            go_on.wait()
            return ended(process)

        close = storage._scrub.close
        commit(storage, {100: b'N.'})
        syncs = disk.syncs
        with mock.patch.object(starting.ChildProcess, 'exit_code', wait), \
                mock.patch.object(storage._scrub, 'close', lambda: (
                    synced.append(disk.syncs), close())):
            storage.close()
            self.assertTrue(storage._scrub._thread._thread.is_alive())
            go_on.set()
            storage._scrub._thread._thread.join()
        self.assertGreater(synced[0], syncs)

    def test_a_new_database_has_no_notes_of_the_old_one(self):
        self.fill()
        notes.save(self.path('Data.fs.scrub'), notes.Notes(
            Pass(1700000000, 500, 7, damaged=1, first_damaged=300,
                 last_damaged=300), Past()))
        with self.python_that_says(says()):
            storage = self.scrubbed(create=True)
            self.assertEqual(storage.stats()['scrub']['damaged'], 0)

    def test_a_close_while_it_starts(self):
        self.fill()
        with self.python_that_says('exec sleep 1000'):
            storage = self.scrubbed()
            until(lambda: self.started, 'it was started')
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

    @unittest.skipUnless(sys.platform == 'linux', 'it waits for any process')
    def test_its_parent_is_killed(self):
        self.fill(100, 10_000)
        told, tell = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                self.started.clear()
                storage = FsyncStorage(self.path(), scrub_rate='64KB')
                until(lambda: os.path.exists(self.path('Data.fs.scrub')),
                      'it reads')
                os.write(tell, b'%d' % self.started[0])
                os.kill(os.getpid(), signal.SIGKILL)
                storage.close()
            finally:
                os._exit(1)
        os.close(tell)
        with open(told, 'rb') as file:
            reading = int(file.read())
        os.waitpid(pid, 0)
        self.wait_for_the_end_of(reading)

    def test_a_fork(self):
        """The child has no scrub; that of the parent goes on."""
        self.fill()
        with self.python_that_says(says()):
            storage = self.scrubbed()
            until(lambda: storage.stats()['scrub']['end'], 'it has begun')

            def in_the_child():
                figures = storage.stats()['scrub']
                storage.close()
                return figures

            self.assertIsNone(in_a_child(in_the_child))
            os.kill(self.started[0], 0)
            storage.close()
        self.assertEqual(self.heard.records, [])

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
