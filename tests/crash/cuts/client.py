"""A process with a client, whose threads commit until its input ends.  It says
when it is connected.

    python -m tests.crash.cuts.client PORT NAME LOG

Each thread runs *blocks*: a block is one loop of `attempts`, which tries again
as long as it is told that it may.  Each attempt writes an object with a marker
of its own, and may increment a counter.  What becomes of an attempt is a line
of the log, written before the thread goes on::

    committed MARKER TID
    refused MARKER ERROR    it was told that it is not committed
    unknown MARKER          it was told that nobody knows
    failed WORDS            an error that nobody expects here

Its description in the file is the marker, and the counter that it has
incremented.
"""

import contextlib
import faulthandler
import functools
import os
import random
import signal
import sys
import threading
import traceback

import transaction
from persistent.mapping import PersistentMapping
from transaction.interfaces import TransientError
from ZODB.DB import DB

from fsyncstorage.client import failover
from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.errors import OutcomeUnknown

from ...resource import BEFORE
from ...resource import BEHIND
from ...resource import Resource
from ...support import PATIENCE

THREADS = 3
# Seconds between two blocks of a thread, which else would have the processors
# of what is cut.
PAUSE = 0.15
TRIES = 4
# What the attempts of a client increment: conflicts of the first are resolved.
COUNTERS = 'resolving', 'plain'
MARKER = 'marker<%s>'


class Log:

    def __init__(self, path):
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, *words):
        # One write: it is there as a whole when this process is killed.
        os.write(self._file, ' '.join(words).encode() + b'\n')


class Client(FsyncClient):

    #: Of the last commit of each thread: its `tid`.
    told = threading.local()

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        # (Of the instance: a class with one of its own makes two trips.)
        self.tpc_finish = functools.partial(self._noted, self.tpc_finish)

    def _noted(self, tpc_finish, *args):
        self.told.tid = tid = tpc_finish(*args)
        return tid


class Manager(transaction.TransactionManager):
    """Logs what becomes of each commit."""

    def __init__(self, log):
        super().__init__()
        self._log = log
        #: Of this attempt.
        self.marker = None

    def commit(self):
        told = Client.told
        told.tid = None
        try:
            super().commit()
        except OutcomeUnknown:
            self._log.write('unknown', self.marker)
            raise
        except BaseException as error:
            self._log.write('refused', self.marker, repr(error))
            raise
        self._log.write('committed', self.marker, told.tid.hex())


#: Most are alone.
COMPANIES = (
    *[lambda: None] * 6, lambda: Resource(BEFORE), lambda: Resource(BEHIND),
    lambda: Resource(BEHIND), lambda: Resource(BEHIND, refuses=True))


class Blocks:
    """Those of one thread."""

    def __init__(self, db, log, name):
        self._db = db
        self._log = log
        self._name = name
        self._source = random.Random(name)
        self._manager = Manager(log)

    def run(self, is_over):
        with contextlib.closing(self._db.open(self._manager)) as connection:
            try:
                number = 0
                while not is_over():
                    number += 1
                    self._block(connection, f'{self._name}.{number}')
            except BaseException:
                self._log.write('failed', repr(traceback.format_exc()))
                raise
            finally:
                self._manager.abort()

    def _block(self, connection, name):
        with contextlib.suppress(TransientError, OutcomeUnknown):
            for number, attempt in enumerate(self._manager.attempts(TRIES)):
                with attempt:
                    self._change(connection, f'{name}.{number}')

    def _change(self, connection, marker):
        manager = self._manager
        manager.marker = marker
        connection.add(PersistentMapping(marker=MARKER % marker))
        counter = self._source.choice((*COUNTERS, 'none'))
        manager.get().note(f'{marker} {counter}')
        if counter == 'resolving':
            connection.root()[counter].change(1)
        elif counter == 'plain':
            connection.root()[counter]['value'] += 1
        other = self._source.choice(COMPANIES)()
        if other is not None:
            manager.get().join(other)


def main(port, name, log):
    faulthandler.register(signal.SIGUSR1)
    log = Log(log)
    # It looks for a server all the time.
    failover.FIRST_PAUSE = failover.LONGEST_PAUSE = 0.01
    client = Client(('127.0.0.1', int(port)), wait_timeout=PATIENCE)
    over = threading.Event()
    with contextlib.closing(DB(client)) as db:
        threads = [
            threading.Thread(target=Blocks(db, log, f'{name}.{number}').run,
                             args=(functools.partial(over.wait, PAUSE),))
            for number in range(THREADS)]
        for thread in threads:
            thread.start()
        print('connected', flush=True)
        sys.stdin.read()
        over.set()
        for thread in threads:
            thread.join()


if __name__ == '__main__':
    main(*sys.argv[1:])
