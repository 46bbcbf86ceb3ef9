"""What is killed: a process that commits, stores blobs, and packs.

Each commit that was acknowledged is a line in a file, which may be on another
disk than the storage.
"""

import hashlib
import itertools
import os
import sys
import threading
import time

from ZODB.Connection import TransactionMetaData
from ZODB.POSException import ConflictError
from ZODB.serialize import referencesf
from ZODB.utils import p64
from ZODB.utils import z64

from fsyncstorage import FsyncStorage
from fsyncstorage.storage import outcome

THREADS = 3
OBJECTS = 200  # of each thread
COMMITS_A_PACK = 500


def content(number, count, process):
    """Of an object, the count-th time that a process stores it."""
    return b'%d %d %d ' % (number, count, process) * 300


def commit_id(data):
    """Of the transaction that stores this content."""
    return hashlib.blake2b(data, digest_size=16).digest()


def next_one(number, count):
    """What a thread stores after the count-th content of that object."""
    if (number + 1) % OBJECTS:
        return number + 1, count
    return number + 1 - OBJECTS, count + 1


def has_blob(number):
    return number % 10 == 0


class Load:

    def __init__(self, home, policy, checkpoint, acknowledged):
        self.home = home
        self.storage = FsyncStorage(
            os.path.join(home, 'Data.fs'), durability=policy,
            sync_interval='10ms', blob_dir=os.path.join(home, 'blobs'),
            index_checkpoint=checkpoint, pack_keep_old=False)
        self.acknowledged = os.open(
            acknowledged, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.commits = itertools.count(1)
        self.pack_is_due = threading.Event()

    def run(self):
        for number in range(THREADS):
            threading.Thread(target=self.commit, args=(number,)).start()
        while True:
            self.pack_is_due.wait()
            self.pack_is_due.clear()
            self.storage.pack(time.time(), referencesf, gc=False)

    def commit(self, thread):
        for count in itertools.count():
            for number in range(thread * OBJECTS, (thread + 1) * OBJECTS):
                tid = self.one(number, content(number, count, os.getpid()))
                os.write(self.acknowledged, b'%d %s %d %d\n' % (
                    number, tid.hex().encode(), count, os.getpid()))
                if next(self.commits) % COMMITS_A_PACK == 0:
                    self.pack_is_due.set()

    def one(self, number, data):
        oid = p64(number)
        try:
            serial = self.storage.getTid(oid)
        except KeyError:
            serial = z64
        transaction = TransactionMetaData()
        outcome.name(transaction, commit_id(data))
        self.storage.tpc_begin(transaction)
        try:
            if has_blob(number):
                path = os.path.join(self.home, f'upload-{number}')
                with open(path, 'wb') as file:
                    file.write(data)
                self.storage.storeBlob(
                    oid, serial, data, path, '', transaction)
            else:
                self.storage.store(oid, serial, data, '', transaction)
            self.storage.tpc_vote(transaction)
        except ConflictError:
            self.storage.tpc_abort(transaction)
            raise
        return self.storage.tpc_finish(transaction)


if __name__ == '__main__':
    Load(*sys.argv[1:]).run()
