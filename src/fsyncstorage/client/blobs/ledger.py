"""A small SQLite database that one process at a time reads and writes.

It promises that `work` has the database to itself, in a transaction, and can
tell which *edition* it saw: a database that is lost or damaged is made anew by
the process that notices.  After a fork the child uses its own connection.

Other processes wait in `flock`, which wakes the next one at once; with SQLite
they would poll.  The lock file is separate.  A process that holds the lock can
write a *note* into it about actions outside of the database, which cannot be
rolled back.  A process that finds a note knows that its writer failed or died.

Everything about sqlite3 is here, except for the statements.
"""

import contextlib
import errno
import logging
import os
import pathlib
import sqlite3
import threading

from ... import forks
from . import filelocks

logger = logging.getLogger(__name__)

Error = sqlite3.Error

# Connections of a parent process.  SQLite forbids closing them in the child.
_abandoned: list[sqlite3.Connection] = []


class Ledger:

    def __init__(self, directory, version, filling, read_note):
        """
        :param version: a number; any other in the file counts as damage.
        :param filling: called with the connection to an empty database;
            returns a context, which ends when the database has its name.
        :param read_note: called with the database and a note that was left.
        """
        self._directory = directory
        self._version = version
        self._filling = filling
        self._read_note = read_note
        self._mutex = threading.Lock()
        self._lock = self._db = None
        self._closed = False
        #: The edition of the database that `work` sees.
        self.edition = None
        forks.in_child(self)

    def forked(self):
        self._mutex = threading.Lock()
        _abandoned.append(self._db)
        self._lock = self._db = None

    def close(self):
        with self._mutex:
            self._closed = True
            self._disconnect()
            self._unlock_for_good()

    # One at a time

    def work(self, work):
        """Return `work(database)`, called in a transaction."""
        with self.locked() as locked:
            if not locked:
                raise ValueError(f'{self._directory.path} is closed')
            return self._settle(work)

    def try_work(self, work):
        """The same, but do nothing if that would have to wait, and never fail.

        Such work is not urgent.  This thread itself may be in `work`, when
        garbage collection closes a file: so even the mutex is only tried.
        """
        if not self._mutex.acquire(blocking=False):
            return
        try:
            with self._locked(wait=False) as locked:
                if locked:
                    self._settle(work)
        except (OSError, Error) as error:
            logger.warning('%s: %s', self._directory.books, error)
        finally:
            self._mutex.release()

    @contextlib.contextmanager
    def locked(self):
        """Lock, and yield whether that succeeded."""
        with self._mutex, self._locked() as locked:
            yield locked

    @contextlib.contextmanager
    def _locked(self, wait=True):
        """The same, with the mutex; without `wait` it may not succeed."""
        # What is to be done when the lock is free (`later`).
        with contextlib.ExitStack() as self._later:
            try:
                yield not self._closed and self._lock_in_place(wait)
            finally:
                if self._lock is not None:
                    self._lock.unlock()

    def later(self, context):
        """Exit this context when the lock is free again."""
        self._later.enter_context(context)

    def _lock_in_place(self, wait):
        """Lock; make the lock file again if it was removed, perhaps with the
        whole directory."""
        while True:
            if self._lock is None:
                self._lock = self._open_lock()
            locked = self._lock.lock(wait)
            if not locked or self._lock.is_in_place():
                return locked
            self._unlock_for_good()

    def _open_lock(self):
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        try:
            return filelocks.LockFile(self._directory.lock, flags)
        except FileNotFoundError:
            self._directory.make()
            return filelocks.LockFile(self._directory.lock, flags)

    def _unlock_for_good(self):
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()

    def _settle(self, work):
        try:
            return self._transact(work)
        except sqlite3.DatabaseError as error:
            if 'full' in str(error):
                raise OSError(errno.ENOSPC, str(error)) from error
            # Before Python 3.11 SQLite's error code is not available; but
            # damage is the only error without a class of its own.
            if type(error) is not sqlite3.DatabaseError:
                raise
            logger.warning('%s is damaged, and made anew: %s',
                           self._directory.books, error)
            self.make_anew()
            return self._transact(work)

    def _transact(self, work):
        self._connect()
        db = self._db
        try:
            db.execute('BEGIN IMMEDIATE')
            if note := self._note_left():
                self._read_note(db, note)
            result = work(db)
            db.execute('COMMIT')
        except BaseException:
            if db.in_transaction:
                db.execute('ROLLBACK')
            raise
        self._clear_note()
        return result

    # The database

    def current_edition(self):
        """The edition at this moment: it may be made anew at any time."""
        try:
            return os.stat(self._directory.books).st_ino
        except FileNotFoundError:
            return None

    def _connect(self):
        if self._db is None or self.edition != self.current_edition():
            self._open()
            version, = self._db.execute('PRAGMA user_version').fetchone()
            if version != self._version:
                self.make_anew()

    def _open(self):
        self._disconnect()
        with contextlib.ExitStack() as stack:
            db = _connection(self._directory.books)
            stack.callback(db.close)
            db.execute('PRAGMA journal_mode = WAL')
            # A power cut may lose the last transactions, and no more.
            db.execute('PRAGMA synchronous = NORMAL')
            stack.pop_all()
        self._db = db
        self.edition = self.current_edition()

    def _disconnect(self):
        db, self._db = self._db, None
        if db is not None:
            db.close()

    def rows(self, query):
        """All rows that can be read from the old database; hold the lock."""
        found = []
        try:
            self._open()
            found.extend(self._db.execute(query))
        except sqlite3.DatabaseError as error:
            logger.warning('%s: %s', self._directory.books, error)
        return found

    def make_anew(self):
        """Make a new database, named when it is complete; hold the lock."""
        self._disconnect()
        new = f'{self._directory.books}.new'
        pathlib.Path(new).unlink(missing_ok=True)
        with contextlib.closing(_connection(new)) as db:
            db.execute('PRAGMA journal_mode = OFF')
            db.execute('BEGIN')
            db.execute(f'PRAGMA user_version = {self._version}')
            with self._filling(db):
                db.execute('COMMIT')
                # The old database's log would damage the new database.
                for suffix in '-wal', '-shm':
                    pathlib.Path(self._directory.books + suffix).unlink(
                        missing_ok=True)
                os.replace(new, self._directory.books)
        self._clear_note()
        self._open()

    # The note

    def note(self, text):
        os.write(self._lock.fd, text.encode())

    def _note_left(self):
        size = os.fstat(self._lock.fd).st_size
        return os.pread(self._lock.fd, size, 0).decode(errors='replace')

    def _clear_note(self):
        if os.fstat(self._lock.fd).st_size:
            os.truncate(self._lock.fd, 0)


def _connection(path):
    return sqlite3.connect(
        path, isolation_level=None, check_same_thread=False)
