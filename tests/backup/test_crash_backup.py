"""The machine with the store loses its power at any moment, also while a base
is put: what was said to be shipped is there, and nothing is that was not
committed; and the next uploader goes on.
"""

import contextlib
import itertools
import os
import random
import shutil
import time
from unittest import mock

from ZODB.utils import z64

from fsyncstorage import datafile
from fsyncstorage.backup import content
from fsyncstorage.backup import head as heads
from fsyncstorage.backup import restore
from fsyncstorage.backup import timeline
from fsyncstorage.backup import verification
from fsyncstorage.backup.directory import Directory
from fsyncstorage.backup.restore import NotRestored
from fsyncstorage.backup.timeline import History
from fsyncstorage.backup.uploader import Stopped

from ..crash.harness import campaign
from ..crash.harness import events
from ..crash.harness import images
from ..crash.harness import powercut
from ..crash.harness.recorder import Recorder
from ..crash.harness.recorder import RecordingDisk
from ..crash.harness.tearing import MODELS
from ..often import often
from ..support import commit
from .shipped import DATABASE
from .shipped import Shipped

IMAGES_OF_A_CUT = often(2, 60)
CUTS = often(60, 10_000)

LOST, DAMAGED = 'what was shipped is not there', 'something is half there'


class PowerCuts(Shipped):

    level = 2

    def setUp(self):
        super().setUp()
        self.patch(content, PART=2000)
        os.mkdir(self.path('store'))
        self.store = Directory(self.path('store'))
        #: How long the log was, and the tid that was said to be shipped then.
        self.said = [(0, z64)]
        #: The bytes of each Data.fs that was packed.
        self.files = []

    def record(self, make_disk=RecordingDisk):
        """The log of what is done to the store."""
        recorder = Recorder(self.path('store'))
        recorded = mock.patch.object(datafile, 'disk', make_disk(recorder))
        with recorded:
            uploader = self.uploader()
        for number in range(10):
            if number % 3:
                commit(self.storage, {number: bytes(100 * number)})
            else:
                self.commit_blob(number, bytes(range(256)) * number * 3)
            if number == 6:
                last = self.storage.lastTransaction()
                commit(self.storage, {number: b'a record'}, {number: last})
                self.files.append(self.content_of_file())
                self.storage.pack(time.time(), None, gc=False)
            with recorded:
                if number in (5, 8):
                    uploader = self.uploader()
                if number % 2 or number == 6:
                    uploader.ship()
                    uploader.beat()
                    uploader.put_more_of_base()
                if number == 9:
                    while uploader.put_more_of_base():
                        pass
            self.said.append((len(recorder.log), uploader.tip.tid))
        return recorder.log

    def images(self, log):
        """Each with its tid."""
        chance = random.Random(1)
        cuts = [position for position, event in enumerate(log) if isinstance(
            event, (events.Synced, events.SyncedDirectory, events.Linked))]
        chosen = set(cuts if len(cuts) <= CUTS else chance.sample(cuts, CUTS))
        disk = powercut.Disk()
        for position, event in enumerate([*log, None]):
            if position in chosen or event is None:
                tid = max(tid for length, tid in self.said
                          if length <= position)
                for model in MODELS.values():
                    space = images.Space(disk.copy(), model)
                    for choice in itertools.islice(images.choices(
                            space.options, IMAGES_OF_A_CUT, chance),
                            IMAGES_OF_A_CUT):
                        yield space.image(choice), tid
            if event is not None:
                disk.after(position, event)

    def judge(self, image, tid):
        """What is wrong with it; None: nothing."""
        with contextlib.ExitStack() as stack:
            for name in 'image', 'R.fs.blobs':
                stack.callback(shutil.rmtree, self.path(name), True)
            stack.callback(datafile.remove_if_there, self.path('R.fs'))
            image.write(self.path('image'))
            self.store = Directory(self.path('image'))
            try:
                if self.restored() < tid:
                    return LOST
                uploader = self.uploader()
                uploader.ship()
                uploader.beat()
                while uploader.put_more_of_base():
                    pass
            except (heads.Damaged, Stopped):
                return DAMAGED
            history = History(self.store, DATABASE, 1)
            return (DAMAGED if verification.verify(history, True).problems
                    else None)

    def restored(self):
        """The last tid."""
        if not timeline.newest(self.store, DATABASE):
            return z64
        try:
            found = restore.restore(
                History(self.store, DATABASE, 1), self.path('R.fs'),
                self.path('R.fs.blobs'))
        except NotRestored:
            return z64
        data = self.content_of_file('R.fs')
        self.assertTrue(any(file.startswith(data) for file in (
            *self.files, self.content_of_file())))
        return found.tid

    def wrong(self, log):
        count, found = 0, set()
        with campaign.quiet():
            for image, tid in dict.fromkeys(self.images(log)):
                count += 1
                found.add(self.judge(image, tid))
        return count, found - {None}

    def test_each_image(self):
        count, found = self.wrong(self.record())
        self.assertEqual(found, set())
        self.assertGreater(count, 50)

    def test_an_object_that_is_not_synced_is_found_out(self):
        class Careless(RecordingDisk):

            def sync(self, fd):
                pass

        self.assertIn(DAMAGED, self.wrong(self.record(Careless))[1])

    def test_a_directory_that_is_not_synced_is_found_out(self):
        class Careless(RecordingDisk):

            def sync_directory(self, path, *arguments):
                pass

        self.assertIn(LOST, self.wrong(self.record(Careless))[1])
