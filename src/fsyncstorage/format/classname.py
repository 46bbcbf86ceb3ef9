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

from .blobrecord import unwrapped

#: So many bytes of a record nearly always suffice.
FRONT = 256
#: So many bytes of a record always suffice.
ENOUGH = 4096
#: At most so many bytes of a name are shown.
LONGEST = 200
#: Shown at the end of a name that is longer.
CUT_OFF = '...'

# The class comes first, alone or in a tuple.
_FIRST = re.compile(rb'(?:\x80.)?\(?c([^\n]*)\n([^\n]*)\n', re.DOTALL)
# Two texts in a tuple: each has its length, and may be remembered.
_BEFORE_TEXTS = re.compile(rb'(?:\x80.)?\(*', re.DOTALL)
_TEXT = re.compile(rb'[XT](.{4})|U(.)', re.DOTALL)
_REMEMBERED = re.compile(rb'(?:q.|r.{4})?', re.DOTALL)
_ENDS_OF_TUPLES = b't', b'\x86'


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
    names = found.groups() if found else _names_in_a_tuple(front)
    if names is None:
        return None
    return '.'.join(map(_shown, names))


def _names_in_a_tuple(front: bytes) -> tuple[bytes, bytes] | None:
    """Module and name, if they are in a tuple, which may be in another one."""
    found = _BEFORE_TEXTS.match(front)
    texts = []
    for _ in range(2):
        found = found and _TEXT.match(front, found.end())
        if not found or not found.lastindex:
            return None
        end = found.end() + int.from_bytes(found[found.lastindex], 'little')
        texts.append(front[found.end():end])
        found = _REMEMBERED.match(front, end)
    if not found or front[found.end():found.end() + 1] not in _ENDS_OF_TUPLES:
        return None
    module, name = texts
    return module, name


def _shown(name: bytes) -> str:
    text = name[:LONGEST].decode('utf-8', 'backslashreplace')
    return text + CUT_OFF if len(name) > LONGEST else text
