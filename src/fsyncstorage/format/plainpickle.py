"""Pickles of plain data, read by an interpreter that can call nothing.

A pickle is a program.  Python's own unpickler imports and calls what the
pickle names, and allocates memory for any length that the pickle announces:
seven bytes suffice to take 1.6 GB.  Here, a pickle makes None, numbers, texts,
bytes, tuples, lists and dictionaries, and nothing else; there is no code here
that imports or calls what a pickle names.

These bounds hold for every pickle:

- a pickle has at most `most_steps` opcodes, and makes at most
  `most_containers` tuples, lists and dictionaries.  So these are nested no
  deeper than that, and take no more than a constant amount of memory in
  addition to the bytes of the pickle itself;
- announced bytes must be there before memory is allocated for them;
- the memo keeps what the pickle puts there, under any number, but no
  containers: so no container is in two places, or in itself;
- keys are hashed fast, and their hashes cannot be chosen: see `is_good_key`.

Left to others: which other opcodes a reader knows (a subclass), and what the
values mean.
"""

import struct
from collections.abc import Callable
from typing import Any

_LENGTH = struct.Struct('<I')
_SIGNED = struct.Struct('<i')
_SHORT = struct.Struct('<H')
_FLOAT = struct.Struct('>d')

# Bytes of the longest text, which may take four times as many in memory.
LONGEST_TEXT = 1 << 20
# Bytes of the longest whole number: an id of 64 bits needs 9.
LONGEST_NUMBER = 16
# Whole numbers below this have different hashes; larger ones may share a hash.
LARGEST_KEY = 1 << 60
# Bytes of the longest line, which is a name or a number.
LONGEST_LINE = 1000

_TOO_MANY = 'too many tuples, lists and dictionaries'

_GOOD_KEYS = str, bytes, bool, type(None)

# Opcodes that make one value: NONE, NEWTRUE, NEWFALSE, EMPTY_TUPLE.
_CONSTANTS: dict[int, object] = {
    0x4e: None, 0x88: True, 0x89: False, 0x29: ()}
# TUPLE, whose values begin at a mark, and TUPLE1 to TUPLE3, with how many
# values they have.
_TUPLES = {0x74: 0, 0x85: 1, 0x86: 2, 0x87: 3}


class Unreadable(ValueError):
    """The pickle is damaged, not plain data, or larger than allowed."""


def is_good_key(value: Any) -> bool:
    """May it be hashed?

    A peer could make thousands of floats, large numbers or tuples with the
    same hash, and then a dictionary of them takes minutes.
    """
    kind = value.__class__
    return kind in _GOOD_KEYS or (
        kind is int and -LARGEST_KEY < value < LARGEST_KEY)


def _number(form: struct.Struct) -> Callable[[Any], object]:
    """The opcode of a number in this form."""
    return lambda self: self._stack.append(self._take_number(form))


class Reader:
    """Reads pickles, one after the other."""

    def __init__(self, most_steps: int, most_containers: int) -> None:
        self._most_steps = most_steps
        self._most_containers = most_containers

    def load(self, data: bytes) -> Any:
        """The value of a pickle."""
        self._data = data
        self._position = 0
        self._containers_left = self._most_containers
        #: Values on the stack that stand for something else so far.
        self._unfinished = 0
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, str | bytes] = {}
        try:
            self._run()
            value, = self._stack
        except KeyError as error:
            raise Unreadable(f'opcode or memo number {error}') from None
        except (IndexError, ValueError, struct.error) as error:
            raise Unreadable(str(error)) from None
        finally:
            # Keep nothing of this pickle until the next one.
            del self._data, self._stack, self._memo
        if self._unfinished:
            raise Unreadable('a class in place of a value')
        return value

    def _run(self) -> None:
        """Carry out the opcodes.

        Opcodes that nearly every message has are carried out here: a call for
        each would cost more than its work.  A length beyond the data leads to
        a position behind the end, where there is no opcode.
        """
        data, opcodes, stack = self._data, self.opcodes, self._stack
        at = 0
        for _ in range(self._most_steps):
            opcode = data[at]
            at += 1
            if opcode == 0x43:  # SHORT_BINBYTES
                end = at + 1 + data[at]
                stack.append(data[at + 1:end])
                at = end
            elif opcode == 0x4b:  # BININT1
                stack.append(data[at])
                at += 1
            elif opcode == 0x58:  # BINUNICODE
                length, = _LENGTH.unpack_from(data, at)
                if length > LONGEST_TEXT:
                    raise Unreadable(f'a text of {length} bytes')
                end = at + 4 + length
                stack.append(data[at + 4:end].decode())
                at = end
            elif opcode == 0x42:  # BINBYTES
                length, = _LENGTH.unpack_from(data, at)
                end = at + 4 + length
                stack.append(data[at + 4:end])
                at = end
            elif opcode == 0x8a:  # LONG1
                if data[at] > LONGEST_NUMBER:
                    raise Unreadable(f'a whole number of {data[at]} bytes')
                end = at + 1 + data[at]
                stack.append(
                    int.from_bytes(data[at + 1:end], 'little', signed=True))
                at = end
            elif opcode in _CONSTANTS:
                stack.append(_CONSTANTS[opcode])
            elif opcode == 0x28:  # MARK
                self._marks.append(len(stack))
            elif opcode in _TUPLES:
                length = _TUPLES[opcode]
                start = len(stack) - length if length else self._marks.pop()
                if start < 0:
                    raise Unreadable('a tuple of more than there is')
                stack[start:] = [tuple(stack[start:])]
                self._containers_left -= 1
                if self._containers_left < 0:
                    raise Unreadable(_TOO_MANY)
            elif opcode == 0x80:  # PROTO
                at += 1
            elif opcode == 0x2e:  # STOP
                return
            else:
                self._position = at
                opcodes[opcode](self)
                at = self._position
        raise Unreadable(f'more than {self._most_steps} opcodes')

    # The bytes of the pickle

    def _take(self, length: int) -> bytes:
        start = self._position
        self._position = end = start + length
        if end > len(self._data):
            raise Unreadable('it ends too early')
        return self._data[start:end]

    def _take_number(self, form: struct.Struct) -> Any:
        return form.unpack(self._take(form.size))[0]

    def _take_length(self) -> Any:
        return self._take_number(_LENGTH)

    def _take_byte(self) -> int:
        self._position += 1
        return self._data[self._position - 1]

    def _take_line(self) -> bytes:
        end = self._data.index(
            b'\n', self._position, self._position + LONGEST_LINE)
        line = self._data[self._position:end]
        self._position = end + 1
        return line

    def _from_mark(self) -> list[Any]:
        start = self._marks.pop()
        items = self._stack[start:]
        del self._stack[start:]
        return items

    def _push_container(self, container: object) -> None:
        self._containers_left -= 1
        if self._containers_left < 0:
            raise Unreadable(_TOO_MANY)
        self._stack.append(container)

    # What the opcodes do

    def _extend(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if target.__class__ is not list:
            raise Unreadable('something is appended to what is no list')
        target += items

    def _update(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if target.__class__ is not dict or len(items) % 2:
            raise Unreadable('items are set in what is no dictionary')
        for key in items[::2]:
            if not is_good_key(key):
                raise Unreadable(f'a {type(key).__name__} as a key')
        target.update(zip(items[::2], items[1::2]))

    def _setitem(self) -> None:
        value = self._stack.pop()
        self._update([self._stack.pop(), value])

    def _put(self, number: int) -> None:
        value = self._stack[-1]
        if value.__class__ in (str, bytes):
            self._memo[number] = value

    def _recall(self, number: int) -> None:
        self._stack.append(self._memo[number])

    #: The opcodes, in addition to those in `_run`; with the names that
    #: pickletools has for them.
    opcodes: dict[int, Callable[[Any], object]] = {
        0x4a: _number(_SIGNED),                                   # BININT
        0x4d: _number(_SHORT),                                    # BININT2
        0x71: lambda self: self._put(self._take_byte()),          # BINPUT
        0x72: lambda self: self._put(self._take_length()),        # LONG_BINPUT
        0x68: lambda self: self._recall(self._take_byte()),       # BINGET
        0x6a: lambda self: self._recall(self._take_length()),     # LONG_BINGET
        0x47: _number(_FLOAT),                                    # BINFLOAT
        0x5d: lambda self: self._push_container([]),              # EMPTY_LIST
        0x61: lambda self: self._extend([self._stack.pop()]),     # APPEND
        0x65: lambda self: self._extend(self._from_mark()),       # APPENDS
        0x7d: lambda self: self._push_container({}),              # EMPTY_DICT
        0x73: _setitem,
        0x75: lambda self: self._update(self._from_mark()),       # SETITEMS
    }
