"""The books of a blob cache: which blobs there are, their sizes and last uses.

They are a database in the cache directory (`ledger`), for all processes that
use it.  They promise:

- Nothing is on the disk that is not in the books.  Room is booked before a
  byte is written (`reserve`), and a file is removed from the disk before it is
  removed from the books.
- All blobs together take at most the limit; the least recently used are
  removed first.  A blob that does not fit is a *guest*: it is not counted, and
  is removed as soon as no process is seen to have it open.
- A process that dies at any point leaves the books correct for the next one: a
  download belongs to the process that has locked its part, and names are noted
  before their files are removed.
- If the books are lost, a walk makes them anew.  It also does so after a
  restart of the machine, and then keeps only blobs that are exactly as long as
  the old books say.

Using a blob does not change the books, but the access time of the file.  The
books have the time of an earlier use, and are corrected when the blob would be
the next to remove.  A lease is a time of use in the future.
"""

import collections
import contextlib
import math
import time

from .cachedirectory import LONGEST_LEASE
from .ledger import Ledger

VERSION = 2

#: `used`: nanoseconds, the time of the last use or of an earlier one; NULL for
#: a guest.
#: `final`: `size` is that of the whole blob, even during its download.
SCHEMA = (
    'CREATE TABLE blobs (name TEXT PRIMARY KEY, size INTEGER NOT NULL,'
    ' used INTEGER, final INTEGER NOT NULL) WITHOUT ROWID',
    'CREATE INDEX by_use ON blobs (used)',
    'CREATE TABLE total (bytes INTEGER NOT NULL)',
    'INSERT INTO total VALUES (0)',
    'CREATE TRIGGER came AFTER INSERT ON blobs WHEN NEW.used IS NOT NULL'
    ' BEGIN UPDATE total SET bytes = bytes + NEW.size; END',
    'CREATE TRIGGER went AFTER DELETE ON blobs WHEN OLD.used IS NOT NULL'
    ' BEGIN UPDATE total SET bytes = bytes - OLD.size; END',
)

INSERT = 'INSERT INTO blobs VALUES (?, ?, ?, ?)'
DELETE = 'DELETE FROM blobs WHERE name = ?'

# The size that is counted for a blob; no row for a guest.
BOOKED = 'SELECT size FROM blobs WHERE name = ? AND used IS NOT NULL'

# The blob after a place in the order of use.
NEXT = ('SELECT used, name, size FROM blobs WHERE (used, name) > (?, ?)'
        ' ORDER BY used, name LIMIT 1')

# A search for blobs to remove skips at most this many blobs that were used
# again.
SECOND_CHANCES = 100

# Files that are kept open while they are removed.
KEPT_OPEN = 10

#: Whether a blob fits, and the edition of the books in which it is booked.
Booking = collections.namedtuple('Booking', 'fits edition')


class Books:

    def __init__(self, directory, limit):
        """`limit` is in bytes, or infinite."""
        self._directory = directory
        self._limit = limit
        #: Blobs that this process has removed to make room for others.
        self.evictions = 0
        self._last_total = 0
        self._ledger = Ledger(directory, VERSION, self._walk, self._strike_out)
        try:
            with self._ledger.locked():
                self._know_the_directory()
            self._ledger.work(self._begin)
        except BaseException:
            self.close()
            raise

    def close(self):
        self._ledger.close()

    def reserve(self, name, size, final=True):
        """Book `size` bytes for a blob, in place of what was booked before.

        Make room, if that helps; a blob that does not fit is a guest.  `final`
        means that this is the size of the whole blob.
        """
        def work(db):
            db.execute(DELETE, (name,))
            self._dismiss_guests(db)
            fits = self._make_room(db, size)
            used = time.time_ns() if fits else None
            db.execute(INSERT, (name, size, used, final))
            return Booking(fits, self._ledger.edition)

        return self._ledger.work(work)

    def final_size(self, name):
        """The size of a blob, also during its download; None if unknown."""
        def work(db):
            row = db.execute(
                'SELECT size FROM blobs WHERE name = ? AND final',
                (name,)).fetchone()
            return row and row[0]

        return self._ledger.work(work)

    def total(self):
        """Bytes of all blobs that are counted.

        If this would have to wait for others: the last known value.
        """
        self._ledger.try_work(self._note_total)
        return self._last_total

    def current_edition(self):
        return self._ledger.current_edition()

    def give_up(self, name):
        """A download failed: remove its part, which the caller has locked."""
        self._ledger.work(lambda db: self._end_download(db, name))

    def free(self, size):
        """Remove blobs of this size in all: the disk is full."""
        if self._limit < math.inf:
            self._ledger.work(lambda db: self._evict(db, size))

    def dismiss_guests(self):
        """Remove unused guests, unless another process works on the books."""
        self._ledger.try_work(self._dismiss_guests)

    # Removing

    def _begin(self, db):
        """Give back the room that dead processes booked; keep the limit."""
        for name in self._directory.parts():
            self._settle(db, name)
        self._dismiss_guests(db)
        self._evict(db, self._total(db) - self._limit)
        self._note_total(db)

    def _make_room(self, db, size):
        """Remove blobs, if that helps; return whether `size` bytes fit now."""
        excess = self._total(db) + size - self._limit
        if excess <= 0:
            return True
        if size > self._limit or size + self._on_its_way(db) > self._limit:
            return False
        return self._evict(db, excess) >= excess

    def _on_its_way(self, db):
        """Bytes that cannot be freed: their downloads are under way."""
        rows = [db.execute(BOOKED, (name,)).fetchone()
                for name in self._directory.parts()
                if self._directory.is_on_its_way(name)]
        return sum(size for size, in filter(None, rows))

    def _evict(self, db, wanted):
        """Remove `wanted` bytes, or all there are; return how many."""
        leaving = []
        freed = 0
        candidates = self._first_to_go(db)
        while freed < wanted and (candidate := next(candidates, None)):
            name, size, is_there = candidate
            if is_there:
                leaving.append(name)
            elif not self._settle(db, name):
                continue
            freed += size
        self._remove(db, leaving)
        self.evictions += len(leaving)
        return freed

    def _first_to_go(self, db):
        """Yield the least recently used first, as (name, size, last use), with
        a last use of 0 for a blob that is not there."""
        now = time.time_ns()
        latest = now + LONGEST_LEASE
        # A clock was ahead: it is known only that the use was before now.
        db.execute(
            'UPDATE blobs SET used = ? WHERE used > ?', (now, latest))
        place = 0, ''
        chances = SECOND_CHANCES
        while row := db.execute(NEXT, place).fetchone():
            used, name, size = row
            last_use = self._directory.last_use(name)
            leased = last_use > now
            if used < last_use <= latest and (leased or chances):
                chances -= not leased
                db.execute('UPDATE blobs SET used = ? WHERE name = ?',
                           (last_use, name))
            else:
                place = used, name
                yield name, size, last_use

    def _settle(self, db, name):
        """Clear up after a download that has ended; True if it had failed.

        False also for a download that is still under way.
        """
        part = self._directory.claim(name, wait=False)
        if part is None:
            return False
        with part:
            return self._end_download(db, name)

    def _end_download(self, db, name):
        if self._directory.has(name):
            self._directory.remove_part(name)
            return False
        self._drop(db, [name], self._directory.remove_part)
        return True

    def _dismiss_guests(self, db):
        guests = db.execute(
            'SELECT name FROM blobs WHERE used IS NULL').fetchall()
        for name, in guests:
            seized = self._directory.seize(name)
            if seized is not None:
                with seized:
                    self._remove(db, [name])

    def _remove(self, db, names):
        """Remove files, but free their space later, because that takes time.

        The system frees the space of a file when the last process closes it:
        so the first `KEPT_OPEN` are kept open until the lock is free again.
        """
        for name in names[:KEPT_OPEN]:
            self._ledger.later(self._directory.opened(name))
        self._drop(db, names, self._directory.remove)

    def _drop(self, db, names, remove):
        self._ledger.note(''.join(f'{name}\n' for name in names))
        for name in names:
            remove(name)
        db.executemany(DELETE, [(name,) for name in names])

    def _strike_out(self, db, note):
        """Remove from the books the files that a process removed before it
        died."""
        for name in note.splitlines():
            if self._directory.is_gone(name):
                db.execute(DELETE, (name,))

    def _note_total(self, db):
        self._last_total = self._total(db)

    def _total(self, db):
        return db.execute('SELECT bytes FROM total').fetchone()[0]

    # Making the books anew

    def _know_the_directory(self):
        """Walk, unless the books agree with the directory."""
        if self._directory.machine_restarted():
            self._last_known = {
                name: known for name, *known in self._ledger.rows(
                    'SELECT name, size, coalesce(used, 0) FROM blobs')}
            self._ledger.make_anew()
            self._last_known = None
        elif self._directory.needs_walk():
            self._ledger.make_anew()

    # name -> (size, used) of the blobs that a walk may keep; None: all.
    _last_known = None

    @contextlib.contextmanager
    def _walk(self, db):
        for statement in SCHEMA:
            db.execute(statement)
        with self._directory.walk() as files:
            if self._last_known is not None:
                files = self._confirmed(files)
            db.executemany(INSERT, (
                (name, size, None if size > self._limit else used, True)
                for used, name, size in files))
            yield

    def _confirmed(self, files):
        for _, name, size in files:
            known_size, used = self._last_known.get(name, (None, None))
            if size == known_size:
                yield used, name, size
            else:
                self._directory.remove(name)
