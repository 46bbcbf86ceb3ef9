"""What a node says of itself in the log, and what it hears of the others.

A thread notes, some times in each lease, how far the node has kept the log,
when that was, whether it could lead now, and how old the last good probe of
its disk is (probing).  Then it reads the notes of all the others.  It asks
only the log, and waits for no disk and no handler of the process' log: what it
knows decides whether a leader whose disk hangs gives way.

A note is as old as it is for us: it counts from when we first saw it, by our
own clock.  One that was there before we looked may be of any age.  A wrong
member may show an old one, again and again: so only a later one counts.
"""

import collections
import contextlib
import logging
import time
import typing
from collections.abc import Callable
from collections.abc import Mapping

from ...commit.wakeable import WakeableThread
from ..history.record import Damaged
from ..history.record import Place
from ..log.interface import RESERVED
from ..log.interface import Log
from ..log.interface import Unanswered
from ..log.notes import Author
from ..log.notes import Health
from ..log.notes import Note
from ..log.notes import Taken
from ..log.notes import parse_note
from ..log.notes import shown
from .probing import Probing

logger = logging.getLogger(__name__)

#: Seconds from one note to the next, at most; a part of the lease, at most.
NOTED_EVERY, OF_THE_LEASE = 1.0, 1 / 5
#: A part of the lease: the good probe of a node that could lead is younger.
YOUNG = 2 / 5
#: Leases without a new note after which a node is said to be silent.
SILENT_AFTER = 3
#: Bytes that are free on the disk of a node that gives way, at most, and of
#: one that could lead, at least.  (They are far apart, so that nothing changes
#: hands to and fro.)
FULL, ROOM = 16 << 20, 256 << 20
#: How many of our own places are remembered, with their times.
REMEMBERED = 600


def every(lease: float) -> float:
    return min(NOTED_EVERY, OF_THE_LEASE * lease)


class Heard(typing.NamedTuple):
    """The last note of another node."""

    note: Note
    #: When it was seen first; it may be older.
    since: float
    #: It has replaced another one since we look: so it is not older.
    is_new: bool


class Presence:

    def __init__(self, log: Log, lease: float, patience: float,
                 probing: Probing,
                 said: Callable[[], tuple[Place, bool, str]],
                 of_pack: Callable[[], tuple[int, bytes]] = lambda: (0, b'')
                 ) -> None:
        """`patience`: the seconds for which a disk may be silent.  `said()`:
        the place that this node has kept, whether it could lead, and its
        trouble; `of_pack()`: pulse and part of its pack (log.notes)."""
        self._log = log
        self._lease = lease
        self._patience = patience
        self.probing = probing
        self._said = said
        self._of_pack = of_pack
        self._author: Author | None = None
        self._others: dict[bytes, Heard] = {}
        #: All that was read last: also what is not about nodes.
        self.notes: Mapping[bytes, bytes] = {}
        #: Why this node must end: another one has its name.
        self.taken: str | None = None
        #: Our own places, and when they were new.
        self._places: collections.deque[tuple[int, float]] = collections.deque(
            maxlen=REMEMBERED)
        #: What was logged of others that are in trouble.
        self._logged: dict[bytes, str] = {}
        self._thread = WakeableThread(
            'notes in the log', self._turn, lambda: every(lease))

    def start(self, author: Author) -> None:
        self._author = author
        self._thread.start()

    def close(self) -> None:
        """After the log was stopped: else it may wait for that."""
        self.probing.close()
        if self._author is not None:
            self._thread.close()

    @property
    def disk_trouble(self) -> str | None:
        if self.probing.silence <= self._patience:
            return None
        return f'its disk has not answered for {self._patience:g} s'

    @property
    def why_it_should_give_way(self) -> str | None:
        """The disk of this node hangs or is full, and another one's is not."""
        reason = self.disk_trouble or self._full
        if reason is None or not self.another_could_lead:
            return None
        return f'{reason}, and another node could lead'

    @property
    def _full(self) -> str | None:
        room = self.probing.room
        return (f'its disk is full: {room / (1 << 20):.0f} MB are left'
                if room < FULL else None)

    @property
    def _slow(self) -> str | None:
        """Nobody gives way for it: the disk may work for all.  But what other
        programs write there hides a hang."""
        return (f'no probe of its disk has ended for {self._patience:g} s,'
                ' though the disk completes other writes: it is very slow, or'
                ' hangs for this node' if self.probing.overdue > self._patience
                else None)

    # The others

    @property
    def another_could_lead(self) -> bool:
        now = time.monotonic()
        return any(
            each.is_new and each.note.health.could_lead
            and each.note.health.age + now - each.since < YOUNG * self._lease
            for each in self._others.values())

    @property
    def latest_kept(self) -> int:
        """The last record that any other node says it has kept, of those that
        say something now, and could lead: another one may have the record in a
        spool alone."""
        now = time.monotonic()
        return max((each.note.place.sequence for each in self._others.values()
                    if each.is_new and each.note.health.could_lead
                    and not self._is_silent(each, now)), default=-1)

    @property
    def heard(self) -> Mapping[bytes, Heard]:
        """The last note of each other node."""
        return self._others

    def stats(self) -> dict[str, dict[str, object]]:
        """Of each other node: when it was heard of, how far it is behind, and
        its trouble."""
        now = time.monotonic()
        return {shown(name): {
            'silence': now - each.since, 'lag': self._lag(each.note.place),
            'trouble': self._trouble(each, now)}
            for name, each in sorted(self._others.items())}

    def _lag(self, place: Place) -> float:
        """Seconds since we have kept more than that."""
        later = [since for sequence, since in list(self._places)
                 if sequence > place.sequence]
        return time.monotonic() - min(later) if later else 0.0

    def _trouble(self, heard: Heard, now: float) -> str:
        if self._is_silent(heard, now):
            return 'nothing was heard of it lately: does it run?'
        return heard.note.health.trouble

    def _is_silent(self, heard: Heard, now: float) -> bool:
        return now - heard.since > SILENT_AFTER * self._lease

    def log_trouble(self) -> None:
        """Log what has changed.  Another thread calls it: a handler of the log
        may wait for a disk."""
        found = {name: words for name, each in self._others.items()
                 if (words := self._trouble(each, time.monotonic()))}
        for name in self._logged.keys() - found.keys():
            logger.warning('the node %s has no trouble any more', shown(name))
        for name, words in found.items():
            if self._logged.get(name) != words:
                logger.warning(
                    'the node %s is in trouble: %s', shown(name), words)
        self._logged = found

    # In the thread

    def _turn(self) -> None:
        assert self._author is not None
        place, could_lead, trouble = self._said()
        now = time.monotonic()
        if not self._places or self._places[-1][0] != place.sequence:
            self._places.append((place.sequence, now))
        health = Health(
            time.time(), self.probing.age,
            could_lead and self.probing.room >= ROOM,
            trouble or self.disk_trouble or self.probing.trouble
            or self._full or self._slow or '', *self._of_pack())
        try:
            with contextlib.suppress(Unanswered):
                self.notes = self._author.claim(self._log, place, health)
                self._hear(self.notes, time.monotonic())
        except Taken as error:
            self.taken = str(error)

    def _hear(self, notes: Mapping[bytes, bytes], now: float) -> None:
        assert self._author is not None
        found = {}
        for name, raw in notes.items():
            if name == self._author.name or name.startswith(RESERVED):
                continue
            with contextlib.suppress(Damaged):
                note, before = parse_note(raw), self._others.get(name)
                if before is None or _when(before.note) < _when(note):
                    before = Heard(note, now, before is not None)
                found[name] = before
        self._others = found


def _when(note: Note) -> tuple[int, float]:
    """When its node has noted it.  (The clock of its machine may be set back:
    then its next commit tells.)"""
    return note.place.sequence, note.health.time
