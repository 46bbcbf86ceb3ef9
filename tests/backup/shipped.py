"""A storage that hands out its file, and an uploader beside it."""

import os
import unittest

from ZODB.blob import is_blob_record
from ZODB.utils import z64

from fsyncstorage import datafile
from fsyncstorage.backup import head as heads
from fsyncstorage.backup.layout import Database
from fsyncstorage.backup.prefix import DurablePrefix
from fsyncstorage.backup.uploader import Uploader
from fsyncstorage.format import objectmap
from fsyncstorage.server import handout

from ..support import TestCase
from ..support import begin
from .stores import Simple

#: The record of a blob.
RECORD = b'\x80\x03cZODB.blob\nBlob\nq\x01.\x80\x03N.'
assert is_blob_record(RECORD)

DATABASE = Database('main')


def operations(case):
    """What is done to the disk from now on, by names of files without their
    directories, as far as it is about what is durable."""
    log = []

    class Recorded(datafile.Disk):

        def sync(self, fd):
            log.append(f'sync {_name(os.readlink(f"/dev/fd/{fd}"))}')
            super().sync(fd)

        def link(self, source, target):
            log.append(f'link {_name(target)}')
            super().link(source, target)

        def replace(self, source, target):
            log.append(f'replace {_name(target)}')
            os.rename(source, target)

        def sync_directory(self, path, opener=None):
            log.append(f'names in {_name(path)}')
            super().sync_directory(path, opener)

    case.patch(datafile, disk=Recorded())
    return log


def _name(path):
    return os.path.basename(path.rstrip('/'))


@unittest.skipUnless(objectmap.is_possible(), 'needs sealed memory')
class Shipped(TestCase):

    def setUp(self):
        super().setUp()
        self.store = Simple()
        self.storage = self.handed_out()

    def handed_out(self, name='Data.fs', **options):
        """A storage whose file is handed out as a server does it."""
        storage = self.open(name, **{'blob_dir': self.path(f'{name}.blobs'),
                                     **options})
        self.hand_out(storage)
        return storage

    def hand_out(self, storage):
        made = handout.offered(storage)
        self.addCleanup(made.close)
        return made

    def uploader(self, name='Data.fs', new_timeline=None, start=True):
        made = Uploader(self.store, DATABASE, DurablePrefix(
            self.path(name), self.path(f'{name}.blobs')), new_timeline)
        if start:
            made.start()
        return made

    def commit_blob(self, number, content, storage=None, serial=z64):
        storage = storage or self.storage
        transaction = begin(storage)
        self.store_blob(storage, transaction, number, content, serial, RECORD)
        storage.tpc_vote(transaction)
        return storage.tpc_finish(transaction)

    def keys(self, directory):
        return [key for key in sorted(self.store.objects)
                if key.startswith(f'main/{directory}')]

    def content_of_log(self, number=1):
        """All bytes that were shipped in segments of one object."""
        timeline = DATABASE.timeline(number)
        return b''.join(
            self.store.objects[key][heads.SIZE:]
            for key in sorted(self.store.objects)
            if key.startswith(timeline.log))

    def content_of_file(self, name='Data.fs'):
        with open(self.path(name), 'rb') as file:
            return file.read()
