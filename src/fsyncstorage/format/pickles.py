"""Pickles, read by an interpreter that can call nothing.

A pickle is a program.  Python's own unpickler imports and calls what the
pickle names, and allocates memory for any length that the pickle announces:
seven bytes suffice to take 1.6 GB.  A file, a record and a message may come
from anybody.  So this is the only interpreter of their pickles.  It knows the
opcodes of the protocols 0 to 3, and makes None, numbers, texts, bytes, tuples,
lists and dictionaries; there is no code here that imports or calls what a
pickle names.  What else becomes of values, a subclass decides, by the methods
under "what values become": by default names, calls and references are refused.

These bounds hold for every pickle:

- a reader of plain data carries out at most `most_steps` opcodes, and makes at
  most `most_containers` tuples, lists and dictionaries.  So these are nested
  no deeper than that, and take no more than a constant amount of memory in
  addition to the bytes of the pickle itself;
- announced bytes must be there before memory is allocated for them;
- the memo keeps what the pickle puts there, under any number; but a container
  that is recalled is refused.  So no container is in two places, or in itself;
- keys are hashed fast, and their hashes cannot be chosen: see `is_good_key`.
"""

import io
import pickletools
import struct
from collections.abc import Callable
from collections.abc import Collection
from typing import Any

HIGHEST_PROTOCOL = 3
# Bytes of the longest text that becomes a str, which may take four times as
# many in memory.
LONGEST_TEXT = 1 << 20
# Bytes of the longest whole number: an id of 64 bits needs 9.
LONGEST_NUMBER = 16
# Bytes of the longest line: the name of a module or a class.
LONGEST_LINE = 1000
# Whole numbers below this have different hashes; larger ones may share a hash.
LARGEST_KEY = 1 << 60
#: Stands for what copyreg knows by a number.
REGISTERED = b'copyreg', b'extension'

_GOOD_KEYS = str, bytes, bool, type(None)
# Values that may be in two places.
_ATOMS = frozenset([str, bytes, bool, type(None), int, float])
#: What `_has_ended` raises where a pickle is no pickle.
ERRORS = KeyError, IndexError, ValueError, struct.error
_TOO_MANY = 'too many tuples, lists and dictionaries'

# How many values these take from the stack; 0: all from a mark on.  Tuples are
# made of them: TUPLE, TUPLE1 to TUPLE3.  Or they are put into what is below:
# APPEND, APPENDS, SETITEM, SETITEMS.
_TAKES = {0x74: 0, 0x85: 1, 0x86: 2, 0x87: 3,
          0x61: 1, 0x65: 0, 0x73: 2, 0x75: 0}
_Names = tuple[bytes, bytes]
_unpack_length = struct.Struct('<I').unpack_from


class Unreadable(ValueError):
    """The pickle is damaged, not what was expected, or larger than allowed."""


def unreadable(error: Exception) -> Unreadable:
    """What is raised in the place of one of ERRORS."""
    match error:
        case KeyError():
            return Unreadable(f'opcode or memo number {error}')
        case IndexError() | struct.error():
            return Unreadable('it ends too early')
        case _:
            return Unreadable(f'{error!s:.200}')


def is_good_key(value: Any) -> bool:
    """May it be hashed?

    A peer could make thousands of floats, large numbers or tuples with the
    same hash, and then a dictionary of them takes minutes.
    """
    kind = value.__class__
    return kind in _GOOD_KEYS or (
        kind is int and -LARGEST_KEY < value < LARGEST_KEY)


class Reader:
    """Reads a pickle of plain data; a subclass may make other values of it."""

    longest_text = LONGEST_TEXT
    longest_number = LONGEST_NUMBER
    #: Opcodes that make one value: NONE, NEWTRUE, NEWFALSE, EMPTY_TUPLE.
    constants: dict[int, object] = {
        0x4e: None, 0x88: True, 0x89: False, 0x29: ()}
    #: Does a text of ASCII become a str?  Else it stays bytes: that is faster.
    decodes = True
    #: What is done with a text that is no UTF-8.
    errors = 'strict'
    #: The opcodes that are not in nearly every pickle; see below.
    rare: dict[int, tuple[Any, Any, bool]]

    def __init__(self, most_steps: int, most_containers: int) -> None:
        self._most_steps = most_steps
        self._most_containers = most_containers

    def load(self, data: bytes) -> Any:
        """The value of a pickle; or Unreadable."""
        self._begin(data)
        try:
            if not self._has_ended(self._most_steps):
                raise Unreadable(f'more than {self._most_steps} opcodes')
            value, = self._stack
            if self.unfinished:
                raise Unreadable('a class in place of a value')
        except ERRORS as error:
            raise unreadable(error) from None
        finally:
            self._begin(b'')    # keep nothing of it until the next one
        return value

    def _begin(self, data: bytes) -> None:
        self._data = data
        self._file = io.BytesIO(data)  # (It has no copy of the data.)
        self._at = 0
        self._containers_left = self._most_containers
        #: How many classes were named and have not become a value yet.
        self.unfinished = 0
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def _has_ended(self, most_steps: int) -> bool:
        """Carry out this many opcodes, at most, up to STOP; or one of ERRORS.

        Opcodes that are in nearly every pickle are carried out here: a call
        for each would cost more than its work.  A length beyond the data leads
        to a position behind the end, where there is no opcode.
        """
        data, file, stack, marks, memo = (
            self._data, self._file, self._stack, self._marks, self._memo)
        constants, decodes, at = self.constants, self.decodes, self._at
        rare = self.rare
        value: Any
        for _ in range(most_steps):
            code = data[at]
            at += 1
            if code == 0x58:    # BINUNICODE
                begin = at + 4
                at = begin + _unpack_length(data, at)[0]
                value = data[begin:at]
                if decodes or not value.isascii():
                    value = self._text(value)
            elif code == 0x71:  # BINPUT
                memo[data[at]] = stack[-1]
                at += 1
                continue
            elif code == 0x43:  # SHORT_BINBYTES
                begin = at + 1
                at = begin + data[at]
                value = data[begin:at]
            elif code == 0x68:  # BINGET
                value = memo[data[at]]
                at += 1
                if value.__class__ not in _ATOMS:
                    value = self.again(value)
            elif code == 0x4b:  # BININT1
                value = data[at]
                at += 1
            elif code == 0x28:  # MARK
                marks.append(len(stack))
                continue
            elif code in constants:
                value = constants[code]
            elif code in _TAKES:
                count = _TAKES[code]
                begin = len(stack) - count if count else marks.pop()
                if begin < 0:
                    raise IndexError
                items = stack[begin:]
                del stack[begin:]
                if code in b'ae':       # APPEND, APPENDS
                    self.extend(items, stack[-1])
                    continue
                if code in b'su':       # SETITEM, SETITEMS
                    self.update(items, stack[-1])
                    continue
                value = self.make_tuple(items)
                self._containers_left -= 1
                if self._containers_left < 0:
                    raise Unreadable(_TOO_MANY)
            elif code in rare:
                read, do, pushes = rare[code]
                value = None
                if read is not None:
                    file.seek(at)
                    value = read(file)
                    at = file.tell()
                value = do(self, value)
                if not pushes:
                    continue
            elif code == 0x51:  # BINPERSID
                value = self.refer(stack.pop())
            elif code == 0x42:  # BINBYTES
                begin = at + 4
                at = begin + _unpack_length(data, at)[0]
                value = data[begin:at]
            elif code == 0x8a:  # LONG1
                begin = at + 1
                at = begin + data[at]
                value = self._whole_number(
                    int.from_bytes(data[begin:at], 'little', signed=True))
            elif code == 0x80:  # PROTO
                if data[at] > HIGHEST_PROTOCOL:
                    raise Unreadable('an unknown protocol')
                at += 1
                continue
            elif code == 0x2e:  # STOP
                self._at = at
                return True
            else:
                raise KeyError(code)
            stack.append(value)
            if data[at] == 0x71:    # BINPUT, as above: nearly always
                memo[data[at + 1]] = value
                at += 2
            elif data[at] == 0x72:  # LONG_BINPUT
                memo[_unpack_length(data, at + 1)[0]] = value
                at += 5
        self._at = at
        return False

    # What values become

    def again(self, value: Any) -> Any:
        """What is recalled from the memo, and is no number and no text."""
        raise Unreadable(f'a {type(value).__name__} that is in two places')

    def python_2_text(self, text: bytes) -> Any:
        return text.decode() if text.isascii() else text

    #: It is called with a list.
    make_tuple: Callable[[list[Any]], Any] = staticmethod(tuple)

    def make_list(self, items: list[Any]) -> Any:
        return self.counted(items)

    def make_dict(self, items: list[Any]) -> Any:
        """`items` are keys and values in turn."""
        made = self.counted({})
        self.update(items, made)
        return made

    def counted(self, container: Any) -> Any:
        """A new container; Unreadable if there are too many of them."""
        self._containers_left -= 1
        if self._containers_left < 0:
            raise Unreadable(_TOO_MANY)
        return container

    def extend(self, items: list[Any], target: Any) -> None:
        if target.__class__ is not list:
            raise Unreadable('something is appended to what is no list')
        target += items

    def update(self, items: list[Any], target: Any) -> None:
        if target.__class__ is not dict or len(items) % 2:
            raise Unreadable('items are set in what is no dictionary')
        for key in items[::2]:
            if not is_good_key(key):
                raise Unreadable(f'a {type(key).__name__} as a key')
        target.update(zip(items[::2], items[1::2]))

    def name(self, module: bytes, name: bytes) -> Any:
        """A class or a function."""
        raise Unreadable(f'the name {module[:100]!r}, {name[:100]!r}')

    def call(self, function: Any, arguments: Any) -> Any:
        raise Unreadable('a call')

    def new(self, kind: Any, arguments: Any, /) -> Any:
        """An object of this class."""
        raise Unreadable('an object')

    def build(self, made: Any, state: Any, /) -> Any:
        """The object, when it has got its state."""
        raise Unreadable('the state of an object')

    def refer(self, to: Any) -> Any:
        """A persistent reference."""
        raise Unreadable('a reference')

    # The stack and the memo

    def _from_mark(self) -> list[Any]:
        start = self._marks.pop()
        items = self._stack[start:]
        del self._stack[start:]
        return items

    def _last(self, count: int) -> list[Any]:
        if len(self._stack) < count:
            raise IndexError
        items = self._stack[-count:]
        del self._stack[-count:]
        return items

    def _pop(self, _: None) -> None:
        if self._marks and self._marks[-1] == len(self._stack):
            self._marks.pop()
        else:
            self._stack.pop()

    def _remember(self, number: int) -> None:
        self._memo[number] = self._stack[-1]

    def _recalled(self, value: Any) -> Any:
        return value if value.__class__ in _ATOMS else self.again(value)

    def _text(self, text: bytes) -> str:
        if len(text) > self.longest_text:
            raise Unreadable(f'a text of {len(text)} bytes')
        return text.decode('utf-8', self.errors)

    def _whole_number(self, number: int) -> int:
        if number.bit_length() > 8 * self.longest_number:
            raise Unreadable(f'a whole number of {number.bit_length()} bits')
        return number

    def _inst(self, names: _Names) -> Any:
        arguments = self._from_mark()
        return self.call(self.name(*names), arguments)

    def _obj(self, _: None) -> Any:
        function, *arguments = self._from_mark()
        return self.call(function, arguments)


def _two_lines(file: io.BytesIO) -> _Names:
    lines = file.readline(LONGEST_LINE), file.readline(LONGEST_LINE)
    if not all(line.endswith(b'\n') for line in lines):
        raise Unreadable('a name that is cut off, or too long')
    return lines[0][:-1], lines[1][:-1]


# The rarer opcodes, by the names that pickletools has for them.

#: These push what they make; the second argument is that of the opcode.
_MAKE: dict[str, Callable[[Reader, Any], Any]] = {
    **dict.fromkeys(
        ('BININT', 'BININT2', 'FLOAT', 'BINFLOAT', 'UNICODE', 'STRING'),
        lambda self, value: value),
    **dict.fromkeys(('INT', 'LONG', 'LONG4'), Reader._whole_number),
    **dict.fromkeys(('SHORT_BINSTRING', 'BINSTRING'),
                    lambda self, text: self.python_2_text(text)),
    **dict.fromkeys(('LONG_BINGET', 'GET'),
                    lambda self, number: self._recalled(self._memo[number])),
    'DUP': lambda self, _: self._recalled(self._stack[-1]),
    'EMPTY_LIST': lambda self, _: self.make_list([]),
    'LIST': lambda self, _: self.make_list(self._from_mark()),
    'EMPTY_DICT': lambda self, _: self.make_dict([]),
    'DICT': lambda self, _: self.make_dict(self._from_mark()),
    'GLOBAL': lambda self, names: self.name(*names),
    **dict.fromkeys(('EXT1', 'EXT2', 'EXT4'),
                    lambda self, _: self.name(*REGISTERED)),
    'REDUCE': lambda self, _: self.call(*self._last(2)),
    'NEWOBJ': lambda self, _: self.new(*self._last(2)),
    'BUILD': lambda self, _: self.build(*self._last(2)),
    'INST': Reader._inst,
    'OBJ': Reader._obj,
    'PERSID': lambda self, to: self.refer(to),
}
#: These push nothing.
_CHANGE: dict[str, Callable[[Reader, Any], object]] = {
    'POP': Reader._pop,
    'POP_MARK': lambda self, _: self._from_mark(),
    'LONG_BINPUT': Reader._remember,
    'PUT': Reader._remember,
}
#: pickletools makes other values of these arguments.
_READ_OTHERWISE = {
    'GLOBAL': _two_lines, 'INST': _two_lines,
    'SHORT_BINSTRING': pickletools.read_bytes1,
    'BINSTRING': pickletools.read_bytes4}


def _rare(opcode: pickletools.OpcodeInfo) -> tuple[Any, Any, bool]:
    """What reads its argument, what it does, and does it push the result?"""
    name = opcode.name
    read = _READ_OTHERWISE.get(name, opcode.arg and opcode.arg.reader)
    return read, (_MAKE.get(name) or _CHANGE[name]), name in _MAKE


def rare_opcodes(names: Collection[str]) -> dict[int, tuple[Any, Any, bool]]:
    """What a `Reader` needs for these."""
    return {ord(each.code): _rare(each) for each in pickletools.opcodes
            if each.name in names}


Reader.rare = rare_opcodes({*_MAKE, *_CHANGE})
