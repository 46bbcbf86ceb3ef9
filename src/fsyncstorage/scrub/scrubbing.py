"""A scrub, seen from the process of its storage, or of a node that follows.

For each pass, a thread here starts a child process (child), which reads the
file up to where it is durable now, and ends.  The reports of the child are
logged, and noted (notes), so that the next child can go on.

A pack replaces the file.  Then the child is ended, and the next one begins
anew with the new file (`begin_anew`).

State and its owner: the notes, and the process whose reports count, belong to
`_mutex`.  This lock is a leaf: nothing is read, written or waited for while it
is held, since a pack calls `begin_anew` under the append lock.
"""

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

from ZODB.POSException import StorageError

from .. import datafile
from ..commit.wakeable import WakeableThread
from ..processes import starting
from ..processes.starting import ChildProcess
from ..processes.starting import NotStarted
from ..processes.starting import Silent
from . import notes
from .notes import Notes
from .notes import Pass
from .notes import checked

logger = logging.getLogger(__name__)

# Least seconds from the begin of a pass to that of the next: otherwise a small
# file would be read all the time, and damage be logged as often.
PASS_AT_LEAST = 86400.0
# Seconds until the next try after something went wrong.
TRY_AGAIN_AFTER = 3600.0
# Seconds without a report, after which a process has failed.  It reports every
# second, but not while it waits for a disk.
SILENT_FOR = 600.0
# Seconds until what looks damaged, or cannot be read, is read once more.
LOOK_AGAIN_AFTER = 5.0
# Seconds that a close waits for the thread.
CLOSE_WITHIN = 3.0
# Seconds between two writes of the file of the notes.
SAVE_EVERY = 60.0
# Most damaged transactions that a pass logs; the others are only counted.
MOST_SAID = 20
# Most characters that are used of a text which the process reports.
LONGEST_WORDS = 500


class Failed(Exception):
    """The process ended before it was done, or reported nonsense."""


class Interrupted(NamedTuple):
    """The scrub was interrupted at this position, `times` in succession."""

    position: int
    times: int
    why: str | None


NEVER_INTERRUPTED = Interrupted(-1, 0, None)


class File(NamedTuple):
    """What is scrubbed, as its owner shows it."""

    name: str
    #: Opens it once more.
    reopened: Callable[[], datafile.DataFile]
    #: Up to where it is durable now.
    durable_end: Callable[[], int]
    is_closed: Callable[[], object]


class Scrub:

    def __init__(self, file: File, rate: int) -> None:
        self._file = file
        self._name = file.name
        self._path = self._name + notes.SUFFIX
        self._rate = rate
        self._mutex = threading.Lock()
        self._notes = notes.load(self._path) or notes.NOTHING
        if self._notes.known_damage()[0]:
            # A backup may have been restored: all is read anew.
            self._notes = self._notes.after(Pass(0))
        #: Where the pass that is under way ends.
        self._end_of_pass = 0
        #: The process that reads.
        self._process: ChildProcess | None = None
        #: How often its end was ordered: tells old reports from new ones.
        self._endings = 0
        self._closed = False
        self._interrupted = NEVER_INTERRUPTED
        #: When the next process is started, and when the notes are saved.
        self._due = self._save_due = 0.0
        # The rest belongs to the thread.
        #: A process that was killed and has not ended.
        self._stuck: ChildProcess | None = None
        self._saved = self._notes
        self._thread = WakeableThread(
            f'scrub of {self._name}', self._read_if_due,
            lambda: max(0.0, self._due - time.monotonic()))

    def start(self) -> None:
        if starting.is_possible():
            self._thread.start()
        else:
            logger.warning(
                '%s: it is not scrubbed, because that takes a process of its'
                ' own, and this program is no Python that could be started'
                ' once more', self._name)

    # For other threads

    def begin_anew(self) -> None:
        """The storage has another file, and old positions do not count there.

        Known damage was not copied to the new file, or is found again.
        """
        with self._mutex:
            self._notes = self._notes.without_damage()
            self._interrupted = NEVER_INTERRUPTED
            self._due = self._save_due = 0.0
            process = self._order_end()
        self._end_process(process)

    def end(self) -> None:
        """The storage is about to be closed.  Nothing is waited for."""
        with self._mutex:
            self._closed = True
            process = self._order_end()
        self._end_process(process)

    def close(self) -> None:
        """End the scrub.

        A child that does not end when it is killed delays this by at most a
        few seconds.
        """
        self.end()
        self._thread.close(CLOSE_WITHIN)
        if self._notes is not self._saved:
            self._save()

    def _order_end(self) -> ChildProcess | None:
        """From now on, reports of the current child do not count.

        The mutex is held.
        """
        self._endings += 1
        return self._process

    def _end_process(self, process: ChildProcess | None) -> None:
        if process is not None:
            process.end()
        self._thread.wake()

    @property
    def damage(self) -> str | None:
        """What was found in the file, in words."""
        with self._mutex:
            damaged, _ = self._notes.known_damage()
        return (f'its file has {damaged} damaged transactions: see its log'
                if damaged else None)

    def stats(self) -> dict[str, object]:
        with self._mutex:
            noted = self._notes
            damaged, first_damaged = noted.known_damage()
            return {
                'rate': self._rate,
                'position': noted.current.position,
                'end': self._end_of_pass,
                'passes': noted.passes,
                'last_pass_ended': noted.ended,
                'damaged': damaged,
                'first_damaged': first_damaged,
                'interrupted': self._interrupted.times,
                'interrupted_because': self._interrupted.why,
            }

    # In the thread

    def _read_if_due(self) -> None:
        with self._mutex:
            now = time.monotonic()
            if self._closed or now < self._due:
                return
            self._due = now + PASS_AT_LEAST
            endings = self._endings
        try:
            self._read(endings)
        except (Failed, NotStarted, Silent, OSError, StorageError,
                ValueError) as why:
            self._note_interruption(str(why)[-LONGEST_WORDS:], endings)

    def _note_interruption(self, why: str, endings: int) -> None:
        with self._mutex:
            if (self._endings != endings
                    or self._file.is_closed()):
                return
            self._due = time.monotonic() + TRY_AGAIN_AFTER
            position = self._notes.current.position
            times = 1
            if self._interrupted.position == position:
                times += self._interrupted.times
            *_, last_line = ['', *why.splitlines()]
            self._interrupted = Interrupted(position, times, last_line)
        logger.log(
            logging.WARNING if times == 1 else logging.ERROR,
            '%s: the scrub was interrupted at byte %s of the file, %s times in'
            ' succession; nothing behind it is verified before it goes on, in'
            ' %.0f minutes: %s', self._name, position, times,
            TRY_AGAIN_AFTER / 60, why)

    def _read(self, endings: int) -> None:
        """Let a child process read, up to the end of the pass."""
        if self._stuck is not None and not self._stuck.close():
            raise NotStarted(
                f'the last process ({self._stuck.pid}) was killed, and has'
                ' not ended')
        self._stuck = None
        with contextlib.closing(self._file.reopened()) as file:
            number = file.fileno()
            process = ChildProcess('fsyncstorage.scrub.child', [number])
        try:
            with self._mutex:
                if self._endings != endings:
                    return
                self._process = process
                self._end_of_pass = self._file.durable_end()
                job = {
                    'file': number, 'end': self._end_of_pass,
                    'rate': self._rate, 'pause': LOOK_AGAIN_AFTER,
                    'pass': dataclasses.asdict(self._notes.current)}
            process.begin(job)
            self._hear(process, endings)
        finally:
            with self._mutex:
                self._process = None
            if not process.close():
                self._stuck = process

    def _hear(self, process: ChildProcess, endings: int) -> None:
        for report in process.reports(SILENT_FOR):
            match report:
                case {'read': found, 'damage': str() | None as words}:
                    self._note_read(_pass(found), words, endings)
                case {'ended': found}:
                    self._note_end(_pass(found), endings)
                    return
                case {'failed': str(why)}:
                    raise Failed(why)
                case _:
                    raise _nonsense(report)
        raise Failed('the process ended before it was done (exit code'
                     f' {process.exit_code()})')

    def _note_read(self, done: Pass, damage: str | None,
                   endings: int) -> None:
        self._note(self._notes.after(done), endings)
        if damage is not None and done.damaged <= MOST_SAID:
            logger.error(
                '%s: the scrub has found damage: %s. Copy the file at once,'
                ' since memory may still have what the disk has lost; then run'
                ' fsync-check on the copy, and restore a backup, or save what'
                ' is sound with fsync-check --salvage',
                self._name, damage[:LONGEST_WORDS])
            self._save_due = 0.0
        if time.monotonic() >= self._save_due:
            self._save()

    def _note_end(self, done: Pass, endings: int) -> None:
        now = int(time.time())
        self._note(self._notes.after_the_end(done, now), endings)
        logger.log(
            logging.WARNING if done.damaged else logging.INFO,
            '%s: a scrub has read %s bytes in %s s: %s sound transactions (%s'
            ' of them without a seal, and %s whose tid does not rise), %s'
            ' damaged ones', self._name,
            f'{self._end_of_pass:,}', f'{now - done.began:,}',
            f'{done.transactions:,}', f'{done.unsealed:,}',
            f'{done.unordered:,}', f'{done.damaged:,}')
        self._save()

    def _note(self, found: Notes, endings: int) -> None:
        """Note what is found.  Failed: reports do not count any more."""
        with self._mutex:
            if self._endings != endings:
                raise Failed('it was ended')
            if (found.current.position > self._interrupted.position
                    or found.passes > self._notes.passes):
                self._interrupted = NEVER_INTERRUPTED
            self._notes = found

    def _save(self) -> None:
        """Save the notes, so that the next process can go on.

        (Without notes, it begins anew.)
        """
        saved = self._notes
        try:
            notes.save(self._path, saved)
            self._saved = saved
            self._save_due = time.monotonic() + SAVE_EVERY
        except OSError as error:
            self._save_due = time.monotonic() + TRY_AGAIN_AFTER
            logger.warning(
                '%s could not be written (%s); after a restart, the scrub'
                ' begins anew', self._path, error)


def _pass(found: Any) -> Pass:
    try:
        return checked(found)
    except ValueError:
        raise _nonsense(found) from None


def _nonsense(report: Any) -> Failed:
    return Failed(f'the process reported what cannot be: {str(report)[:80]!r}')
