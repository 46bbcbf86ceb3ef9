"""The log on etcd: the calls of the interface, as transactions.

An append is one transaction: if the head has a given value, put the record and
the new head.  Nothing here relies on the revisions of etcd, and old revisions
are never read: an operator, and `trim`, may compact all of them at any time.

A log that is lost, and etcd with it, must not come back as a lease, notes and
chunks without a log: then nothing could begin there.  So these are put only
where the identity of a log is.

Where the log begins is not written anywhere; its first record shows it.  So a
trim only removes, which etcd does even when it is full.  Removed keys, and
values that were replaced, take room until they are compacted.  So `trim` also
compacts.
"""

import logging
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence

from ..history.record import LARGEST
from ..history.record import MOST
from ..history.record import Damaged
from ..history.record import Ends
from ..history.record import Place
from ..history.record import parse_place
from ..log import interface
from ..log.interface import clock
from . import messages
from .cluster import Cluster
from .keys import Keys
from .keys import Span
from .keys import opened
from .keys import opened_identity
from .keys import sealed
from .keys import sealed_identity
from .lease import FREE
from .lease import Lease
from .lease import Value
from .lease import agreed
from .lease import parse as parse_lease
from .member import Asked
from .member import Member
from .messages import Fields
from .messages import Message
from .messages import Status
from .pace import Pace
from .settings import Settings
from .trouble import Lost
from .trouble import Said
from .trouble import Trouble

logger = logging.getLogger(__name__)

#: The most records of one answer, which `member.LONGEST` has to hold; fewer if
#: they are large.
MOST_RECORDS = 8

#: How many records, and how many staged blobs, one request removes.
AT_ONCE = 1000
BLOBS_AT_ONCE = 100
#: The most notes.
MOST_NOTES = 100
#: The most keys of one answer.
KEYS = 1000


class EtcdLog:

    def __init__(self, settings: Settings,
                 clock: Callable[[], float] = clock) -> None:
        settings.check()
        self.settings = settings
        self.keys = Keys(settings.prefix)
        self.cluster = Cluster(settings)
        self.members = len(self.cluster.members)
        self._lease = Lease(clock)
        self._asked: tuple[Asked, Place] | interface.Unanswered | None = None
        self._may_compact = True
        self._pace = Pace(self.cluster)
        #: How many records one request asks for.
        self._records = 1

    def stop(self) -> None:
        self.cluster.stop()

    def close(self) -> None:
        self.cluster.stop()
        self._give_up()

    def turn(self) -> None:
        self.cluster.turn_from(self.cluster.preferred)

    def find_leader(self) -> None:
        cluster = self.cluster
        for member, status in cluster.statuses(cluster.share).items():
            if isinstance(status, Status) and status.leads:
                cluster.prefer(member)

    # The log

    def create(self, log: bytes) -> None:
        keys, head = self.keys, Place(0, log)
        created = self.cluster.ask(messages.transaction(
            [messages.put(keys.log, sealed_identity(keys.log, log)),
             messages.put(keys.head, sealed(keys.head, head.packed()))],
            where=[messages.is_empty(keys.all)]), messages.has_succeeded)
        if not created:
            raise interface.Exists(
                f'there is something below {keys.all.start.decode()} already')

    def ends(self, member: int | None = None) -> Ends:
        return self._there(self.cluster.ask(
            messages.transaction(self._what_shows_the_ends()),
            lambda answer: self._ends(*messages.ranges(answer, 3)), member))

    def _what_shows_the_ends(self) -> list[Fields]:
        keys = self.keys
        return [messages.shown(keys.log), messages.shown(keys.head),
                messages.shown(keys.records, 1, only=True)]

    def _ends(self, identity: Message, head: Message,
              first: Message) -> Ends | None:
        keys = self.keys
        log, place = messages.one(identity), messages.one(head)
        if log is None and place is None:
            return None
        if log is None or place is None:
            raise Damaged('a log without its identity, or without its head')
        found = parse_place(opened(keys.head, place))
        begin = found.sequence + 1
        for pair in first.kvs:
            begin = keys.sequence_of(pair.key)
        return Ends(opened_identity(keys.log, log), begin, found)

    def _there(self, ends: Ends | None) -> Ends:
        if ends is None:
            raise interface.Missing(
                f'there is no log below {self.keys.all.start.decode()}')
        return ends

    # Records

    def ask(self, before: Place, place: Place, raw: bytes) -> None:
        if len(raw) > LARGEST:
            raise ValueError(f'a record of {len(raw)} bytes')
        self._give_up()
        head, key = self.keys.head, self.keys.record(place.sequence)
        try:
            self._asked = self.cluster.begin(messages.transaction(
                [messages.put(key, raw),
                 messages.put(head, sealed(head, place.packed()))],
                where=[messages.has(head, sealed(head, before.packed())),
                       # Each member compares by itself: this finds one that
                       # has lost its last head, but still has the record.
                       messages.is_empty(key)],
                otherwise=[messages.shown(head)])), before
        except interface.Unanswered as error:
            self._asked = error

    def answered(self) -> None:
        asked, self._asked = self._asked, None
        if not isinstance(asked, tuple):
            raise asked or AssertionError('nothing was asked')
        question, before = asked
        if not self.cluster.answer(
                question, lambda answer: self._is_appended(answer, before)):
            # This member may be wrong, and would say so each time.
            self.cluster.turn_from(question.member)
            raise interface.Moved

    def _is_appended(self, answer: Message, before: Place) -> bool:
        if messages.has_succeeded(answer):
            return True
        shown, = messages.ranges(answer, 1)
        head = messages.one(shown)
        if head is not None and parse_place(
                opened(self.keys.head, head)) == before:
            raise Damaged('a head that is not what it was compared with')
        return False

    def _give_up(self) -> None:
        if isinstance(self._asked, tuple):
            self._asked[0].give_up()
        self._asked = None

    def read(self, sequence: int,
             member: int | None = None) -> Sequence[bytes]:
        keys, limit = self.keys, self._records
        found, ends = self.cluster.ask(messages.transaction([
            messages.shown(Span(
                keys.record(sequence), keys.record(sequence + limit)), limit),
            *self._what_shows_the_ends()]),
            lambda answer: self._read(sequence, *messages.ranges(answer, 4)),
            member)
        if found:
            self._records = min(
                MOST_RECORDS, 1 + LARGEST // max(map(len, found)))
        elif self._there(ends).first > sequence:
            raise interface.Trimmed
        return found

    def _read(self, sequence: int, records: Message, *of_ends: Message
              ) -> tuple[list[bytes], Ends | None]:
        """Records; where there are none, also what shows why."""
        found = self._consecutive(records, sequence)
        return found, None if found else self._ends(*of_ends)

    def _consecutive(self, answer: Message, sequence: int) -> list[bytes]:
        """The records up to the first gap."""
        found: list[bytes] = []
        for pair in answer.kvs:
            if pair.key != self.keys.record(sequence + len(found)):
                break
            found.append(pair.value)
        return found

    def trim(self, first: int) -> None:
        keys = self.keys
        begin = 0
        while begin < first:
            # (If this member says too much, all goes at once.)
            begin = min(max(begin, self.ends().first) + AT_ONCE, first)
            self._remove(Span(keys.records.start, keys.record(begin)))
        self._compact()

    def _compact(self) -> None:
        now = self.cluster.ask(
            messages.pairs_of(self.keys.head, 1), messages.revision)
        asked = self.cluster.begin(messages.compaction(now))
        try:
            asked.answer()
        except Trouble as error:
            if isinstance(error, Said) and error.about('permission denied'):
                self._may_not_compact(error)
            # (That error: nothing has changed since the last compaction.)
            elif not (isinstance(error, Said)
                      and error.about('has been compacted')):
                raise self.cluster.failed(asked.member, error) from error

    def _may_not_compact(self, error: Said) -> None:
        if self._may_compact:
            self._may_compact = False
            logger.warning(
                'etcd: this user may not compact (%s): without'
                ' --auto-compaction-mode=periodic'
                ' --auto-compaction-retention=1h each member will be full'
                ' one day', error)

    def _remove(self, keys: bytes | Span) -> None:
        self.cluster.ask(messages.removal(keys), messages.revision)

    # The lease

    def hold(self, holder: bytes, seconds: float,
             may_take: Callable[[], bool] = lambda: True) -> int:
        """The value that was seen may have changed; then it is read once
        more."""
        if self._lease.seen is None:
            self._look(seconds)
        for _ in range(2):
            wanted = self._lease.wanted(holder, seconds, may_take)
            if wanted is None:
                self._look(seconds)
                wanted = self._lease.wanted(holder, seconds, may_take)
            if wanted is None:
                return 0
            if self._swap(wanted, seconds):
                return wanted.term
        return 0

    def holder(self) -> bytes | None:
        return self.cluster.ask(
            messages.pairs_of(self.keys.lease, 1), self._value).holder or None

    def let_go(self, holder: bytes) -> None:
        for _ in range(2):  # a late renewal may get in between
            self._look(self.cluster.patience)
            free = self._lease.given_back(holder)
            if free is None or self._swap(free, self.cluster.patience):
                break

    def _look(self, seconds: float) -> None:
        self._lease.see(self.cluster.ask(
            messages.pairs_of(self.keys.lease, 1), self._value,
            seconds=self._in_time(seconds)))

    def _swap(self, wanted: Value, seconds: float) -> bool:
        """Put it in place of the value that was seen."""
        seen, key = self._lease.seen, self.keys.lease
        assert seen is not None
        before = (messages.is_empty(key) if seen.value == FREE else
                  messages.has(key, sealed(key, seen.value.packed())))
        cluster = self.cluster
        member, said = next(cluster.answers(
            cluster.all_from(cluster.preferred), messages.transaction(
                [messages.put(key, sealed(key, wanted.packed()))],
                where=[before, messages.is_there(self.keys.log)],
                otherwise=[messages.shown(key)]),
            lambda answer: self._swapped(answer, wanted),
            self._in_time(seconds)))
        found = self._agreed(member, said, seconds)
        self._lease.see(found)
        return found == wanted

    def _agreed(self, member: Member, said: Value, seconds: float) -> Value:
        """What most members show, after one member has said `said`."""
        cluster = self.cluster
        others = cluster.answers(
            cluster.all_from(member)[1:], messages.pairs_of(
                self.keys.lease, 1), self._value, self._in_time(seconds))
        try:
            found = agreed(
                said, (value for _, value in others), self.members // 2 + 1)
        except interface.Unanswered:
            cluster.turn_from(member)
            raise
        if found != said:
            cluster.turn_from(member)
            logger.warning(
                'etcd: %s does not say of the lease what most members show. It'
                ' may have lost what it had: compare them with etcdctl'
                ' endpoint hashkv --cluster', member)
        return found

    def _in_time(self, seconds: float) -> float:
        """A timeout with which three questions fit into a lease."""
        return min(seconds / 3, self.cluster.patience)

    def _swapped(self, answer: Message, wanted: Value) -> Value:
        """The value that is there now."""
        if messages.has_succeeded(answer):
            return wanted
        shown, = messages.ranges(answer, 1)
        return self._value(shown)

    def _value(self, answer: Message) -> Value:
        value = messages.one(answer)
        key = self.keys.lease
        return parse_lease(None if value is None else opened(key, value))

    # Notes

    def note(self, node: bytes, raw: bytes) -> None:
        if len(raw) > interface.NOTE:
            raise ValueError(f'a note of {len(raw)} bytes')
        key = self.keys.note(node)
        self.cluster.ask(messages.transaction(
            [messages.put(key, sealed(key, raw))],
            where=[messages.is_there(self.keys.log)]), messages.revision)

    def notes(self, member: int | None = None) -> dict[bytes, bytes]:
        return self.cluster.ask(messages.pairs_of(
            self.keys.notes, MOST_NOTES + 1), self._notes, member)

    def _notes(self, answer: Message) -> dict[bytes, bytes]:
        if len(answer.kvs) > MOST_NOTES:
            raise Lost(
                f'more than {MOST_NOTES} nodes have notes: forget those that'
                ' are gone')
        return {self.keys.node_of(pair.key): opened(pair.key, pair.value)
                for pair in answer.kvs}

    def forget(self, node: bytes) -> None:
        self._remove(self.keys.note(node))

    # Chunks of staged blobs

    def stage(self, id: bytes, number: int, data: bytes) -> None:
        if len(data) > MOST:
            raise ValueError(f'a chunk of {len(data)} bytes')
        key = self.keys.chunk(id, number)
        # (Each put takes room until it is compacted, even if it replaces the
        # same value.)
        self.cluster.ask(messages.transaction(
            [messages.put(key, sealed(key, data))],
            where=[messages.is_empty(key), messages.is_there(self.keys.log)]),
            messages.revision)
        self._pace.keep(len(data))

    def staged(self, id: bytes, number: int,
               member: int | None = None) -> bytes | None:
        key = self.keys.chunk(id, number)
        return self.cluster.ask(
            messages.pairs_of(key, 1), lambda answer: _opened(answer, key),
            member)

    def unstage(self, ids: Iterable[bytes]) -> None:
        left = list(ids)
        while left:
            some, left = left[:BLOBS_AT_ONCE], left[BLOBS_AT_ONCE:]
            self.cluster.ask(messages.transaction(
                [messages.removed(self.keys.chunks(id)) for id in some]),
                messages.revision)

    def all_staged(self) -> set[bytes]:
        found: set[bytes] = set()
        start, end = self.keys.blobs
        while True:
            ids = self.cluster.ask(messages.pairs_of(
                Span(start, end), KEYS, only=True), self._ids)
            found.update(ids)
            if not ids:
                return found
            # Continue after all chunks of the last blob.
            start = self.keys.chunks(ids[-1]).end

    def _ids(self, answer: Message) -> list[bytes]:
        return [self.keys.blob_of(pair.key) for pair in answer.kvs]


def _opened(answer: Message, key: bytes) -> bytes | None:
    value = messages.one(answer)
    return None if value is None else opened(key, value)
