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

from ..format.sealing import positions
from ..format.sealing import read
from ..support import TestCase
from ..support import oid
from ..support import run_command

CANNOT_RUN = 2


def record(name, *targets, more=b''):
    """Of a class of that name, which refers to the objects of that number."""
    refer = b''.join(b'C\x08' + oid(each) + b'Nq\1\x86Q' for each in targets)
    return (b'\x80\3cmodule\n' + name.encode() + b'\nq\0.'
            + b'\x80\3(' + refer + more + b't.')


ROOT = record('Root', 1, 2)
FOLDER = record('Folder', 3)
SMALL = record('Page')
LARGE = record('Page', more=b'C\xff' + bytes(255))
ALONE = record('Draft', 3)


def tid(text):
    return moments.tid_of(
        datetime.fromisoformat(text).replace(tzinfo=timezone.utc))


def write_timed(path, *transactions):
    """Let stock write (time, {oid number: data}, user, description)."""
    serials = {}
    with contextlib.closing(FileStorage(path)) as storage:
        for time, records, user, description in transactions:
            made = TransactionMetaData(user, description)
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

    def assert_cannot_run(self, reason, *options, path=None):
        status, out, err = self.run_info(*options, path=path)
        self.assertEqual((status, out), (CANNOT_RUN, ''))
        self.assertEqual(err.count('\n'), 1, err)
        self.assertIn(reason, err)


class FiguresCase(InfoCase):
    """Three days: an object is written three times, one cannot be reached."""

    def setUp(self):
        super().setUp()
        write_timed(
            self.path(),
            ('2020-01-30 10:00', {0: ROOT, 1: FOLDER, 2: SMALL, 3: SMALL},
             b'/ admin', b'/site/install\nmore'),
            ('2020-01-31 23:59:59', {2: LARGE}, b'/ anna', b'/site/edit x'),
            ('2020-02-01 00:00', {2: SMALL, 4: ALONE}, b'/ anna',
             b'/site/edit'))

    def transactions(self):
        """The bytes of each."""
        ends = positions(read(self.path()))
        return [end - begin for begin, end in zip(ends, ends[1:])]
