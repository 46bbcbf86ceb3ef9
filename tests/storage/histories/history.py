"""A history, played for one storage: what it was told, and what it left.

This file is run by processes that have another checkout of fsyncstorage on
their path, so it imports nothing of the tests.
"""

import contextlib
import hashlib
import os
import pickle
import random
import re
import time
from base64 import encodebytes
from unittest import mock

from ZODB.blob import Blob
from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage.FileStorage import FileStorageQuotaError
from ZODB.POSException import ConflictError
from ZODB.POSException import POSKeyError
from ZODB.serialize import referencesf
from ZODB.tests.ConflictResolution import PCounter
from ZODB.tests.MinPO import MinPO
from ZODB.tests.StorageTestBase import zodb_pickle
from ZODB.TimeStamp import TimeStamp
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

BEGIN = 1.7e9   # of all histories, in seconds
STEPS = 30
OBJECTS = 8
BLOBS = 20, 21
BLOB_RECORD = pickle.dumps(Blob, 2) + pickle.dumps(None, 2)
LARGE = 1 << 20  # such a transaction is spooled in a file

_ADDRESS = re.compile(r'<[\w.]+ object at 0x[0-9a-f]+>')


class Aborted(Exception):
    """The storage has ended the transaction."""


class History:

    def __init__(self, seed, directory, make, options, strict):
        """`make(path, **options)` opens a storage.  `strict`: with the calls
        that only FsyncStorage refuses."""
        self.random = random.Random(seed)
        self.directory = directory
        self.path = os.path.join(directory, 'Data.fs')
        self.make = make
        self.options = options
        self.strict = strict
        self.transcript = []
        self.now = BEGIN
        self.old_index = None

    # What is noted

    def note(self, what, call, *arguments, **keywords):
        """The answer to a call; None if it was an error."""
        self.failed = False
        try:
            answer = call(*arguments, **keywords)
        except Exception as error:
            self.failed = True
            self.transcript.append(
                f'{what}: {type(error).__name__}: {self.words(str(error))}')
            return None
        self.transcript.append(f'{what}: {self.words(repr(_plain(answer)))}')
        return answer

    def words(self, text):
        return _ADDRESS.sub('<object>', text).replace(self.directory, '...')

    def files(self):
        """A digest of each file; of FileStorage, which leaves blobs and other
        files that it does not need, of the data file alone."""
        for parent, directories, names in os.walk(self.directory):
            directories[:] = sorted(
                name for name in directories if name != 'tmp')
            for name in sorted(names):
                path = os.path.join(parent, name)
                if path == self.path or (
                        self.strict and not name.endswith('.lock')):
                    self.transcript.append(
                        f'{os.path.relpath(path, self.directory)}'
                        f' {hashlib.sha256(_content(path)).hexdigest()}')

    # The course of it

    def play(self):
        with mock.patch.object(time, 'time', lambda: self.now):
            self.open()
            self.begin_with_a_root()
            for _ in range(STEPS):
                self.now += self.random.choice((0.001, 0.01, 0.5, 70))
                self.step()
            self.look()
            self.storage.close()
        self.files()
        return self.transcript

    def open(self):
        self.storage = self.make(self.path, **self.options)

    def begin_with_a_root(self):
        """It is never undone: FileStorage does not see an empty transaction
        that is the first one."""
        transaction = TransactionMetaData()
        self.storage.tpc_begin(transaction)
        self.storage.store(z64, z64, zodb_pickle(MinPO()), '', transaction)
        self.storage.tpc_vote(transaction)
        self.first = encodebytes(self.storage.tpc_finish(transaction)).rstrip()

    def step(self):
        one = self.random.choices(
            (self.commit, self.reopen, self.pack, self.look, self.misuse),
            (40, 2, 2, 4, 4 if self.strict else 0))[0]
        one()

    def reopen(self):
        """With the index, without, or with one that is older."""
        self.storage.close()
        self.files()
        index = self.path + '.index'
        how = self.random.choice(('with', 'without', 'older', 'checkpoint'))
        content = _content(index)
        if how == 'without':
            os.remove(index)
        elif how == 'older' and self.old_index:
            with open(index, 'wb') as file:
                file.write(self.old_index)
        self.old_index = content
        self.open()
        self.transcript.append(f'opened {how}')

    def pack(self):
        self.now += 1
        self.old_index = None  # it is of the file that is replaced
        self.note('pack', self.storage.pack,
                  self.now - self.random.choice((0, 0, 5, 200)), referencesf,
                  gc=self.random.random() < 0.2)
        self.files()

    # Transactions

    def commit(self):
        transaction = TransactionMetaData(**self.metadata())
        given = self.given_tid()
        if self.begin(transaction, *given) is None:
            return
        fill = self.random.choices(
            (self.store_some, self.restore_some, self.undo_some),
            (8, 2 if given else 0, 3))[0]
        self.refused = False
        with contextlib.suppress(Aborted):
            fill(transaction, *given[:1])
            end = self.random.random()
            if end > 0.1:
                self.vote(transaction)
            if end > 0.2:
                told = []
                self.note('finish', self.storage.tpc_finish, transaction,
                          told.append)
                self.note('told', told.copy)
        self.note('abort', self.storage.tpc_abort, transaction)

    def begin(self, transaction, *arguments):
        """The transaction, or None."""
        self.note('begin', self.storage.tpc_begin, transaction, *arguments)
        return self.storage.tpc_transaction()

    def metadata(self):
        extension = self.random.choices(
            ({}, {'n': self.random.randrange(9)}, {'long': 'x' * 65470},
             {'too long': 'x' * 70000}),
            (70, 15, 3 if self.strict else 0, 1 if self.strict else 0))[0]
        return {
            'user': self.random.choice(('', 'somebody', 'ü')),
            'description': self.random.choice(('', 'a change')),
            'extension': extension,
        }

    def given_tid(self):
        """None is given, mostly."""
        if self.random.random() < 0.8:
            return ()
        last = u64(self.storage.lastTransaction())
        self.now += 1
        later = u64(TimeStamp(*time.gmtime(self.now)[:6]).raw())
        return p64(max(last + self.random.randrange(1, 1000), later)), \
            self.random.choice((' ', ' ', 'p')) if self.strict else ' '

    def vote(self, transaction):
        """FileStorage refuses a conflict at the call, FsyncStorage at the
        vote."""
        if not self.refused:
            try:
                resolved = self.storage.tpc_vote(transaction)
            except (ConflictError, POSKeyError):
                self.refused = True
            else:
                self.transcript.append(f'vote: {_plain(resolved)}')
        if self.refused:
            self.transcript.append('refused')
            raise Aborted

    def store_some(self, transaction, tid=None):
        """Each object once: FileStorage would write each of its records."""
        oids = self.random.sample(range(1, OBJECTS), 4)
        self.blobs = self.random.sample(BLOBS, len(BLOBS))
        calls = [self.random.choices(
            (self.store, self.store_blob, self.delete, self.check),
            (8, 1 if self.storage.blob_dir else 0, 1, 1))[0](p64(oid))
            for oid in oids[:self.random.randrange(5)]]
        for call, *arguments in calls:
            if not self.refused:
                try:
                    call(*arguments, transaction)
                except (ConflictError, POSKeyError):
                    self.refused = True
                except FileStorageQuotaError:  # FileStorage lets it commit
                    self.refused = True

    def an_oid(self):
        return p64(self.random.randrange(1, OBJECTS))

    def serial(self, oid):
        """The right one, or another."""
        with contextlib.suppress(Exception):
            serials = [each['tid'] for each in self.storage.history(oid, 3)]
            return serials[0] if self.random.random() < 0.8 else (
                self.random.choice(serials))
        return z64

    def data(self, oid):
        """Counters, whose conflicts can be resolved, and other things."""
        if u64(oid) % 2:
            counter = PCounter()
            counter._value = self.random.randrange(100)
            return zodb_pickle(counter)
        size = self.random.choices((20, 3000, LARGE), (90, 10, 1))[0]
        return zodb_pickle(MinPO((self.random.randrange(3), b'x' * size)))

    def store(self, oid):
        return (self.storage.store, oid, self.serial(oid), self.data(oid), '')

    def told(self, what, transaction, call, *arguments):
        self.note(what, call, *arguments)
        if self.storage.tpc_transaction() is not transaction:
            raise Aborted
        if 'QuotaError' in self.transcript[-1]:
            self.give_up(transaction)  # FileStorage lets it commit

    def store_blob(self, oid):
        if not self.blobs:
            return self.store(oid)
        oid = p64(self.blobs.pop())
        content = b'content' * self.random.randrange(1, 99)
        return (self._store_blob, oid, self.serial(oid), content)

    def _store_blob(self, oid, serial, content, transaction):
        path = os.path.join(self.storage.temporaryDirectory(), 'upload')
        with open(path, 'wb') as file:
            file.write(content)
        try:
            self.storage.storeBlob(
                oid, serial, BLOB_RECORD, path, '', transaction)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)

    def give_up(self, transaction):
        self.storage.tpc_abort(transaction)
        raise Aborted

    def delete(self, oid):
        return self.storage.deleteObject, oid, self.serial(oid)

    def check(self, oid):
        return (self.storage.checkCurrentSerialInTransaction, oid,
                self.serial(oid))

    def restore_some(self, transaction, tid):
        for _ in range(self.random.randrange(1, 4)):
            oid = self.an_oid()
            kind = self.random.randrange(4)
            if kind == 0:
                data, earlier = None, None
            elif kind == 1:
                data, earlier = self.data(oid), None
            else:
                data, earlier = self.earlier(oid)
            self.told('restore', transaction, self.storage.restore, oid, tid,
                      data, '', earlier, transaction)

    def earlier(self, oid):
        """Data of a transaction, mostly of the one that is named."""
        try:
            tid = self.random.choice(self.storage.history(oid, 3))['tid']
            data = self.storage.loadSerial(oid, tid)
        except Exception:
            return self.data(oid), None
        return data, tid

    def undo_some(self, transaction, tid=None):
        log = [each for each in self.storage.undoLog(0, 6)
               if each['id'] != self.first]
        for _ in range(self.random.choice((1, 1, 2))):
            if log:
                entry = self.random.choice(log)
                self.told('undo', transaction, self._undo, entry['id'],
                          transaction)
                if self.failed:
                    # FileStorage leaves the records that it had made.
                    self.give_up(transaction)

    def _undo(self, id, transaction):
        _, oids = self.storage.undo(id, transaction)
        return list(oids)

    # Reading

    def look(self):
        storage = self.storage
        for what in ('lastTransaction', '__len__', 'getSize', 'supportsUndo',
                     'isReadOnly', 'new_oid', 'undoLog'):
            self.note(what, getattr(storage, what))
        for number in (*range(OBJECTS), *BLOBS):
            self.look_at(p64(number))
        self.note('invalidations', storage.lastInvalidations, 5)
        tids = [each.tid for each in storage.iterator()]
        bounds = [None, *self.random.choices(tids, k=2)] if tids else [None]
        for start in bounds:
            for stop in bounds:
                self.note('iterator', self.transactions, start, stop)
        self.note('records', self.records)

    def look_at(self, oid):
        storage = self.storage
        self.note('load', storage.load, oid)
        self.note('getTid', storage.getTid, oid)
        history = self.note('history', storage.history, oid, 5) or ()
        for entry in history:
            self.note('before', storage.loadBefore, oid, entry['tid'])
            self.note('serial', storage.loadSerial, oid, entry['tid'])
            if storage.blob_dir:
                path = self.note('loadBlob', storage.loadBlob, oid,
                                 entry['tid'])
                if path:
                    self.note('blob', _content, path)

    def transactions(self, start, stop):
        return [
            (each.tid, each.status, each.user, each.description,
             each.extension_bytes, [
                 (record.oid, record.tid, record.data, record.data_txn)
                 for record in each])
            for each in self.storage.iterator(start, stop)]

    def records(self):
        found, oid = [], None
        while True:
            *record, oid = self.storage.record_iternext(oid)
            found.append(record)
            if oid is None:
                return found

    # What is refused

    def misuse(self):
        storage = self.storage
        other = TransactionMetaData()
        for call in (
            lambda: storage.store(p64(1), z64, b'x', '', other),
            lambda: storage.deleteObject(p64(1), z64, other),
            lambda: storage.restore(p64(1), z64, b'x', '', None, other),
            lambda: storage.undo(b'AAAAAAAAAAA=', other),
            lambda: storage.tpc_vote(other),
            lambda: storage.tpc_finish(other),
            lambda: storage.tpc_begin(other, None, 'c'),
            lambda: storage.tpc_begin(other, p64(5)),
            lambda: storage.tpc_begin(other, b'short'),
        ):
            self.note('refused', call)
        self.note('begin', storage.tpc_begin, other)
        for call in (
            lambda: storage.tpc_begin(other),
            lambda: storage.tpc_finish(other),
            lambda: storage.store(b'short', z64, b'x', '', other),
            lambda: storage.store(p64(1), z64, b'', '', other),
            lambda: storage.store(b'\xff' * 8, z64, b'x', '', other),
            lambda: storage.restore(p64(1), z64, b'x', 'v', None, other),
            lambda: storage.restore(p64(1), z64, b'x', '', p64(9), other),
            lambda: storage.undo(b'AAAAAAAAAAA=', other),
            lambda: storage.deleteObject(p64(99), z64, other),
        ):
            self.note('refused', call)
        storage.tpc_abort(other)


def _plain(value):
    """As text, whatever class the storage has for it."""
    if isinstance(value, bytes) and len(value) > 100:
        return hashlib.sha256(value).hexdigest()
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return sorted((key, _plain(each)) for key, each in value.items())
    if value is True or value is False:
        return int(value)
    return value


def _content(path):
    with open(path, 'rb') as file:
        return file.read()
