"""Data files with known contents, and what `fsync-info` says of them."""

import contextlib
import json
import os
from datetime import datetime
from datetime import timezone
from unittest import mock

from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.utils import z64

from fsyncstorage.check.info import commandline
from fsyncstorage.check.info import moments

from ..support import TestCase
from ..support import oid
from ..support import run_command

CANNOT_RUN = 2


def record(name, more=b''):
    """Of a class of that name."""
    return b'\x80\3cmodule\n' + name.encode() + b'\nq\0.\x80\3(' + more + b't.'


ROOT = record('Root')
FOLDER = record('Folder')
SMALL = record('Page')
LARGE = record('Page', b'C\xff' + bytes(255))
DRAFT = record('Draft')


def tid(text):
    return moments.tid_of(
        datetime.fromisoformat(text).replace(tzinfo=timezone.utc))


def write_timed(path, *transactions):
    """Let stock write (time, {oid number: data})."""
    serials = {}
    with contextlib.closing(FileStorage(path)) as storage:
        for time, records in transactions:
            made = TransactionMetaData(b'/ anna', b'/site/edit')
            storage.tpc_begin(made, tid(time), ' ')
            for key, data in records.items():
                storage.store(
                    oid(key), serials.get(key, z64), data, '', made)
            storage.tpc_vote(made)
            serials.update(dict.fromkeys(records, storage.tpc_finish(made)))


class InfoCase(TestCase):

    def run_info(self, *options, path=None):
        """Exit status, standard output, standard error."""
        with mock.patch.dict(os.environ, COLUMNS='100'):
            return run_command(
                commandline.main, path or self.path(), *options)

    def report(self, *options, status=0):
        """The report of a run that ends with this status."""
        found, out, err = self.run_info('--json', *options)
        self.assertEqual((found, err), (status, ''))
        return json.loads(out)

    def words(self, *options):
        return self.run_info(*options)[1]

    def assert_cannot_run(self, reason, *options, path=None):
        status, out, err = self.run_info(*options, path=path)
        self.assertEqual((status, out), (CANNOT_RUN, ''))
        self.assertEqual(err.count('\n'), 1, err)
        self.assertIn(reason, err)
