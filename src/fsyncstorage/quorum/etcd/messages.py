"""The questions to etcd and its answers, as protobuf messages.

`PROTO` is what we use of rpc.proto and kv.proto of etcd 3.5 and 3.6.  Numbers
of fields do not change from release to release, and what etcd sends besides is
ignored.  The package protobuf makes the classes from it at the import.  (What
protoc generates belongs to one release of protobuf, and has to be made anew
for the next; bytes that we make ourselves would have to be checked, too.)
"""

import re
import typing
from collections.abc import Sequence

from google.protobuf import descriptor_pool
from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError

from .keys import Span
from .trouble import Lost
from .trouble import legible

PROTO = """
message ResponseHeader {
  uint64 cluster_id = 1; uint64 member_id = 2; int64 revision = 3; }
message KeyValue { bytes key = 1; bytes value = 5; }

message RangeRequest {
  bytes key = 1; bytes range_end = 2; int64 limit = 3; bool keys_only = 8; }
message RangeResponse {
  ResponseHeader header = 1; repeated KeyValue kvs = 2; }
message PutRequest { bytes key = 1; bytes value = 2; }
message DeleteRangeRequest { bytes key = 1; bytes range_end = 2; }
message DeleteRangeResponse { ResponseHeader header = 1; }

message RequestOp {
  RangeRequest request_range = 1; PutRequest request_put = 2;
  DeleteRangeRequest request_delete_range = 3; }
message ResponseOp { RangeResponse response_range = 1; }
message Compare {
  int32 result = 1; int32 target = 2; bytes key = 3; bytes value = 7;
  bytes range_end = 64; }
message TxnRequest {
  repeated Compare compare = 1; repeated RequestOp success = 2;
  repeated RequestOp failure = 3; }
message TxnResponse {
  ResponseHeader header = 1; bool succeeded = 2;
  repeated ResponseOp responses = 3; }

message CompactRequest { int64 revision = 1; bool physical = 2; }
message CompactResponse { ResponseHeader header = 1; }

message AuthenticateRequest { string name = 1; string password = 2; }
message AuthenticateResponse { ResponseHeader header = 1; string token = 2; }

message StatusRequest {}
message StatusResponse {
  ResponseHeader header = 1; string version = 2; int64 dbSize = 3;
  uint64 leader = 4; uint64 raftAppliedIndex = 7; int64 dbSizeInUse = 9;
  bool isLearner = 10;
  int64 dbSizeQuota = 12; }
message AlarmMember { uint64 memberID = 1; int32 alarm = 2; }
message AlarmRequest {}
message AlarmResponse {
  ResponseHeader header = 1; repeated AlarmMember alarms = 2; }

message Member { bool isLearner = 5; }
message MemberListRequest { bool linearizable = 1; }
message MemberListResponse {
  ResponseHeader header = 1; repeated Member members = 2; }
"""

#: An instance of one of the classes; and what one is made of.
Message = typing.Any
Fields = dict[str, typing.Any]


def _made(text: str) -> dict[str, type[Message]]:
    """The classes by their names; others may have the same in their pool."""
    file = FileDescriptorProto(
        name='etcd.proto', package='etcd', syntax='proto3')
    for name, body in re.findall(r'message (\w+) {(.*?)}', text, re.DOTALL):
        message = file.message_type.add(name=name)
        for many, kind, field, number in re.findall(
                r'(repeated )?(\w+) (\w+) = (\d+);', body):
            made = message.field.add(
                name=field, number=int(number),
                label=Field.LABEL_REPEATED if many else Field.LABEL_OPTIONAL)
            if kind[0].isupper():
                made.type_name = f'.etcd.{kind}'
            else:
                made.type = Field.Type.Value(f'TYPE_{kind.upper()}')
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    found = message_factory.GetMessageClassesForFiles([file.name], pool)
    return {name.removeprefix('etcd.'): made for name, made in found.items()}


CLASSES = _made(PROTO)

# How a comparison compares, and what.
_GREATER, _CREATE, _VALUE = 1, 1, 3

# A kind of alarm.
_NOSPACE = 1


class Question(typing.NamedTuple):
    path: str
    body: bytes

    def parse(self, raw: bytes) -> Message:
        """The answer that these bytes are."""
        try:
            return _class(self.path, 'Response').FromString(raw)
        except DecodeError:
            raise Lost('an answer that is no message of etcd') from None


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
    #: How many entries of etcd's own log it has applied.
    applied: int = 0

    @property
    def leads(self) -> bool:
        return self.id == self.leader


# Parts of questions, as the fields of their messages

def _keys(keys: bytes | Span) -> Fields:
    if isinstance(keys, Span):
        return {'key': keys.start, 'range_end': keys.end}
    return {'key': keys}


def _range(keys: bytes | Span, limit: int, only: bool) -> Fields:
    return {**_keys(keys), 'limit': limit, 'keys_only': only}


def shown(keys: bytes | Span, limit: int = 0, only: bool = False) -> Fields:
    """Some pairs; or, if `only` is true, their keys."""
    return {'request_range': _range(keys, limit, only)}


def put(key: bytes, value: bytes) -> Fields:
    return {'request_put': {'key': key, 'value': value}}


def removed(keys: bytes | Span) -> Fields:
    return {'request_delete_range': _keys(keys)}


def has(key: bytes, value: bytes) -> Fields:
    """A condition: the key has this value."""
    return {'target': _VALUE, 'key': key, 'value': value}


def is_empty(keys: bytes | Span) -> Fields:
    """A condition: no such key is there (its revision is 0)."""
    return {'target': _CREATE, **_keys(keys)}


def is_there(key: bytes) -> Fields:
    """A condition: there is such a key (its revision is greater than 0)."""
    return {'result': _GREATER, 'target': _CREATE, 'key': key}


# Questions

def _question(call: str, **fields: typing.Any) -> Question:
    request = _class(call, 'Request')(**fields)
    return Question(f'/etcdserverpb.{call}', request.SerializeToString())


def _class(path: str, kind: str) -> type[Message]:
    return CLASSES[path.rpartition('/')[2] + kind]


def pairs_of(keys: bytes | Span, limit: int, only: bool = False) -> Question:
    return _question('KV/Range', **_range(keys, limit, only))


def removal(keys: bytes | Span) -> Question:
    """A removal, which etcd takes even when it is full."""
    return _question('KV/DeleteRange', **_keys(keys))


def transaction(then: Sequence[Fields], *, where: Sequence[Fields] = (),
                otherwise: Sequence[Fields] = ()) -> Question:
    return _question(
        'KV/Txn', compare=where, success=then, failure=otherwise)


def compaction(revision: int) -> Question:
    """(etcd answers it when the pages are free.)"""
    return _question('KV/Compact', revision=revision, physical=True)


def authentication(user: str, password: str) -> Question:
    return _question('Auth/Authenticate', name=user, password=password)


STATUS = _question('Maintenance/Status')
ALARMS = _question('Maintenance/Alarm')
#: A majority has confirmed the answer.
MEMBERS = _question('Cluster/MemberList', linearizable=True)


# Answers

def one(answer: Message) -> bytes | None:
    """The value of the only key that was asked for, or None."""
    return bytes(answer.kvs[0].value) if answer.kvs else None


def has_succeeded(answer: Message) -> bool:
    """Was the condition of a transaction true?"""
    return bool(answer.succeeded)


def ranges(answer: Message, count: int) -> list[Message]:
    """The answers of a transaction to `count` times `shown`."""
    found = [each.response_range for each in answer.responses
             if each.HasField('response_range')]
    if len(found) != count:
        raise Lost('an answer without a response_range')
    return found


def revision(answer: Message) -> int:
    """The revision of what etcd did, or read: each answer has one."""
    found: int = answer.header.revision
    if not found:
        raise Lost('an answer without a revision')
    return found


def status(answer: Message) -> Status:
    header = answer.header
    return Status(
        id=header.member_id, cluster=header.cluster_id,
        version=legible(answer.version), leader=answer.leader,
        learner=answer.isLearner, size=answer.dbSize,
        in_use=answer.dbSizeInUse, quota=answer.dbSizeQuota,
        applied=answer.raftAppliedIndex)


def voting(answer: Message) -> int:
    """How many members vote."""
    return sum(not each.isLearner for each in answer.members)


def alarms(answer: Message) -> list[str]:
    return [{_NOSPACE: 'NOSPACE', 2: 'CORRUPT'}.get(
        each.alarm, f'number {each.alarm}') for each in answer.alarms]
