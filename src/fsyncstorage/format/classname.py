"""The name of a record's class, without importing the class.

A record begins with a pickle of its class.  ZODB's `get_pickle_metadata`
returns the name.  If it does not see the name at once, it unpickles, which
imports and calls what the pickle names.  Here nothing is imported or called,
and only the first bytes of a record are looked at.

ZODB writes the class alone, or in a tuple with arguments; older releases wrote
a tuple of module and name in place of the class.  This module knows the same
forms, with the same result.  A record of another form has no name; a name that
is longer than `LONGEST` bytes is cut off.

Left to others: counting (check.info), whole records (references).
"""

import re
from collections.abc import Callable
from typing import Any

from . import plainpickle
from .blobrecord import unwrapped

#: So many bytes of a record nearly always suffice.
FRONT = 256
#: So many bytes of a record always suffice.
ENOUGH = 4096
#: At most so many bytes of a name are shown.
LONGEST = 200
#: Shown at the end of a name that is longer.
CUT_OFF = '...'

MOST_STEPS = 100
MOST_CONTAINERS = 10

# The class comes first, alone or in a tuple.
_FIRST = re.compile(rb'(?:\x80.)?\(?c([^\n]*)\n([^\n]*)\n', re.DOTALL)


def plain_beginning(front: bytes) -> bytes | None:
    """The beginning of a record that names the class in the usual way.

    It is the same for all records of a class that one release of ZODB wrote,
    so the result of `class_name` for it can be remembered.
    """
    found = _FIRST.match(front)
    return found and found[0]


def class_name(front: bytes) -> str | None:
    """Module and name of the class, or None; `front` is the first `ENOUGH`
    bytes of the record."""
    if front[:1] == b'.':  # compressed, or hexed
        front = unwrapped(front, ENOUGH)
    found = _FIRST.match(front)
    names = found.groups() if found else _rare_names(front)
    if names is None:
        return None
    return '.'.join(map(_shown, names))


def _rare_names(front: bytes) -> tuple[bytes, bytes] | None:
    """The names in a tuple of module and name, which may be in another tuple.
    """
    try:
        value = _Reader(front, MOST_STEPS, MOST_CONTAINERS).load()
    except plainpickle.Unreadable:
        return None
    if value.__class__ is tuple and value and value[0].__class__ is tuple:
        value = value[0]
    if value.__class__ is not tuple or len(value) != 2:
        return None
    module, name = value
    if module.__class__ is not str or name.__class__ is not str:
        return None
    return (module.encode('utf-8', 'surrogatepass'),
            name.encode('utf-8', 'surrogatepass'))


def _shown(name: bytes) -> str:
    text = name[:LONGEST].decode('utf-8', 'backslashreplace')
    return text + CUT_OFF if len(name) > LONGEST else text


class _Reader(plainpickle.Reader):
    """Also reads the str objects of Python 2."""

    def _text(self, length: int) -> None:
        self._stack.append(self._take(length).decode('ascii'))

    opcodes: dict[int, Callable[[Any], object]] = {
        **plainpickle.Reader.opcodes,
        0x55: lambda self: self._text(self._take_byte()),    # SHORT_BINSTRING
        0x54: lambda self: self._text(self._take_length()),  # BINSTRING
    }
