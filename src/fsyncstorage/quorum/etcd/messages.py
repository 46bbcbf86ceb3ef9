"""The questions to etcd and its answers, as JSON.

A question is put together from base64 as bytes: `json.dumps` would take longer
for a large record than etcd.  An answer may be anything: each field is checked
for its type and its bounds when it is taken out.  etcd leaves out what is
zero, false or empty, and writes numbers of 64 bits as text.
"""

import base64
import binascii
import json
import typing
from collections.abc import Iterator
from collections.abc import Sequence

from .keys import Span
from .trouble import Lost

#: Bytes of an answer that has a few small values.
SMALL = 1 << 16

_MOST_DIGITS = 20


class Question(typing.NamedTuple):
    path: str
    text: bytes
    #: Bytes of its answer.
    most: int = SMALL


class Pair(typing.NamedTuple):
    key: bytes
    value: bytes


# Questions, as pieces that are joined once: a record is large.

Pieces = tuple[bytes, ...]


def _text(raw: bytes) -> bytes:
    return binascii.b2a_base64(raw, newline=False)


def _keys(keys: bytes | Span) -> bytes:
    if isinstance(keys, Span):
        return b'"key":"%s","range_end":"%s"' % (
            _text(keys.start), _text(keys.end))
    return b'"key":"%s"' % _text(keys)


def _range(keys: bytes | Span, limit: int = 0, only: bool = False) -> bytes:
    return b'{%s,"limit":"%d","keys_only":%s}' % (
        _keys(keys), limit, b'true' if only else b'false')


def shown(keys: bytes | Span, limit: int = 0, only: bool = False) -> Pieces:
    """Some pairs; or, if `only` is true, their keys."""
    return b'{"request_range":', _range(keys, limit, only), b'}'


def put(key: bytes, value: bytes) -> Pieces:
    return (b'{"request_put":{', _keys(key), b',"value":"', _text(value),
            b'"}}')


def removed(keys: bytes | Span) -> Pieces:
    return b'{"request_delete_range":{', _keys(keys), b'}}'


def has(key: bytes, value: bytes) -> Pieces:
    """A condition: the key has this value."""
    return (b'{"target":"VALUE","result":"EQUAL",', _keys(key),
            b',"value":"', _text(value), b'"}')


def is_empty(keys: bytes | Span) -> Pieces:
    """A condition: no such key is there."""
    return (b'{"target":"CREATE","result":"EQUAL",', _keys(keys),
            b',"create_revision":"0"}')


def pairs_of(keys: bytes | Span, limit: int, most: int = SMALL,
             only: bool = False) -> Question:
    return Question('/v3/kv/range', _range(keys, limit, only), most)


def removal(keys: bytes | Span) -> Question:
    """etcd takes it also when it is full."""
    return Question('/v3/kv/deleterange', b'{%s}' % _keys(keys))


def transaction(then: Sequence[Pieces], *, where: Sequence[Pieces] = (),
                otherwise: Sequence[Pieces] = (),
                most: int = SMALL) -> Question:
    return Question('/v3/kv/txn', b''.join([
        b'{"compare":[', *_listed(where), b'],"success":[', *_listed(then),
        b'],"failure":[', *_listed(otherwise), b']}']), most)


def _listed(parts: Sequence[Pieces]) -> Iterator[bytes]:
    for number, pieces in enumerate(parts):
        if number:
            yield b','
        yield from pieces


def plain(path: str, **fields: str) -> Question:
    """One that has no bytes in it."""
    return Question(path, json.dumps(fields).encode())


def watching(key: bytes) -> Question:
    return Question('/v3/watch', b'{"create_request":{%s}}' % _keys(key))


# Answers

Message = dict[str, typing.Any]

T = typing.TypeVar('T')


def _integer(digits: str) -> int:
    """Python takes a time that is quadratic for a long one."""
    if len(digits) > _MOST_DIGITS:
        raise ValueError('a number of too many digits')
    return int(digits)


def _no_float(text: str) -> typing.NoReturn:
    raise ValueError('a number that is none of etcd')


_DECODER = json.JSONDecoder(
    parse_int=_integer, parse_float=_no_float, parse_constant=_no_float)


def parse(raw: bytes) -> Message:
    try:
        message = _DECODER.decode(raw.decode())
    except (ValueError, RecursionError) as error:
        raise Lost(f'an answer that is no JSON: {error}') from None
    return _of_type(message, dict, 'it')


def _of_type(value: object, kind: type[T], name: str) -> T:
    if type(value) is not kind:
        raise Lost(f'an answer in which {name} is no {kind.__name__}')
    return value


def message(within: Message, name: str) -> Message:
    return _of_type(within.get(name, {}), dict, name)


def messages(within: Message, name: str, most: int) -> list[Message]:
    found = _of_type(within.get(name, []), list, name)
    if len(found) > most:
        raise Lost(f'an answer with {len(found)} {name}, not {most}')
    for each in found:
        _of_type(each, dict, name)
    return found


def text(within: Message, name: str) -> str:
    return _of_type(within.get(name, ''), str, name)


def truth(within: Message, name: str) -> bool:
    return _of_type(within.get(name, False), bool, name)


def number(within: Message, name: str) -> int:
    found = within.get(name, 0)
    if type(found) is str and found.isascii() and found.isdigit():
        found = int(found) if len(found) <= _MOST_DIGITS else None
    if type(found) is not int or not 0 <= found < 1 << 64:
        raise Lost(f'an answer in which {name} is no number')
    return found


def data(within: Message, name: str) -> bytes:
    try:
        return base64.b64decode(text(within, name), validate=True)
    except ValueError:
        raise Lost(f'an answer in which {name} is no base64') from None


def pairs(within: Message, most: int) -> list[Pair]:
    return [Pair(data(each, 'key'), data(each, 'value'))
            for each in messages(within, 'kvs', most)]


def one(within: Message) -> bytes | None:
    """The value of the only key that was asked for, or None."""
    found = pairs(within, 1)
    return found[0].value if found else None


def parts(answer: Message, *kinds: str) -> list[Message]:
    """What each operation of a transaction has answered."""
    found = messages(answer, 'responses', len(kinds))
    if len(found) < len(kinds):
        raise Lost('an answer with too few responses')
    for each, kind in zip(found, kinds):
        if f'response_{kind}' not in each:
            raise Lost(f'an answer without response_{kind}')
    return [message(each, f'response_{kind}')
            for each, kind in zip(found, kinds)]


def revision(answer: Message) -> int:
    return number(message(answer, 'header'), 'revision')
