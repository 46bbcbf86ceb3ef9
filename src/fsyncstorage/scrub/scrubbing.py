"""A scrub, as the process of its storage sees it.

It makes one pass after the other.  For each a process is started (child),
which reads the file up to where it is durable now, and ends.  Here is a thread
that hears what it reports:

- damage is logged, once in each pass;
- how far it is, and what it has found, is noted, so that the next process can
  go on (notes);
- a process that ends too soon, or says nothing, is logged, and another one
  goes on later.

A pack replaces the file: then the process is ended, and the next one begins
anew with the new file (`begin_anew`).  `close` ends it, too.  From then on its
reports count no more.

State and its owner: the notes and the process whose reports count belong to
`_mutex`.  It is a leaf: nothing is read, written or waited for while it is
held, since a pack calls `begin_anew` under the append lock.
"""

import contextlib
import dataclasses
import functools
import json
import logging
import threading
import time
from typing import Any

from ZODB.POSException import StorageError

from ..commit.wakeable import WakeableThread
from ..processes import starting
from ..processes.starting import ChildProcess
from ..processes.starting import NotStarted
from ..processes.starting import Silent
from . import notes
from .notes import Notes
from .notes import Pass
from .notes import Past
from .notes import checked

logger = logging.getLogger(__name__)

# Seconds between the begins of two passes, at least: a small file would be
# read all the time.
PASS_AT_LEAST = 600.0
# Seconds until it is tried again when something went wrong.
TRY_AGAIN_AFTER = 3600.0
# A process that reads reports every second, and waits for a disk this long.
SILENT_FOR = 600.0
# The file of the notes is written so often.
SAVE_EVERY = 60.0
# Damaged transactions that are logged in a pass; the others are counted.
MOST_SAID = 20
# Characters of what a process says.
LONGEST_WORDS = 500


class Failed(Exception):
    """The process ended before it was done, or reported nonsense."""


class Scrub:

    def __init__(self, storage: Any, rate: int) -> None:
        self._storage = storage
        self._name: str = storage._file_name
        self._path = self._name + notes.SUFFIX
        self._rate = rate
        self._mutex = threading.Lock()
        self._notes = notes.load(self._path) or Notes(Pass(0), Past())
        #: Where the pass that is under way ends.
        self._end_of_pass = 0
        #: The process that reads.
        self._process: ChildProcess | None = None
        #: How often its end was ordered.
        self._endings = 0
        self._closed = False
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
        """The storage has another file, in which other positions count.

        What is damaged was not copied to it, or is found again.
        """
        with self._mutex:
            past = self._notes.past
            self._notes = Notes(Pass(0), Past(past.passes, past.ended))
            self._due = self._save_due = 0.0
            process = self._order_end()
        self._end_process(process)

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            process = self._order_end()
        self._end_process(process)
        self._thread.close()
        if self._notes is not self._saved:
            self._save()

    def _order_end(self) -> ChildProcess | None:
        """From now on, the reports of the process do not count.

        The mutex is held.
        """
        self._endings += 1
        return self._process

    def _end_process(self, process: ChildProcess | None) -> None:
        if process is not None:
            process.end()
        self._thread.wake()

    def stats(self) -> dict[str, object]:
        with self._mutex:
            current, past = self._notes
            damaged, first_damaged = self._notes.known_damage()
            return {
                'rate': self._rate,
                'position': current.position,
                'end': self._end_of_pass,
                'passes': past.passes,
                'last_pass_ended': past.ended,
                'damaged': damaged,
                'first_damaged': first_damaged,
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
            with self._mutex:
                if self._endings != endings or self._storage._closed:
                    return
                self._due = time.monotonic() + TRY_AGAIN_AFTER
            logger.warning(
                '%s: the scrub was interrupted, and goes on in %.0f minutes:'
                ' %s', self._name, TRY_AGAIN_AFTER / 60,
                str(why)[-LONGEST_WORDS:])

    def _read(self, endings: int) -> None:
        """Let a process read, up to the end of the pass."""
        if self._stuck is not None and not self._stuck.close():
            raise NotStarted(
                f'the last process ({self._stuck.pid}) was killed, and has'
                ' not ended')
        self._stuck = None
        with contextlib.closing(self._storage.reopened()) as file:
            number = file.fileno()
            process = ChildProcess('fsyncstorage.scrub.child', [number])
        try:
            with self._mutex:
                if self._endings != endings:
                    return
                self._process = process
                self._end_of_pass = self._storage._sequencer.durable.end
                job = {
                    'file': number, 'end': self._end_of_pass,
                    'rate': self._rate,
                    'pass': dataclasses.asdict(self._notes.current)}
            process.begin(job)
            self._hear(process, endings)
        finally:
            with self._mutex:
                self._process = None
            if not process.close():
                logger.warning(
                    'The process %s that scrubs was killed, and has not ended:'
                    ' it may wait for a disk that does not answer',
                    process.pid)
                self._stuck = process

    def _hear(self, process: ChildProcess, endings: int) -> None:
        for line in iter(functools.partial(process.report, SILENT_FOR), None):
            match _parsed(line):
                case {'read': found, 'damage': str() | None as words}:
                    self._note_read(_pass(found), words, endings)
                case {'ended': found}:
                    self._note_end(_pass(found), endings)
                    return
                case {'failed': str(why)}:
                    raise Failed(why)
                case report:
                    raise _nonsense(report)
        raise Failed('the process ended before it was done (exit code'
                     f' {process.exit_code()})')

    def _note_read(self, done: Pass, damage: str | None,
                   endings: int) -> None:
        self._note(Notes(done, self._notes.past), endings)
        is_said = damage is not None and done.damaged <= MOST_SAID
        if is_said:
            logger.error(
                '%s: the scrub has found damage: %s. Run fsync-check to see'
                ' all of it; then restore a backup, or save what is sound'
                ' with fsync-check --salvage',
                self._name, str(damage)[:LONGEST_WORDS])
        if is_said or time.monotonic() >= self._save_due:
            self._save()

    def _note_end(self, done: Pass, endings: int) -> None:
        now = int(time.time())
        self._note(Notes(Pass(0), Past(
            self._notes.past.passes + 1, now, done.damaged,
            done.first_damaged)), endings)
        logger.log(
            logging.WARNING if done.damaged else logging.INFO,
            '%s: a scrub has read %s bytes in %s s: %s sound transactions (%s'
            ' of them without a seal), %s damaged ones', self._name,
            f'{self._end_of_pass:,}', f'{now - done.began:,}',
            f'{done.transactions:,}', f'{done.unsealed:,}',
            f'{done.damaged:,}')
        self._save()

    def _note(self, found: Notes, endings: int) -> None:
        """Failed: reports do not count any more."""
        with self._mutex:
            if self._endings != endings:
                raise Failed('it was ended')
            self._notes = found

    def _save(self) -> None:
        """So that the next process can go on.  (Without, it begins anew.)"""
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


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        raise _nonsense(line) from None


def _pass(found: Any) -> Pass:
    try:
        return checked(Pass, found)
    except ValueError:
        raise _nonsense(found) from None


def _nonsense(report: Any) -> Failed:
    return Failed(f'the process reported what cannot be: {str(report)[:80]!r}')
