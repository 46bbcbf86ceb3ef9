"""A scrub whose process ends, hangs or reports nonsense is said, and goes on
later."""

import dataclasses
import os
import signal

from fsyncstorage.processes import starting
from fsyncstorage.scrub import scrubbing
from fsyncstorage.scrub.notes import Pass

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
            self.assertIn('goes on, in 60 minutes',
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
            self.heard.wait('2 times in succession')
            figures = storage.stats()['scrub']
            self.assertGreaterEqual(figures['interrupted'], 1)
            self.assertIn('exit code 3', figures['interrupted_because'])
            storage.close()
        [first, *others] = self.heard.records
        self.assertIn(f'interrupted at byte {ends[4]} of the file, 2 times in',
                      others[0].getMessage())
        self.assertEqual(first.levelname, 'WARNING')
        self.assertEqual({each.levelname for each in others}, {'ERROR'})

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

    def test_another_file_has_the_name(self):
        self.fill()
        os.rename(self.path(), self.path('moved'))
        storage = self.open('moved')
        storage._file_name = self.path()
        with open(self.path(), 'wb') as file:
            file.write(b'FS30')
        scrub = scrubbing.Scrub(scrubbing.File(
            self.path(), storage.reopened, lambda: 4, lambda: None), 1 << 30)
        self.addCleanup(scrub.close)
        scrub.start()
        self.assertIn('is another file', self.heard.wait(INTERRUPTED))
        self.assertEqual(self.started, [])
