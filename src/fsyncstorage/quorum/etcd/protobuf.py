"""Protobuf messages: numbered fields, as bytes.

What is sent is collected as pieces that are joined once, because a record is
large.  What is received may be anything: it is parsed one level at a time,
with a limit for the number of fields, and the type of each field is checked
when it is read.  A field that is zero, false or empty is absent.
"""

import typing

from .trouble import Lost

Pieces = tuple[bytes, ...]

# The type of a value, in the last bits of a tag.
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5

#: The most fields of a message, besides those that an answer has many of.
FIELDS = 64

_BITS = 64


# What is sent

def field(number: int, *pieces: bytes) -> Pieces:
    """Bytes, or a message."""
    return (_varint(number << 3 | _BYTES) + _varint(sum(map(len, pieces))),
            *pieces)


def integer(number: int, value: int) -> Pieces:
    return _varint(number << 3 | _VARINT) + _varint(value),


_SHORT = [bytes([value]) for value in range(128)]


def _varint(value: int) -> bytes:
    if value < 128:
        return _SHORT[value]
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


# What is received

class Message:

    def __init__(self, raw: bytes | memoryview, most: int = FIELDS) -> None:
        """Parse a message with at most `most` fields."""
        self._fields: dict[int, list[int | memoryview]] = {}
        raw, at = memoryview(raw), 0
        while at < len(raw):
            most -= 1
            if most < 0:
                raise Lost('an answer with too many fields')
            tag, at = _read_varint(raw, at)
            value, at = _read_value(raw, at, tag & 7)
            self._fields.setdefault(tag >> 3, []).append(value)

    def number(self, number: int) -> int:
        return self._one(number, int, 0)

    def truth(self, number: int) -> bool:
        found = self.number(number)
        if found > 1:
            raise Lost(f'an answer in which field {number} is no truth value')
        return bool(found)

    def data(self, number: int) -> bytes:
        return bytes(self._one(number, memoryview, memoryview(b'')))

    def text(self, number: int) -> str:
        try:
            return self.data(number).decode()
        except UnicodeDecodeError:
            raise Lost(f'an answer in which field {number} is no text'
                       ) from None

    def message(self, number: int) -> 'Message':
        """The message in this field; an empty one if there is none."""
        return Message(self._one(number, memoryview, memoryview(b'')))

    def messages(self, number: int, most: int) -> list['Message']:
        found = self._all(number, memoryview)
        if len(found) > most:
            raise Lost(f'an answer with {len(found)} times field {number},'
                       f' not {most}')
        return list(map(Message, found))

    def has(self, number: int) -> bool:
        return number in self._fields

    def _one(self, number: int, kind: type['T'], nothing: 'T') -> 'T':
        found = self._all(number, kind)
        if len(found) > 1:
            raise Lost(f'an answer with field {number} twice')
        return found[0] if found else nothing

    def _all(self, number: int, kind: type['T']) -> list['T']:
        found = []
        for value in self._fields.get(number, ()):
            if not isinstance(value, kind):
                raise Lost(f'an answer in which field {number} is of another'
                           ' type')
            found.append(value)
        return found


T = typing.TypeVar('T', int, memoryview)


def _read_varint(raw: memoryview, at: int) -> tuple[int, int]:
    """The number, and the position after it."""
    found = 0
    for shift in range(0, _BITS, 7):
        if at == len(raw):
            break
        byte = raw[at]
        at += 1
        found |= (byte & 127) << shift
        if byte < 128:
            if found >> _BITS:
                break
            return found, at
    raise Lost('an answer with a number that is cut off, or too large')


def _read_value(raw: memoryview, at: int, kind: int
                ) -> tuple[int | memoryview, int]:
    if kind == _VARINT:
        return _read_varint(raw, at)
    if kind == _BYTES:
        length, at = _read_varint(raw, at)
    elif kind == _EIGHT:
        length = 8
    elif kind == _FOUR:
        length = 4
    else:
        raise Lost('an answer that is no message of protobuf')
    if length > len(raw) - at:
        raise Lost('an answer in which a field is cut off')
    return raw[at:at + length], at + length
