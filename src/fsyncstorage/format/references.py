"""What a record refers to and names, read from its pickles without unpickling.

A record has two pickles, one for the class and one for the state.  ZODB's
function for this unpickles them, which takes 4 GB for a memo index of five
bytes, and ninety bytes for a byte that stands for an empty dictionary.  A file
that is checked may come from anybody, and so may a record that is stored.
Here the opcodes are read one by one, with a stack that has a place for each
value; the place holds the oid, if the value may become a reference.

Promises: no class is looked up, nothing recurses, no length beyond the record
is relied on.  The time is proportional to the length of the record.  Memory is
at most about 25 times that length, or, if the number of values is limited, 200
bytes for each value.

A record that ZODB's unpickler (protocol 3) can read is read here, with the
same result.  ZODB refuses more records, since it makes all values and not only
references.
"""

import re
import struct
import typing
from codecs import escape_decode

from .wrapped import TooMuch

OID = 8

_T = typing.TypeVar('_T')
# What a place of the stack holds: an oid, or None; or this list.
_Value = bytes | list[bytes] | None
_LIST: list[bytes] = []     # a weak reference, or one into another database
_NUMBER = re.compile(rb'[-+]?[0-9]*L?')
HIGHEST_PROTOCOL = 3
# Values are counted again after this many opcodes.
STEPS = 100_000
# The pickle of a class alone, as ZODB nearly always writes it; and the number
# under which the class is remembered.
_CLASS_ALONE = re.compile(
    rb'(?:\x80[\0-\3])?c[^\n]*\n[^\n]*\n(?:q(.))?\.', re.DOTALL)
#: Stands for a class that copyreg knows by a number.
REGISTERED = b'copyreg', b'extension'

# Opcodes that push a value that is no reference, and the bytes of their
# argument.
_OPAQUE = {
    b'N': 0, b'\x88': 0, b'\x89': 0, b'}': 0, b')': 0,  # None, bool, {}, ()
    b'K': 1, b'M': 2, b'J': 4, b'G': 8,                 # int, float
}
# Opcodes followed by a length and as many bytes, and the bytes of that length.
_COUNTED = {
    b'C': 1, b'B': 4,           # bytes
    b'X': 4, b'U': 1, b'T': 4,  # text, old text
    b'\x8a': 1, b'\x8b': 4,     # long int
}
# Opcodes that take values: how many; and do they push one (no reference)?
_TAKES = {
    b'\x81': (2, True),                     # new object
    b'\x85': (1, True), b'\x87': (3, True),  # tuples of 1 and 3
    b's': (2, False), b'a': (1, False), b'b': (1, False),   # change one below
}


def _table(numbers: dict[bytes, _T], default: None) -> list[_T | None]:
    return [numbers.get(bytes([code]), default) for code in range(256)]


_opaque = _table(_OPAQUE, None)
_counted = _table(_COUNTED, None)
_takes = _table(_TAKES, None)
_length = struct.Struct('<I').unpack_from
_LONGS = b'\x8a\x8b'


def references(record: bytes, most_values: int | None = None) -> list[bytes]:
    """The oids that a record refers to, in their order in the record.

    Weak references and those into other databases are not among them.
    ValueError if these are not two pickles.
    """
    return Pickles(record, _CLASS_ALONE.match(record), most_values).oids


def check_text(code: int, data: bytes) -> None:
    """ValueError, if the opcode says that this is text, and it is not."""
    if code in b'UT' and not data.isascii():
        raise ValueError('text of Python 2 that is not ASCII')
    if code == 0x58:
        data.decode('utf-8', 'surrogatepass')


class Pickles:
    """Reads the two pickles of a record; ValueError if they are no pickles.

    If the first is a class alone, `skipped` may be its match; then it is not
    read.
    TooMuch if more than `most_values` are kept at a time: this is checked
    after each `STEPS` opcodes.
    """

    stack: list[_Value]
    marks: list[int]
    #: Is anything called except `__new__` and `__setstate__`?
    calls = False

    def __init__(self, record: bytes,
                 skipped: re.Match[bytes] | None = None,
                 most_values: int | None = None) -> None:
        self.data = record
        self.most_values = most_values
        self.at = skipped.end() if skipped else 0
        self.memo: dict[int, _Value] = {}
        if skipped and skipped[1]:
            self.memo[skipped[1][0]] = None
        #: The oids, as `references` returns them.
        self.oids: list[bytes] = []
        #: (module, name) of classes and functions.
        self.names: list[tuple[bytes, bytes]] = []
        try:
            if not skipped:
                self.read_pickle()
            self.read_pickle()
        except (IndexError, KeyError, struct.error):
            raise ValueError('it ends too early, or is no pickle') from None

    def read_pickle(self) -> None:
        """Read a pickle up to its STOP.  IndexError, KeyError, ValueError or
        struct.error if there is none."""
        self.stack, self.marks = [], []
        while not self.is_read_to_its_end():
            kept = (len(self.stack) + len(self.marks) + len(self.memo)
                    + len(self.oids) + len(self.names))
            if self.most_values is not None and kept > self.most_values:
                raise TooMuch(
                    f'it has more than {self.most_values:,} values')

    def is_read_to_its_end(self) -> bool:
        """Read on, at most `STEPS` values and opcodes.  Has the pickle ended?

        The frequent opcodes are read here, each pushed value together with
        the following opcode that remembers it.
        """
        data, memo = self.data, self.memo
        stack, marks = self.stack, self.marks
        at = self.at
        value: _Value
        for _ in range(STEPS):
            code = data[at]
            at += 1
            if (size := _counted[code]) is not None:
                begin = at + size
                at = begin + (data[at] if size == 1 else
                              _length(data, at)[0])
                value = data[begin:at]
                if not value.isascii():
                    check_text(code, value)
                if len(value) != OID or code in _LONGS:
                    value = None
            elif (size := _opaque[code]) is not None:
                value = None
                at += size
            elif code == 0x28:      # (: mark the beginning of a row of values
                marks.append(len(stack))
                continue
            elif code == 0x68:      # h: recall, by a short number
                stack.append(memo[data[at]])
                at += 1
                continue
            elif code == 0x71:      # q: remember, under a short number
                memo[data[at]] = stack[-1]
                at += 1
                continue
            elif code == 0x6a:      # j: recall
                stack.append(memo[_length(data, at)[0]])
                at += 4
                continue
            elif code == 0x72:      # r: remember
                memo[_length(data, at)[0]] = stack[-1]
                at += 4
                continue
            elif code == 0x86:      # a tuple of two
                stack.pop()
                value = stack.pop()
                if value.__class__ is not bytes:
                    value = None
            elif code == 0x51:      # Q: refer to the object of this value
                self.refer(stack.pop())
                value = None
            elif code == 0x63:      # c: a class or a function
                self.at = at
                self.names.append((self.line(), self.line()))
                at = self.at
                value = None
            elif code == 0x5d:      # ]
                value = _LIST
            elif code in b'ue':     # put the row into what is below
                del stack[marks.pop():]
                continue
            elif (takes := _takes[code]) is not None:
                self.take(*takes)
                continue
            elif code == 0x2e:      # .: it ends here
                stack.pop()
                self.at = at
                return True
            else:
                self.at = at
                self.read_rare(code)
                at = self.at
                continue
            stack.append(value)
            if data[at] == 0x71:    # q or r, as above: nearly always
                memo[data[at + 1]] = value
                at += 2
            elif data[at] == 0x72:
                memo[_length(data, at + 1)[0]] = value
                at += 5
        self.at = at
        return False

    def first_of_two(self, value: _Value) -> bytes | None:
        return value if value.__class__ is bytes else None

    def take(self, number: int, pushes: bool) -> None:
        if len(self.stack) < number + (not pushes):
            raise IndexError
        del self.stack[-number:]
        if pushes:
            self.stack.append(None)

    def refer(self, value: _Value) -> None:
        if value.__class__ is bytes:
            self.oids.append(value)
        elif value is not _LIST:
            raise ValueError('a reference to what is no oid')

    def read_rare(self, code: int) -> None:
        stack = self.stack
        match bytes([code]):
            case b'R':
                self.calls = True
                self.take(2, True)
            case b'\x80':
                if self.number(1) > HIGHEST_PROTOCOL:
                    raise ValueError('an unknown protocol')
            case b'l':
                self.end_row(_LIST)
            case b'd':
                self.end_row(None)
            case b'o':
                self.calls = True
                self.end_row(None)
            case b'i':
                self.calls = True
                self.names.append((self.line(), self.line()))
                self.end_row(None)
            case b'\x82' | b'\x83' | b'\x84':
                self.number(1 << code - 0x82)
                self.names.append(REGISTERED)
                stack.append(None)
            case b't':
                row = stack[self.marks[-1]:]
                self.end_row(
                    self.first_of_two(row[0]) if len(row) == 2 else None)
            case b'1':
                del stack[self.marks.pop():]
            case b'0':
                if self.marks and self.marks[-1] == len(stack):
                    self.marks.pop()
                else:
                    stack.pop()
            case b'2':
                stack.append(stack[-1])
            case b'p':
                self.memo[self.line_number()] = stack[-1]
            case b'g':
                stack.append(self.memo[self.line_number()])
            case b'P':
                line = self.line()
                self.refer(line if len(line) == OID else None)
                stack.append(None)
            case _:
                stack.append(self.read_line_value(code))

    def end_row(self, value: _Value) -> None:
        del self.stack[self.marks.pop():]
        self.stack.append(value)

    def read_line_value(self, code: int) -> bytes | None:
        line = self.line()
        match bytes([code]):
            case b'I' | b'L':
                if not _NUMBER.fullmatch(line):
                    raise ValueError('a number that is none')
            case b'F':
                float(line)
            case b'V':
                line.decode('raw-unicode-escape')
            case b'S':
                line = line.strip()
                if line[:1] not in (b'"', b"'") or line[:1] != line[-1:]:
                    raise ValueError('text without quotes')
                text = escape_decode(line[1:-1])[0]
                if not text.isascii():
                    raise ValueError('text of Python 2 that is not ASCII')
                return text if len(text) == OID else None
            case _:
                raise ValueError(f'an unknown opcode: {code:#x}')
        return None

    def number(self, size: int) -> int:
        self.at += size
        if self.at > len(self.data):
            raise IndexError
        return int.from_bytes(self.data[self.at - size:self.at], 'little')

    def line(self) -> bytes:
        end = self.data.find(b'\n', self.at)
        if end < 0:
            raise IndexError
        line = self.data[self.at:end]
        self.at = end + 1
        return line

    def line_number(self) -> int:
        line = self.line()
        if len(line) > 20:
            raise ValueError('a number that is too long')
        return int(line)
