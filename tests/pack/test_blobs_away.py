"""The blobs that a pack leaves out are gone for good before their list is: a
power cut brings none of them back without it.
"""

import os

import ZODB
import ZODB.blob

from fsyncstorage import datafile

from ..support import TestCase


class Watched(datafile.Disk):
    """What is removed, moved and synced in the blob directory."""

    def __init__(self):
        self.done = []

    def remove(self, path):
        super().remove(path)
        self.done.append(('gone', path))

    def replace(self, source, target):
        super().replace(source, target)
        self.done.append(('gone', source))

    def sync_directory(self, path, *args):
        super().sync_directory(path, *args)
        self.done.append(('synced', os.path.normpath(path)))


class TakenAway(TestCase):

    def test_each_directory_is_synced_before_the_list_is_removed(self):
        for keep_old in False, True:
            with self.subTest(keep_old=keep_old):
                blobs = self.path(f'blobs-{keep_old}')
                storage = self.open(
                    f'{keep_old}.fs', blob_dir=blobs, pack_keep_old=keep_old,
                    pack_process=False)
                db = ZODB.DB(storage)
                self.addCleanup(db.close)
                for number in range(3):
                    with db.transaction() as connection:
                        connection.root()['blob'] = ZODB.blob.Blob(b'x')
                        connection.root()['number'] = number
                disk = Watched()
                self.patch(datafile, disk=disk)
                db.pack()
                done = disk.done
                done = done[:done.index(
                    ('gone', os.path.join(blobs, '.removed')))]
                gone = [(at, path) for at, (what, path) in enumerate(done)
                        if what == 'gone' and path.endswith('.blob')]
                self.assertEqual(len(gone), 2)
                for at, path in gone:
                    self.assertTrue(any(
                        what == 'synced' and path.startswith(where + os.sep)
                        and where.startswith(blobs)
                        for what, where in done[at:]), path)
