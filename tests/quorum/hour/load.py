"""A process that commits: python -m tests.quorum.hour.load '{...}'

It reads commands, one a line, and answers on standard output:

    hold    all workers come to an end of what they do: "held"
    go      they go on: "going"
    pack    pack to now, beside them: "packing", and later "packed" or "no
            pack: ..."
    end     all is closed: "ended", and the threads that are left

A worker moves money between two accounts, adds a mark, writes a blob now and
then, and notes what became of it.  Some transactions only read: then the sum
must be what it was, and all that anybody was told to be committed, before the
transaction began, must be seen (the storages ask their server at each begin).

A stock client cannot know what became of a commit whose answer was lost.
"""

import faulthandler
import json
import logging
import mmap
import os
import random
import signal
import sys
import threading
import time

import transaction
import ZODB
from ZEO.ClientStorage import ClientStorage
from ZODB.POSException import ConflictError
from ZODB.utils import u64

from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.errors import OutcomeUnknown

from . import bank
from . import notes

MB = 1 << 20
CONNECTING = 30
#: Of 100 transactions: those that only read, and those with a blob.
READS, BLOBS = 20, 4
#: Seconds between two transactions of a worker, at most, and behind a failure.
BETWEEN, BEHIND_A_FAILURE = 0.08, 0.05


class Newest:
    """The last tid that anybody was told of, in a file that all map."""

    def __init__(self, path):
        self._file = open(path, 'r+b')
        self._map = mmap.mmap(self._file.fileno(), 8)
        self._lock = threading.Lock()

    def _locked(self, found):
        # A file's lock counts for all threads of a process.
        with self._lock:
            os.lockf(self._file.fileno(), os.F_LOCK, 8)
            try:
                return found()
            finally:
                os.lockf(self._file.fileno(), os.F_ULOCK, 8)

    def see(self, tid):
        def larger():
            if tid > self._map[:]:
                self._map[:] = tid
        self._locked(larger)

    def get(self):
        return self._locked(lambda: self._map[:])


class Worker(threading.Thread):

    def __init__(self, db, name, settings, newest):
        super().__init__(name=name, daemon=True)
        self._db = db
        self._random = random.Random(f'{settings["seed"]} {name}')
        self._knows_outcomes = settings['kind'] == 'ours'
        self._newest = newest
        self._notes = notes.Written(
            os.path.join(settings['notes'], f'{name}.notes'))
        self._count = settings['from']
        self._goes = threading.Event()
        self._goes.set()
        self._ends = False
        self.holds = threading.Event()

    def hold(self):
        self._goes.clear()

    def go(self):
        self.holds.clear()
        self._goes.set()

    def end(self):
        self._ends = True
        self._goes.set()

    def run(self):
        while not self._ends:
            if not self._goes.is_set():
                self.holds.set()
                self._goes.wait()
                continue
            time.sleep(self._random.random() * BETWEEN)
            self._count += 1
            mark = f'{self.name}:{self._count}'
            manager = transaction.TransactionManager()
            done = (self._look if self._random.randrange(100) < READS
                    else self._move)
            try:
                done(manager, mark)
            except Exception as error:
                # Before the commit was asked for, or in a read.
                self._note(notes.REFUSED, mark, error)
                time.sleep(BEHIND_A_FAILURE)
        self._notes.close()

    def _note(self, kind, mark, error=None):
        why = [] if error is None else [f'{type(error).__name__} {error}']
        self._notes.add(kind, mark, time.monotonic(), *why)

    def _look(self, manager, mark):
        newest = self._newest.get()
        connection = self._db.open(manager)
        try:
            manager.begin()  # asks the server; to open does not
            seen = self._db.storage.lastTransaction()
            total = bank.total(connection.root())
        finally:
            manager.abort()
            connection.close()
        if seen < newest:
            self._notes.add(
                notes.WRONG, mark, time.monotonic(),
                f'an old state: of {seen.hex()}, when {newest.hex()} was'
                ' acknowledged')
        elif total != bank.SUM:
            self._notes.add(notes.WRONG, mark, time.monotonic(),
                            f'the sum is {total}, at {seen.hex()}')
        else:
            self._notes.add(notes.READ, mark, time.monotonic())

    def _move(self, manager, mark):
        connection = self._db.open(manager)
        try:
            manager.begin()
            made = self._change(connection.root(), mark)
            try:
                manager.commit()
            except ConflictError as error:
                self._note(notes.REFUSED, mark, error)
            except OutcomeUnknown as error:
                self._note(notes.UNKNOWN, mark, error)
                time.sleep(BEHIND_A_FAILURE)
            except Exception as error:
                self._note(notes.REFUSED if self._knows_outcomes
                           else notes.UNKNOWN, mark, error)
                time.sleep(BEHIND_A_FAILURE)
            else:
                self._notes.add(
                    notes.ACKNOWLEDGED, mark, time.monotonic(),
                    made._p_serial.hex(), u64(made._p_oid))
                self._newest.see(made._p_serial)
        finally:
            manager.abort()
            connection.close()

    def _change(self, root, mark):
        chosen = self._random
        taken, given = chosen.sample(range(bank.ACCOUNTS), 2)
        amount = chosen.randint(1, 50)
        with_blob = chosen.randrange(100) < BLOBS
        slot = chosen.randrange(bank.BLOBS)
        size = int(10 ** chosen.uniform(2, 6.3))
        root['accounts'][taken].balance -= amount
        root['accounts'][given].balance += amount
        own = root['workers'][self.name]
        own.marks[self._count] = made = bank.Mark(mark)
        if with_blob:
            with own.blobs[slot].open('w') as file:
                pattern = mark.encode() + b' '
                file.write(pattern * (size // len(pattern) + 1))
        return made


def opened(settings):
    servers = [tuple(each) for each in settings['servers']]
    options = {
        'blob_dir': settings['blobs'], 'wait_timeout': CONNECTING,
        'server_sync': True, 'blob_cache_size': 50 * MB}
    if settings['kind'] == 'stock':
        return ClientStorage(servers, **options)
    return FsyncClient(servers, server_timeout=3, **options)


def make(settings):
    """The database of the run."""
    db = ZODB.DB(opened(settings))
    with db.transaction() as connection:
        bank.make(connection.root(), settings['workers'])
    db.close()


def pack(db):
    try:
        db.pack()
    except Exception as error:
        say(f'no pack: {type(error).__name__} {error}')
    else:
        say('packed')


def say(text):
    print(text.replace('\n', ' '), flush=True)


def main(settings):
    faulthandler.register(signal.SIGUSR1)
    logging.basicConfig(
        level=logging.INFO,
        format='%(asctime)s.%(msecs)03d %(threadName)s %(levelname)s'
               ' %(name)s %(message)s', datefmt='%H:%M:%S')
    logging.getLogger('txn').setLevel(logging.ERROR)
    if settings['kind'] == 'make':
        make({**settings, 'kind': 'ours'})
        return
    db = ZODB.DB(opened(settings), large_record_size=64 * MB)
    newest = Newest(settings['newest'])
    workers = [Worker(db, name, settings, newest)
               for name in settings['workers']]
    for each in workers:
        each.start()
    say('going')
    for line in sys.stdin:
        command = line.strip()
        if command == 'hold':
            for each in workers:
                each.hold()
            for each in workers:
                each.holds.wait()
            say('held')
        elif command == 'go':
            for each in workers:
                each.go()
            say('going')
        elif command == 'pack':
            say('packing')
            threading.Thread(
                target=pack, args=[db], name='pack', daemon=True).start()
        elif command == 'end':
            break
    for each in workers:
        each.end()
    for each in workers:
        each.join()
    db.close()
    left = [each.name for each in threading.enumerate()
            if each is not threading.main_thread()]
    say(f'ended {" ".join(left)}')


if __name__ == '__main__':
    main(json.loads(sys.argv[1]))
