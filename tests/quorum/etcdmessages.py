"""The messages of etcd that our log uses, as dicts, by their schema.

The product knows them as numbers of fields; here they are written down a
second time, as etcd's .proto files have them, for the members that tests make
up.
"""

import struct

PREFIX = struct.Struct('>BI')

# A schema: the name of each field, with its number and its kind: a number
# (int), bytes, text (str), or another schema; in a list, if there may be many.

HEADER = {'cluster_id': (1, int), 'member_id': (2, int), 'revision': (3, int),
          'raft_term': (4, int)}
PAIR = {'key': (1, bytes), 'create_revision': (2, int), 'version': (4, int),
        'value': (5, bytes)}
RANGE = {'key': (1, bytes), 'range_end': (2, bytes), 'limit': (3, int),
         'keys_only': (8, int)}
RANGE_ANSWER = {'header': (1, HEADER), 'kvs': (2, [PAIR]), 'more': (3, int),
                'count': (4, int)}
PUT = {'key': (1, bytes), 'value': (2, bytes)}
PUT_ANSWER = {'header': (1, HEADER)}
DELETE = {'key': (1, bytes), 'range_end': (2, bytes)}
DELETE_ANSWER = {'header': (1, HEADER), 'deleted': (2, int)}
COMPARE = {'result': (1, int), 'target': (2, int), 'key': (3, bytes),
           'create_revision': (5, int), 'value': (7, bytes),
           'range_end': (64, bytes)}
OPERATION = {'range': (1, RANGE), 'put': (2, PUT), 'delete_range': (3, DELETE)}
RESPONSE = {'range': (1, RANGE_ANSWER), 'put': (2, PUT_ANSWER),
            'delete_range': (3, DELETE_ANSWER)}
TXN = {'compare': (1, [COMPARE]), 'success': (2, [OPERATION]),
       'failure': (3, [OPERATION])}
TXN_ANSWER = {'header': (1, HEADER), 'succeeded': (2, int),
              'responses': (3, [RESPONSE])}
EVENT = {'type': (1, int), 'kv': (2, PAIR)}
WATCH = {'create_request': (1, {'key': (1, bytes)})}
WATCH_ANSWER = {'header': (1, HEADER), 'created': (3, int),
                'canceled': (4, int), 'compact_revision': (5, int),
                'events': (11, [EVENT])}
STATUS_ANSWER = {'header': (1, HEADER), 'version': (2, str),
                 'dbSize': (3, int), 'leader': (4, int),
                 'dbSizeInUse': (9, int), 'isLearner': (10, int),
                 'dbSizeQuota': (12, int)}
ALARM = {'memberID': (1, int), 'alarm': (2, int)}
MEMBER = {'ID': (1, int), 'name': (2, str), 'isLearner': (5, int)}

#: Of what is asked and of what is answered, by the path.
CALLS = {
    '/etcdserverpb.KV/Range': (RANGE, RANGE_ANSWER),
    '/etcdserverpb.KV/Txn': (TXN, TXN_ANSWER),
    '/etcdserverpb.KV/DeleteRange': (DELETE, DELETE_ANSWER),
    '/etcdserverpb.KV/Compact': (
        {'revision': (1, int), 'physical': (2, int)}, {'header': (1, HEADER)}),
    '/etcdserverpb.Watch/Watch': (WATCH, WATCH_ANSWER),
    '/etcdserverpb.Auth/Authenticate': (
        {'name': (1, str), 'password': (2, str)},
        {'header': (1, HEADER), 'token': (2, str)}),
    '/etcdserverpb.Maintenance/Status': ({}, STATUS_ANSWER),
    '/etcdserverpb.Maintenance/Alarm': (
        {'action': (1, int), 'memberID': (2, int), 'alarm': (3, int)},
        {'header': (1, HEADER), 'alarms': (2, [ALARM])}),
    '/etcdserverpb.Maintenance/Defragment': ({}, {'header': (1, HEADER)}),
    '/etcdserverpb.Cluster/MemberList': (
        {'linearizable': (1, int)},
        {'header': (1, HEADER), 'members': (2, [MEMBER])}),
}


def varint(number):
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes(found + bytes([number]))


def delimited(number, raw):
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def encoded(schema, message):
    found = b''
    for name, value in message.items():
        number, kind = schema[name]
        for each in value if isinstance(kind, list) else [value]:
            found += _encoded(
                number, kind[0] if isinstance(kind, list) else kind, each)
    return found


def _encoded(number, kind, value):
    if kind is int:
        return varint(number << 3) + varint(value)
    if kind is str:
        value = value.encode()
    elif kind is not bytes:
        value = encoded(kind, value)
    return delimited(number, value)


def decoded(schema, raw):
    names = {number: (name, kind) for name, (number, kind) in schema.items()}
    found, at = {}, 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        value, at = _varint(raw, at)
        name, kind = names[tag >> 3]
        if tag & 7 == 2:
            value, at = raw[at:at + value], at + value
        if isinstance(kind, list):
            found.setdefault(name, []).append(_decoded(kind[0], value))
        else:
            found[name] = _decoded(kind, value)
    return found


def _decoded(kind, value):
    if kind in (int, bytes):
        assert type(value) is kind, (kind, value)
        return value
    return value.decode() if kind is str else decoded(kind, value)


def _varint(raw, at):
    found = shift = 0
    while True:
        byte = raw[at]
        found |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return found, at


def framed(raw):
    """As gRPC has a message."""
    return PREFIX.pack(0, len(raw)) + raw
