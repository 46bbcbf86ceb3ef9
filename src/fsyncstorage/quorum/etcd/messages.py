"""The questions to etcd and its answers, as protobuf messages.

The names and the numbers of fields are those of rpc.proto, kv.proto and
auth.proto of etcd 3.5 and 3.6; numbers do not change from release to release.
"""

import struct
import typing
from collections.abc import Iterable
from collections.abc import Sequence

from .keys import Span
from .protobuf import FIELDS
from .protobuf import Message
from .protobuf import Pieces
from .protobuf import field
from .protobuf import integer
from .trouble import Lost
from .trouble import legible

#: Stands before each message: whether it is compressed, and its length.
PREFIX = struct.Struct('>BI')

#: Bytes of an answer that has a few small values.
SMALL = 1 << 16

#: Bytes of a notice: etcd puts a thousand events into one if we are slow.
NOTICE = 1 << 20
MOST_EVENTS = 10_000

#: How many members of a cluster, and alarms, are read at most.
MOST_MEMBERS = 100

_KV = b'/etcdserverpb.KV/'

# What a comparison compares.
_CREATE, _VALUE = 1, 3

# The action and the kind of an alarm.
_DEACTIVATE, _NOSPACE = 2, 1


class Question(typing.NamedTuple):
    path: bytes
    #: Including its prefix.
    body: bytes
    #: The most bytes of its answer, and the most fields.
    most: int = SMALL
    fields: int = FIELDS


class Pair(typing.NamedTuple):
    key: bytes
    value: bytes


class Status(typing.NamedTuple):
    """The status of a member, as it says itself."""

    id: int
    cluster: int
    version: str
    leader: int
    learner: bool
    #: Bytes of its database, and how many of them are not free pages.
    size: int
    in_use: int
    #: The size at which it is full; 0: it does not say (before 3.6).
    quota: int

    @property
    def leads(self) -> bool:
        return self.id == self.leader


class Notice(typing.NamedTuple):
    created: bool
    canceled: bool
    #: The values that were put, in order.
    values: Sequence[bytes]


# Questions

def _question(path: bytes, pieces: Iterable[bytes] = (), most: int = SMALL,
              fields: int = FIELDS) -> Question:
    pieces = tuple(pieces)
    prefix = PREFIX.pack(0, sum(map(len, pieces)))
    return Question(path, b''.join([prefix, *pieces]), most, fields)


def _keys(keys: bytes | Span) -> Pieces:
    if isinstance(keys, Span):
        return *field(1, keys.start), *field(2, keys.end)
    return field(1, keys)


def _range(keys: bytes | Span, limit: int = 0, only: bool = False) -> Pieces:
    return *_keys(keys), *integer(3, limit), *integer(8, only)


def shown(keys: bytes | Span, limit: int = 0, only: bool = False) -> Pieces:
    """Some pairs; or, if `only` is true, their keys."""
    return field(1, *_range(keys, limit, only))


def put(key: bytes, value: bytes) -> Pieces:
    return field(2, *field(1, key), *field(2, value))


def removed(keys: bytes | Span) -> Pieces:
    return field(3, *_keys(keys))


def has(key: bytes, value: bytes) -> Pieces:
    """A condition: the key has this value."""
    return *integer(2, _VALUE), *field(3, key), *field(7, value)


def is_empty(keys: bytes | Span) -> Pieces:
    """A condition: no such key is there."""
    if isinstance(keys, Span):
        return (*integer(2, _CREATE), *field(3, keys.start), *integer(5, 0),
                *field(64, keys.end))
    return *integer(2, _CREATE), *field(3, keys), *integer(5, 0)


def pairs_of(keys: bytes | Span, limit: int, most: int = SMALL,
             only: bool = False) -> Question:
    return _question(
        _KV + b'Range', _range(keys, limit, only), most, limit + FIELDS)


def removal(keys: bytes | Span) -> Question:
    """A removal, which etcd takes even when it is full."""
    return _question(_KV + b'DeleteRange', _keys(keys))


def transaction(then: Sequence[Pieces], *, where: Sequence[Pieces] = (),
                otherwise: Sequence[Pieces] = ()) -> Question:
    return _question(_KV + b'Txn', [
        piece for number, parts in enumerate((where, then, otherwise), 1)
        for pieces in parts for piece in field(number, *pieces)],
        fields=len(then) + len(otherwise) + FIELDS)


def compaction(revision: int) -> Question:
    """(etcd answers it when the pages are free.)"""
    return _question(
        _KV + b'Compact', [*integer(1, revision), *integer(2, True)])


def room_for(member: int) -> Question:
    """Disarm the alarm that says that this member has no room."""
    return _question(_ALARM, [
        *integer(1, _DEACTIVATE), *integer(2, member), *integer(3, _NOSPACE)],
        fields=MOST_MEMBERS * 2)


def watching(key: bytes) -> Question:
    return _question(
        b'/etcdserverpb.Watch/Watch', field(1, *field(1, key)),
        NOTICE, MOST_EVENTS + FIELDS)


def authentication(user: str, password: str) -> Question:
    return _question(
        b'/etcdserverpb.Auth/Authenticate',
        [*field(1, user.encode()), *field(2, password.encode())])


STATUS = _question(b'/etcdserverpb.Maintenance/Status')
#: For the member that is asked.
DEFRAGMENTATION = _question(b'/etcdserverpb.Maintenance/Defragment')
_ALARM = b'/etcdserverpb.Maintenance/Alarm'
ALARMS = _question(_ALARM, fields=MOST_MEMBERS * 2)
#: A majority has confirmed the answer.
MEMBERS = _question(
    b'/etcdserverpb.Cluster/MemberList', integer(1, True),
    fields=MOST_MEMBERS * 2)


# Answers

def pairs(answer: Message, most: int) -> list[Pair]:
    return [Pair(each.data(1), each.data(5))
            for each in answer.messages(2, most)]


def one(answer: Message) -> bytes | None:
    """The value of the only key that was asked for, or None."""
    found = pairs(answer, 1)
    return found[0].value if found else None


def has_succeeded(answer: Message) -> bool:
    """Was the condition of a transaction true?"""
    return answer.truth(2)


def ranges(answer: Message, count: int) -> list[Message]:
    """The answers of a transaction to `count` times `shown`."""
    found = answer.messages(3, count)
    if len(found) < count:
        raise Lost('an answer with too few responses')
    for each in found:
        if not each.has(1):
            raise Lost('an answer without a response_range')
    return [each.message(1) for each in found]


def revision(answer: Message) -> int:
    """The revision of what etcd did, or read: each answer has one."""
    found = answer.message(1).number(3)
    if not found:
        raise Lost('an answer without a revision')
    return found


def cluster(answer: Message) -> int:
    """The cluster that has answered; 0: it does not say."""
    return answer.message(1).number(1)


def token(answer: Message) -> str:
    return answer.text(2)


def notice(answer: Message) -> Notice:
    return Notice(answer.truth(3), answer.truth(4), [
        event.message(2).data(5)
        for event in answer.messages(11, MOST_EVENTS)
        if event.number(1) == 0])  # something was put


def status(answer: Message) -> Status:
    header = answer.message(1)
    return Status(
        id=header.number(2), cluster=header.number(1),
        version=legible(answer.text(2)), leader=answer.number(4),
        learner=answer.truth(10), size=answer.number(3),
        in_use=answer.number(9), quota=answer.number(12))


def voting(answer: Message) -> int:
    """How many members vote."""
    return sum(not each.truth(5) for each in answer.messages(2, MOST_MEMBERS))


def alarms(answer: Message) -> list[str]:
    return [{_NOSPACE: 'NOSPACE', 2: 'CORRUPT'}.get(kind, f'number {kind}')
            for kind in (each.number(2)
                         for each in answer.messages(2, MOST_MEMBERS))]


def full_members(answer: Message) -> list[int]:
    """The members that have no room, from an answer about alarms."""
    return [each.number(1) for each in answer.messages(2, MOST_MEMBERS)
            if each.number(2) == _NOSPACE]
