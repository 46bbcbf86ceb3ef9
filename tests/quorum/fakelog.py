"""A log in memory, which fails when it is told to.

An `Engine` is the log that all members keep; each caller has a `FakeLog` of
its own, whose calls take what is next in its `faults`.  What is not answered
may have happened, may happen later (`Engine.deliver`), or never.  An append in
two halves takes effect, or does not, in its first one.

A lease is over when the engine's clock, `now`, says so; an engine that is
built may take longer.
"""

import collections
import contextlib
import enum
import threading
import typing

from fsyncstorage.quorum.history.record import Ends
from fsyncstorage.quorum.history.record import Place
from fsyncstorage.quorum.log.interface import Exists
from fsyncstorage.quorum.log.interface import Full
from fsyncstorage.quorum.log.interface import Missing
from fsyncstorage.quorum.log.interface import Moved
from fsyncstorage.quorum.log.interface import Trimmed
from fsyncstorage.quorum.log.interface import Unanswered

MEMBERS = 3
#: Records of one answer.
AT_ONCE = 4


class Fault(enum.Enum):
    NONE = 'it is answered'
    BEFORE = 'it fails, and has no effect'
    AFTER = 'it takes effect, and is not answered'
    DELAYED = 'it is not answered, and takes effect later'
    #: Only of a read.
    HOLE = 'the first record is left out'
    DOUBLED = 'each record comes twice'
    REVERSED = 'the last record comes first'


_OF_READS = {
    Fault.HOLE: lambda records: records[1:],
    Fault.DOUBLED: lambda records: [
        each for each in records for _ in range(2)],
    Fault.REVERSED: lambda records: records[::-1],
}


class Held(typing.NamedTuple):
    """A lease."""

    holder: bytes | None
    caller: int | None
    term: int
    end: float


NOBODYS = Held(None, None, 0, 0.0)


class Engine:

    def __init__(self, log, landed=lambda raw: None):
        #: None: there is no log.
        self.log = log
        #: Called with each record that takes effect, before it does.
        self.landed = landed
        #: All there were.  What is before `first` is not shown.
        self.records = []
        self.first = 1
        self.head = Place(0, log)
        #: A member's own bytes, by member and sequence.
        self.damaged = {}
        #: The numbers of members that do not answer when they are asked.
        self.away = set()
        #: Calls that were not answered, and have had no effect yet.
        self.delayed = collections.deque()
        self.now = 0.0
        self.lease = NOBODYS
        self.kept = {}  # the notes
        self.blobs = {}  # chunks, by id and number
        #: A member's own chunks, by member, id and number; None: it has none.
        self.damaged_blobs = {}
        #: It takes nothing more.
        self.is_full = False
        self.changed = threading.RLock()

    # What befalls it

    def deliver(self, number=0):
        """One of the delayed calls takes effect."""
        call = self.delayed[number]
        del self.delayed[number]
        with contextlib.suppress(Exists, Missing, Moved, Trimmed):
            call()

    def damage(self, member, sequence, bit):
        """A bit of a member's copy flips."""
        raw = bytearray(self.records[sequence - 1])
        raw[bit // 8 % len(raw)] ^= 1 << bit % 8
        self.damaged[member, sequence] = bytes(raw)

    def restore(self, head):
        """It is as it was when this record was the last one."""
        del self.records[head.sequence:]
        self.head = head
        self.damaged = {
            (member, sequence): raw
            for (member, sequence), raw in self.damaged.items()
            if sequence <= head.sequence}

    # What it does

    def create(self, log):
        if self.log is not None:
            raise Exists
        self.log = log
        self.head = Place(0, log)

    def _needs_room(self):
        if self.is_full:
            raise Full('no room')

    def append(self, before, place, raw):
        with self.changed:
            self._needs_room()
            if self.head != before:
                raise Moved
            self.landed(raw)
            self.records.append(raw)
            self.head = place

    def ends(self, member=None):
        self._is_there(member)
        if self.log is None:
            raise Missing
        return Ends(self.log, self.first, self.head)

    def read(self, sequence, member=None):
        self._is_there(member)
        if sequence < self.first:
            raise Trimmed
        return [
            self.damaged.get(((member or 0) % MEMBERS, number), raw)
            for number, raw in enumerate(
                self.records[sequence - 1:sequence - 1 + AT_ONCE], sequence)]

    def _is_there(self, member):
        if member is not None and member % MEMBERS in self.away:
            raise Unanswered(f'member {member}')

    def trim(self, first):
        self.first = max(self.first, first)

    def hold(self, caller, holder, seconds, may_take=lambda: True):
        self._needs_room()
        wanted = self.wanted(self.lease, caller, holder, seconds, may_take)
        if wanted is None:
            return 0
        self.lease = wanted
        return wanted.term

    def wanted(self, seen, caller, holder, seconds, may_take=lambda: True):
        """What may take the place of this lease, or None."""
        if seen.holder not in (None, holder) and self.now < seen.end:
            return None
        is_kept = (seen.holder, seen.caller) == (holder, caller)
        if not is_kept and not may_take():
            return None
        return Held(
            holder, caller, seen.term + (not is_kept), self.now + seconds)

    def holder(self):
        return self.lease.holder

    def let_go(self, holder):
        if self.holder() == holder:
            self.lease = NOBODYS._replace(term=self.lease.term, end=self.now)

    def note(self, node, raw):
        self._needs_room()
        self.kept[node] = raw

    def notes(self, member=None):
        self._is_there(member)
        return dict(self.kept)

    def forget(self, node):
        self.kept.pop(node, None)

    def stage(self, id, number, data):
        self._needs_room()
        self.blobs[id, number] = data

    def staged(self, id, number, member=None):
        self._is_there(member)
        return self.damaged_blobs.get(
            ((member or 0) % MEMBERS, id, number),
            self.blobs.get((id, number)))

    def unstage(self, ids):
        self.blobs = {(id, number): data for (id, number), data
                      in self.blobs.items() if id not in ids}

    def all_staged(self):
        return {id for id, _ in self.blobs}


class FakeLog:
    """The log of one caller."""

    members = MEMBERS

    def __init__(self, engine):
        self._engine = engine
        self.is_stopped = False
        #: The member that is asked first.
        self._first = 0
        #: No majority answers it.
        self.is_away = False
        #: What the answer to the last question will raise.
        self._answer = None
        #: Of the next calls, in their order.  Later ones have none.
        self.faults = collections.deque()

    def _call(self, name, *args):
        if self.is_stopped or self.is_away:
            raise Unanswered(name)
        fault = self.faults.popleft() if self.faults else Fault.NONE

        def call():
            return getattr(self._engine, name)(*args)

        if fault is Fault.BEFORE:
            raise Unanswered(name)
        if fault is Fault.DELAYED:
            self._engine.delayed.append(call)
            raise Unanswered(name)
        try:
            answer = call()
        finally:
            if fault is Fault.AFTER:
                raise Unanswered(name)
        return _OF_READS[fault](answer) if (
            name == 'read' and fault in _OF_READS) else answer

    def create(self, log):
        self._call('create', log)

    def _one_of(self, member):
        """This member; or one that answers, from the first one on."""
        if member is not None:
            return member
        return next(each for each in range(self._first, self._first + MEMBERS)
                    if each % MEMBERS not in self._engine.away)

    def turn(self):
        self._first = (self._first + 1) % MEMBERS

    def ends(self, member=None):
        return self._call('ends', self._one_of(member))

    def append(self, before, place, raw):
        self._call('append', before, place, raw)

    def ask(self, before, place, raw):
        self._answer = None
        try:
            self.append(before, place, raw)
        except (Moved, Unanswered) as error:
            self._answer = error

    def answered(self):
        if self._answer is not None:
            raise self._answer

    def read(self, sequence, member=None):
        return self._call('read', sequence, self._one_of(member))

    def trim(self, first):
        self._call('trim', first)

    def hold(self, holder, seconds, may_take=lambda: True):
        return self._call('hold', id(self), holder, seconds, may_take)

    def holder(self):
        return self._call('holder')

    def let_go(self, holder):
        self._call('let_go', holder)

    def note(self, node, raw):
        self._call('note', node, raw)

    def notes(self, member=None):
        return self._call('notes', self._one_of(member))

    def forget(self, node):
        self._call('forget', node)

    def stage(self, id, number, data):
        self._call('stage', id, number, data)

    def staged(self, id, number, member=None):
        return self._call('staged', id, number, self._one_of(member))

    def unstage(self, ids):
        self._call('unstage', set(ids))

    def all_staged(self):
        return self._call('all_staged')

    def find_leader(self):
        pass

    def stop(self):
        self.is_stopped = True

    def close(self):
        self.stop()
