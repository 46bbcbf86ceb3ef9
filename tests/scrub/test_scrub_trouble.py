"""A scrub whose process ends, hangs or reports nonsense is said, and goes on
later."""

import dataclasses
import os
import signal
import subprocess
import sys
from unittest import mock

from fsyncstorage.processes import starting
from fsyncstorage.scrub import notes
from fsyncstorage.scrub import scrubbing
from fsyncstorage.scrub.notes import Pass

from ..support import PATIENCE
from ..support import until
from .scrubs import ENDED
from .scrubs import INTERRUPTED
from .scrubs import ScrubTestCase
from .scrubs import read
from .scrubs import says


class Trouble(ScrubTestCase):

    def test_the_process_is_killed(self):
        self.fill()
        self.patch(scrubbing, TRY_AGAIN_AFTER=0)
        with self.python_that_says(says()):
            storage = self.scrubbed()
            until(lambda: storage.stats()['scrub']['end'], 'it has begun')
        os.kill(self.started[0], signal.SIGKILL)
        # It may just have been starting.
        said = self.heard.wait(INTERRUPTED)
        self.assertRegex(said, 'exit code -9')
        self.heard.wait(ENDED)
        self.assertEqual(len(self.heard.those(INTERRUPTED)), 1)
        self.assertEqual(len(self.started), 2)

    def test_it_is_tried_again_later(self):
        self.fill()
        with self.python_that_says('exit 3'):
            storage = self.scrubbed()
            self.assertIn('goes on in 60 minutes',
                          self.heard.wait(INTERRUPTED))
        storage.close()
        self.assertEqual(len(self.started), 1)
        self.assertEqual(len(self.heard.records), 1)

    def test_it_says_nothing(self):
        self.fill()
        self.patch(scrubbing, SILENT_FOR=.1)
        with self.python_that_says(says()):
            self.scrubbed()
            self.assertIn('has said nothing', self.heard.wait(INTERRUPTED))
        until(lambda: not os.path.exists(f'/proc/{self.started[0]}'),
              'it is gone')

    def test_it_is_interrupted_at_the_same_place_again(self):
        """Nothing behind it would ever be verified: that is an error."""
        ends = self.fill()
        self.patch(scrubbing, TRY_AGAIN_AFTER=0)
        place = Pass(1700000000, ends[4], 7)
        script = says(read(place)).replace('read nothing', 'exit 3')
        with self.python_that_says(script):
            storage = self.scrubbed()
            said = self.heard.wait('at the same place')
            figures = storage.stats()['scrub']
            self.assertGreaterEqual(figures['interrupted'], 1)
            self.assertIn('exit code 3', figures['interrupted_because'])
            storage.close()
        self.assertIn(f'2 times at the same place, and nothing behind it is'
                      f' verified: behind byte {ends[4]} ', said)
        [first, *others] = self.heard.records
        self.assertEqual(first.levelname, 'WARNING')
        self.assertEqual({each.levelname for each in others}, {'ERROR'})

    def test_it_gets_on_after_an_interruption(self):
        """Then the next interruption is the first one."""
        self.fill()
        self.patch(scrubbing, TRY_AGAIN_AFTER=0, PASS_AT_LEAST=0)
        with self.python_that_says('exit 3'):
            storage = self.scrubbed()
            self.heard.wait('at the same place')
        self.heard.wait(ENDED)
        until(lambda: storage.stats()['scrub']['passes'], 'it is noted')
        figures = storage.stats()['scrub']
        self.assertEqual(
            (figures['interrupted'], figures['interrupted_because']),
            (0, None))

    def test_what_it_reports_is_checked(self):
        self.fill()
        good = dataclasses.asdict(Pass(1700000000))
        for report in (
                7, [], {}, {'read': good}, {'read': good, 'damage': 7},
                {'read': {}, 'damage': None}, {'read': 7, 'damage': None},
                {'ended': {**good, 'position': '4'}},
                {'read': {**good, 'damaged': -1}, 'damage': None},
                {'failed': 7}, {'ready': starting.VERSION}):
            with self.subTest(report), self.python_that_says(says(report)):
                storage = self.scrubbed()
                self.assertRegex(self.heard.wait(INTERRUPTED),
                                 'reported what cannot be')
                self.assertEqual(storage.stats()['scrub']['position'], 4)
                storage.close()
                self.heard.records.clear()
        with self.python_that_says(
                says().replace('read nothing', 'echo no JSON')):
            storage = self.scrubbed()
            self.assertIn("what cannot be: 'no JSON'",
                          self.heard.wait(INTERRUPTED))

    def test_it_fails(self):
        self.fill()
        with self.python_that_says(says({'failed': 'words\n' * 1000})):
            self.scrubbed()
            said = self.heard.wait(INTERRUPTED)
        self.assertIn('words', said)
        self.assertLess(len(said), 1000)

    def test_another_program_is_on_the_disk(self):
        self.fill()
        self.patch(starting, VERSION='an old one')
        self.scrubbed()
        self.assertIn('restart it', self.heard.wait(INTERRUPTED))

    def test_another_file_has_the_name(self):
        self.fill()
        os.rename(self.path(), self.path('moved'))
        storage = self.open('moved')
        storage._file_name = self.path()
        with open(self.path(), 'wb') as file:
            file.write(b'FS30')
        scrub = scrubbing.Scrub(storage, 1 << 30)
        self.addCleanup(scrub.close)
        scrub.start()
        self.assertIn('is another file', self.heard.wait(INTERRUPTED))
        self.assertEqual(self.started, [])

    def test_where_python_is_a_part_of_another_program(self):
        self.fill()
        with mock.patch.object(sys, 'executable', '/usr/bin/uwsgi'):
            storage = self.scrubbed()
        self.assertIn('is not scrubbed', self.heard.wait('no Python'))
        self.assertEqual(storage.stats()['scrub']['passes'], 0)
        storage.close()
        self.assertEqual(self.started, [])

    def test_notes_that_cannot_be_written(self):
        self.fill()
        os.mkdir(self.path('Data.fs.scrub'))
        self.scrubbed()
        self.heard.wait('Data.fs.scrub could not be written')
        self.heard.wait(ENDED)

    def test_notes_that_cannot_be_written_are_tried_later(self):
        """A full disk is not told each second; a close tries once more."""
        self.fill()
        os.mkdir(self.path('Data.fs.scrub'))
        done = Pass(1700000000)
        with self.python_that_says(says(
                *[read(done)] * 5, read(Pass(1700000000, 200, 1)))):
            storage = self.scrubbed()
            self.wait_until_read(storage, 200)
            [_] = self.heard.those('could not be written')
            os.rmdir(self.path('Data.fs.scrub'))
            storage.close()
        self.assertEqual(notes.load(self.path('Data.fs.scrub'))
                         .current.position, 200)

    def test_a_process_that_cannot_be_killed(self):
        """As when a disk does not answer: nobody waits for it, and no other
        one is started before it has ended."""
        self.fill()
        self.patch(scrubbing, SILENT_FOR=.1, TRY_AGAIN_AFTER=.01)
        self.patch(starting, END_WITHIN=.01)
        with mock.patch.object(subprocess.Popen, 'kill'):
            with self.python_that_says(
                    says().replace('read nothing', 'exec sleep 1000')):
                storage = self.scrubbed()
                self.heard.wait('that scrubs was killed, and has not ended')
            pid = self.started[0]
            self.addCleanup(self.end, pid)
            self.heard.wait(f'the last process ({pid}) was killed')
        self.assertEqual(self.started, [pid])
        self.patch(scrubbing, SILENT_FOR=PATIENCE)
        self.patch(starting, END_WITHIN=PATIENCE)
        self.end(pid)
        self.heard.wait(ENDED)
        self.assertEqual(len(self.started), 2)
        storage.close()
