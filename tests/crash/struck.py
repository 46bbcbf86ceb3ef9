"""What test_real_faults runs in a process of its own: commits until the disk
fails.  Each thing that it learns is a line of its output, at once."""

import os
import sys
import threading

from ZODB.Connection import TransactionMetaData
from ZODB.utils import p64
from ZODB.utils import z64

from fsyncstorage import FsyncStorage
from fsyncstorage.errors import OutcomeUnknown
from fsyncstorage.errors import WritingStopped

MOST = 1000  # commits of a thread, when nothing fails


def say(*words):
    os.write(1, ' '.join(map(str, words)).encode() + b'\n')


class Committers:

    def __init__(self, path, policy, threads):
        try:
            self.storage = FsyncStorage(
                path, durability=policy, sync_interval='2ms')
        except OSError as error:
            say('refused', error.errno)
            raise SystemExit from None
        self.threads = [
            threading.Thread(target=self.commit_until_failure, args=(number,))
            for number in range(threads)]
        self.acknowledged = {}

    def run(self):
        for thread in self.threads:
            thread.start()
        for thread in self.threads:
            thread.join()
        self.read()
        self.storage.close()
        say('closed')

    def commit_until_failure(self, thread):
        for number in range(thread * MOST, (thread + 1) * MOST):
            try:
                tid = self.commit(number)
            except OutcomeUnknown:
                say('unknown', number)
                break
            except WritingStopped:
                break
            self.acknowledged[number] = tid
            say('acknowledged', number, tid.hex())
        try:
            self.commit(number + MOST)
        except WritingStopped:
            say('stopped', thread)

    def commit(self, number):
        transaction = TransactionMetaData()
        self.storage.tpc_begin(transaction)
        try:
            self.storage.store(
                p64(number), z64, content(number), '', transaction)
            self.storage.tpc_vote(transaction)
            return self.storage.tpc_finish(transaction)
        except WritingStopped:
            self.storage.tpc_abort(transaction)
            raise

    def read(self):
        """What readers see now; the last that they see is said, too."""
        for number, tid in self.acknowledged.items():
            if tid <= self.storage.lastTransaction():
                assert self.storage.load(p64(number)) == (content(number), tid)
        say('reads', self.storage.lastTransaction().hex())


def content(number):
    return b'content of %d' % number * 10


if __name__ == '__main__':
    path, policy, threads = sys.argv[1:]
    Committers(path, policy, int(threads)).run()
