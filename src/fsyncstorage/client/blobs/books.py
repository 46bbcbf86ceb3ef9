"""The books of a blob cache: which blobs there are, how large, used when.

They are a database in the cache directory (`ledger`), for all processes that
use it.  They promise:

- Nothing is on the disk that is not in the books.  Room is booked before a
  byte is written (`reserve`), and what is removed leaves the disk before it
  leaves the books.
- All together is at most the limit; what was used least recently goes first.
  What does not fit is a *guest*: it is not counted, and goes as soon as it is
  seen that nobody has it open.
- Who dies at any point leaves them right, for the next one who works on them:
  a download belongs to who has locked its part; and names are noted before
  their files are removed.
- They may be lost, and are then made anew, by a walk.  So are those from
  before the machine was started: blobs are not synced.  Only those are kept,
  then, that are as long as the books say; a power cut takes the end of a file
  first.

A use of a blob does not touch them.  It is the access time of the file, which
stock clients keep, too.  The books have the time of an earlier use, and are
corrected when that would make a blob the next one to go.  A lease is a use
until then, in advance: what is leased goes when nothing else is left.
"""

import collections
import contextlib
import math
import time

from .cachedirectory import LONGEST_LEASE
from .ledger import Ledger

VERSION = 2

#: `used` is a time in nanoseconds, not after the last use; NULL for a guest.
#: `final`: `size` is that of the whole blob, also while it is on its way.
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

# What a blob counts for; a guest, for nothing.
BOOKED = 'SELECT size FROM blobs WHERE name = ? AND used IS NOT NULL'

# The blob behind a place in the order of use.
NEXT = ('SELECT used, name, size FROM blobs WHERE (used, name) > (?, ?)'
        ' ORDER BY used, name LIMIT 1')

# How many blobs that were used again are looked at, at most, for the next one
# to go.
SECOND_CHANCES = 100

# How many files are kept open while they are removed.
KEPT_OPEN = 10

#: Whether a blob fits, and the edition of the books that know of it.
Booking = collections.namedtuple('Booking', 'fits edition')


class Books:

    def __init__(self, directory, limit):
        """`limit` is in bytes, or infinite."""
        self._directory = directory
        self._limit = limit
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
        """Book so many bytes for a blob, in place of what was booked for it.

        Make room, if that helps; what does not fit is a guest.  The size is
        final when the blob will have no other.
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
        """Of a blob, also while it is on its way; None: not known (yet)."""
        def work(db):
            row = db.execute(
                'SELECT size FROM blobs WHERE name = ? AND final',
                (name,)).fetchone()
            return row and row[0]

        return self._ledger.work(work)

    def current_edition(self):
        return self._ledger.current_edition()

    def give_up(self, name):
        """A download failed: remove its part, which the caller has locked."""
        self._ledger.work(lambda db: self._end_download(db, name))

    def free(self, size):
        """Remove blobs that take so much: the disk is full."""
        if self._limit < math.inf:
            self._ledger.work(lambda db: self._evict(db, size))

    def dismiss_guests(self):
        """Unless somebody is at work: who is does it."""
        self._ledger.try_work(self._dismiss_guests)

    # Removing

    def _begin(self, db):
        """Give back what dead processes had, and keep the limit."""
        for name in self._directory.parts():
            self._settle(db, name)
        self._dismiss_guests(db)
        self._evict(db, self._total(db) - self._limit)

    def _make_room(self, db, size):
        """Remove what is needed, if that helps; do so many bytes fit now?"""
        excess = self._total(db) + size - self._limit
        if excess <= 0:
            return True
        if size > self._limit or size + self._on_its_way(db) > self._limit:
            return False
        return self._evict(db, excess) >= excess

    def _on_its_way(self, db):
        """Bytes that cannot be freed: somebody is at these downloads."""
        rows = [db.execute(BOOKED, (name,)).fetchone()
                for name in self._directory.parts()
                if self._directory.is_on_its_way(name)]
        return sum(size for size, in filter(None, rows))

    def _evict(self, db, wanted):
        """Remove so many bytes, or what there is; return how many."""
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
        return freed

    def _first_to_go(self, db):
        """What was used least recently, as (name, size, is it there)."""
        now = time.time_ns()
        latest = now + LONGEST_LEASE
        # A clock ran ahead: all that is known is that it was before now.
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
        """See what came of a download; was it nothing?

        Nobody knows as long as somebody is at it.
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
        """What takes time is to free the space of a file.

        That is done when nobody has it open any more: without the lock.
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
        """What a process removed that then died, or failed."""
        for name in note.splitlines():
            if self._directory.is_gone(name):
                db.execute(DELETE, (name,))

    def _total(self, db):
        return db.execute('SELECT bytes FROM total').fetchone()[0]

    # Making them anew

    def _know_the_directory(self):
        """Walk, unless the books are those of the directory as it is."""
        if self._directory.machine_restarted():
            self._last_known = {
                name: known for name, *known in self._ledger.rows(
                    'SELECT name, size, coalesce(used, 0) FROM blobs')}
            self._ledger.make_anew()
            self._last_known = None
        elif self._directory.needs_walk():
            self._ledger.make_anew()

    # name -> (size, used): nothing else is kept; None: all is.
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
