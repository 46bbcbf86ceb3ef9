"""What test_kill runs in a process of its own: commits, blobs and packs, until
it is killed.  Each acknowledged commit is a line in a file."""

import os
import sys
import threading
import time

from ZODB.Connection import TransactionMetaData
from ZODB.POSException import ConflictError
from ZODB.utils import p64
from ZODB.utils import z64

from fsyncstorage import FsyncStorage

THREADS = 3


class Load:

    def __init__(self, home, policy, checkpoint):
        self.home = home
        self.storage = FsyncStorage(
            os.path.join(home, 'Data.fs'), durability=policy,
            sync_interval='10ms', blob_dir=os.path.join(home, 'blobs'),
            index_checkpoint=checkpoint, pack_keep_old=False)
        self.acknowledged = os.open(
            os.path.join(home, 'acknowledged'),
            os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def run(self):
        for number in range(THREADS):
            threading.Thread(target=self.commit, args=(number,)).start()
        while True:
            self.storage.pack(time.time(), lambda data: [], gc=False)

    def commit(self, thread):
        numbers = {}
        while True:
            for number in range(thread * 100, thread * 100 + 20):
                count = numbers[number] = numbers.get(number, 0) + 1
                data = b'%d %d %d ' % (number, count, os.getpid()) * 10
                tid = self.one(number, data, blob=number % 10 == 0)
                os.write(self.acknowledged, b'%d %s %s\n' % (
                    number, tid.hex().encode(), data.hex().encode()))

    def one(self, number, data, blob):
        oid = p64(number)
        try:
            serial = self.storage.getTid(oid)
        except KeyError:
            serial = z64
        transaction = TransactionMetaData()
        self.storage.tpc_begin(transaction)
        try:
            if blob:
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
