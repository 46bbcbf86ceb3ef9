"""Data files with known contents, and what `fsync-info` says of them."""

import contextlib
import io
import json
from datetime import datetime
from datetime import timezone

from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.utils import z64

from fsyncstorage.check.info import commandline
from fsyncstorage.check.info import moments

from ..support import TestCase
from ..support import oid

CANNOT_RUN = 2
NO_STATE = b'\x80\3N.'


def record(name, *targets, more=b''):
    """Of a class of that name, which refers to the objects of that number."""
    refer = b''.join(b'C\x08' + oid(each) + b'Nq\1\x86Q' for each in targets)
    return (b'\x80\3cmodule\n' + name.encode() + b'\nq\0.'
            + b'\x80\3(' + refer + more + b't.')


def tid(text):
    return moments.tid_of(
        datetime.fromisoformat(text).replace(tzinfo=timezone.utc))


def write_timed(path, *transactions):
    """Let stock write (time, {oid number: data}, user, description); the data
    None undoes the creation of an object.  The tids."""
    serials = {}
    with contextlib.closing(FileStorage(path)) as storage:
        for time, records, user, description in transactions:
            made = TransactionMetaData(user, description)
            storage.tpc_begin(made, tid(time), ' ')
            for key, data in records.items():
                if data is None:
                    storage.deleteObject(oid(key), serials[key], made)
                else:
                    storage.store(
                        oid(key), serials.get(key, z64), data, '', made)
            storage.tpc_vote(made)
            serials.update(dict.fromkeys(records, storage.tpc_finish(made)))


class InfoCase(TestCase):

    def run_info(self, *options, path=None):
        """Exit status, standard output, standard error."""
        out, err = io.StringIO(), io.StringIO()
        with (contextlib.redirect_stdout(out),
              contextlib.redirect_stderr(err)):
            try:
                status = commandline.main([path or self.path(), *options])
            except SystemExit as end:   # of argparse
                status = end.code
        return status, out.getvalue(), err.getvalue()

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
