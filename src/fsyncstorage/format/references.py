"""What a record refers to and names, read from its pickles.

A record has two pickles, one for the class and one for the state.  ZODB's
function for this unpickles them, which takes 4 GB for a memo index of five
bytes, and ninety bytes for a byte that stands for an empty dictionary.  Here
no tuple, list or dictionary is made: a place on the stack stands for it, which
holds the oid, if the tuple may become a reference.

Promises: the time is proportional to the length of the record.  Memory is at
most about 25 times that length, or, if the number of values is limited, a few
times that length and 200 bytes for each value.

A record that ZODB's unpickler (protocol 3) can read is read here, with the
same result.  ZODB refuses more records, since it makes all values and not only
references.
"""

import re
import sys
from typing import Any

from .pickles import ERRORS
from .pickles import Reader
from .pickles import Unreadable
from .pickles import unreadable

OID = 8
#: A weak reference, or one into another database, is made of a list.
_LIST = list
# The pickle of a class alone, as ZODB nearly always writes it; and the number
# under which the class is remembered.
_CLASS_ALONE = re.compile(
    rb'(?:\x80[\0-\3])?c[^\n]*\n[^\n]*\n(?:q(.))?\.', re.DOTALL)
# Values are counted again after this many opcodes.
STEPS = 100_000


class TooMuch(Exception):
    """Reading this would take more memory than it may use."""


def references(record: bytes, most_values: int | None = None) -> list[bytes]:
    """The oids that a record refers to, in their order in the record.

    Weak references and those into other databases are not among them.
    ValueError if these are not two pickles.
    """
    return Pickles(record, most_values, _CLASS_ALONE.match(record)).oids


class Pickles(Reader):
    """Reads the two pickles of a record; ValueError if they are no pickles.

    TooMuch if more than `most_values` are kept at a time: this is checked
    after each `STEPS` opcodes.
    """

    longest_text = longest_number = sys.maxsize
    #: With EMPTY_LIST and EMPTY_DICT.
    constants = {**Reader.constants, 0x5d: _LIST, 0x7d: None}
    errors = 'surrogatepass'
    decodes = False

    #: Is anything called except `__new__` and `__setstate__`?
    calls = False

    def __init__(self, record: bytes, most_values: int | None = None,
                 skipped: re.Match[bytes] | None = None) -> None:
        super().__init__(STEPS, sys.maxsize)
        self._most_values = most_values
        #: The oids, as `references` returns them.
        self.oids: list[bytes] = []
        #: (module, name) of classes and functions.
        self.names: list[tuple[bytes, bytes]] = []
        self._begin(record)
        if skipped:
            self._at = skipped.end()
            if skipped[1]:
                self._memo[skipped[1][0]] = None
        try:
            for _ in range(1 if skipped else 2):
                self._read_pickle()
        except ERRORS as error:
            raise unreadable(error) from None

    def _read_pickle(self) -> None:
        while not self._has_ended(STEPS):
            self._refuse_many_values()
        self._stack.pop()
        self._stack.clear()
        self._marks.clear()

    def _refuse_many_values(self) -> None:
        kept = (len(self._stack) + len(self._marks) + len(self._memo)
                + len(self.oids) + len(self.names))
        if self._most_values is not None and kept > self._most_values:
            raise TooMuch(f'it has more than {self._most_values:,} values')

    # What values become

    def again(self, value: Any) -> Any:
        return value

    def python_2_text(self, text: bytes) -> Any:
        return text.decode('ascii')

    def make_tuple(self, items: list[Any]) -> Any:
        """The oid in a pair of an oid and a class; else None."""
        if len(items) == 2 and items[0].__class__ in (bytes, str):
            return items[0]
        return None

    def make_list(self, items: list[Any]) -> Any:
        return _LIST

    def make_dict(self, items: list[Any]) -> Any:
        return None

    def extend(self, items: list[Any], target: Any) -> None:
        pass

    update = extend

    def name(self, module: bytes, name: bytes) -> Any:
        self.names.append((module, name))

    def call(self, function: Any, arguments: Any) -> Any:
        self.calls = True

    def new(self, kind: Any, arguments: Any) -> Any:
        pass

    def build(self, made: Any, state: Any) -> Any:
        return made

    def refer(self, to: Any) -> Any:
        if to is _LIST:
            return
        if to.__class__ is str:
            to = to.encode('ascii')
        if to.__class__ is not bytes or len(to) != OID:
            raise Unreadable('a reference to what is no oid')
        self.oids.append(to)
