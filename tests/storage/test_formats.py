"""In and out: stock FileStorage and its tools on our file, and the reverse."""

import base64
import contextlib
import functools
import io
import itertools
import os
import sys
import warnings

import transaction
import ZODB
from BTrees.OOBTree import OOBTree
from ZODB.FileStorage import FileStorage
from ZODB.scripts import fsrefs
from ZODB.scripts import fstest
from ZODB.scripts import repozo
from ZODB.tests.MinPO import MinPO

from fsyncstorage import FsyncStorage
from fsyncstorage.commit import policies

from ..support import TestCase


def fill(db):
    """Objects, revisions, an undo, metadata, an empty transaction."""
    connection = db.open()
    root = connection.root()
    root['tree'] = OOBTree()
    transaction.get().note('the tree')
    transaction.get().setUser('somebody')
    transaction.commit()
    for number in range(10):
        root['tree'][number] = MinPO(number)
        transaction.get().setExtendedInfo('number', number)
        transaction.commit()
    root['tree'][3].value = 'undone'
    transaction.commit()
    db.undo(db.undoLog(0, 1)[0]['id'])
    transaction.get().note('undo')
    transaction.commit()
    connection.close()


def contents(storage):
    """All that the two storages must agree on."""
    oids = []
    following = None
    while True:
        key, *_, following = storage.record_iternext(following)
        oids.append(key)
        if following is None:
            break
    return {
        'objects': {key: storage.load(key) for key in oids},
        'history': {key: storage.history(key, 99) for key in oids},
        'undo log': storage.undoLog(0, 99),
        'last': storage.lastTransaction(),
        'size': storage.getSize(),
        'invalidations': storage.lastInvalidations(99),
        'transactions': [
            (each.tid, each.status, each.user, each.description,
             each.extension,
             [(record.oid, record.tid, record.data, record.data_txn)
              for record in each])
            for each in storage.iterator()],
    }


def without_sizes(found):
    """Stock's copy has no room for seals."""
    del found['size']
    for entry in found['undo log']:
        del entry['size']
    return found


class Formats(TestCase):

    maxDiff = None

    def written_by(self, kind):
        storage = kind(self.path())
        db = ZODB.DB(storage)
        fill(db)
        found = contents(storage)
        db.close()
        return found

    def read_by(self, kind):
        storage = kind(self.path())
        try:
            return contents(storage)
        finally:
            storage.close()

    def test_stock_reads_ours(self):
        for policy in policies.POLICIES:
            with self.subTest(policy):
                written = self.written_by(
                    lambda path: FsyncStorage(path, durability=policy))
                self.assertEqual(self.read_by(FileStorage), written)
                for name in os.listdir(self.directory):
                    os.remove(self.path(name))

    def test_we_read_stock(self):
        written = self.written_by(FileStorage)
        self.assertEqual(self.read_by(FsyncStorage), written)

    def test_back_and_forth(self):
        written = self.written_by(FsyncStorage)
        for kind in FileStorage, FsyncStorage, FileStorage, FsyncStorage:
            db = ZODB.DB(kind(self.path()))
            with db.transaction() as connection:
                connection.root()[kind.__name__] = MinPO(kind.__name__)
            db.close()
        found = self.read_by(FileStorage)
        self.assertEqual(found, self.read_by(FsyncStorage))
        self.assertEqual(found['transactions'][:len(written['transactions'])],
                         written['transactions'])

    def test_copying_transactions(self):
        self.written_by(FsyncStorage)
        source = self.open()
        for kind in FileStorage, FsyncStorage:
            with self.subTest(kind):
                copy = kind(self.path(kind.__name__))
                copy.copyTransactionsFrom(source)
                self.assertEqual(without_sizes(contents(copy)),
                                 without_sizes(contents(source)))
                copy.close()

    def test_reading_while_another_process_writes(self):
        """A read-only storage shows what was there when it was opened."""
        writer = self.open()
        db = ZODB.DB(writer)
        self.addCleanup(db.close)
        fill(db)
        reader = self.open(read_only=True)
        seen = contents(reader)
        self.assertEqual(seen, contents(writer))
        with db.transaction() as connection:
            connection.root()['later'] = 1
        db.pack()
        self.assertEqual(contents(reader), seen)
        self.assertNotEqual(contents(writer), seen)

    def test_time_travel(self):
        self.written_by(FsyncStorage)
        log = self.open(read_only=True).undoLog(0, 99)
        tid = base64.decodebytes(log[3]['id'] + b'\n')
        past = self.open(read_only=True, stop=tid)
        self.assertTrue(all(each.tid < tid for each in past.iterator()))
        self.assertEqual(len(past.undoLog(0, 99)), len(log) - 4)


class Tools(TestCase):

    def setUp(self):
        super().setUp()
        self.db = ZODB.DB(self.open())
        self.addCleanup(self.db.close)
        fill(self.db)

    def run_main(self, main, *args):
        out = io.StringIO()
        argv, sys.argv = sys.argv, ['script', *args]
        try:
            with contextlib.redirect_stdout(out):
                try:
                    main()
                except SystemExit as stop:
                    self.assertFalse(stop.code)
        finally:
            sys.argv = argv
        return out.getvalue()

    def test_fstest(self):
        self.run_main(fstest.main, self.path())

    def test_fsrefs(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out), warnings.catch_warnings():
            warnings.simplefilter('ignore', ResourceWarning)  # of its own
            fsrefs.main(self.path())
        self.assertNotIn('missing', out.getvalue())

    def repozo(self, *args):
        with contextlib.redirect_stdout(io.StringIO()):
            with contextlib.redirect_stderr(io.StringIO()):
                repozo.main(list(args))

    def name_at(self, gen_filename, seconds, options, ext=None, now=None):
        return gen_filename(
            options, ext, now=(2026, 1, 1, 0, 0, next(seconds)))

    def test_repozo(self):
        # Its file names have seconds; ours come quicker.
        seconds = itertools.count()
        self.patch(repozo, gen_filename=functools.partial(
            self.name_at, repozo.gen_filename, seconds))
        backup = self.path('backup')
        os.mkdir(backup)
        self.repozo('-B', '-v', '-r', backup, '-f', self.path())
        with self.db.transaction() as connection:
            connection.root()['more'] = MinPO('more')
        self.repozo('-B', '-v', '-Q', '-r', backup, '-f', self.path())
        self.repozo('-V', '-r', backup)
        kinds = sorted(name.rpartition('.')[2] for name in os.listdir(backup))
        self.assertIn('deltafs', kinds)
        self.repozo('-R', '-r', backup, '-o', self.path('recovered.fs'))
        recovered = FsyncStorage(self.path('recovered.fs'))
        self.addCleanup(recovered.close)
        self.assertEqual(contents(recovered), contents(self.db.storage))
