"""What a record refers to, in less time, for commands that only count.

ZODB writes a reference in one way: the oid as bytes, the class, a tuple of the
two, and the opcode that refers to the tuple.  So nothing else of a pickle
needs to be kept: one regular expression steps over all opcodes that take part
in no reference, and finds the next reference.  For this, each opcode that
refers must have its oid right before it, and opcodes that could change the
order of values are not stepped over.  A record that is written in another way
is read with a stack (references).

Promises: for a record that ZODB can read, the references are those that
`references` finds.  For a record that ZODB cannot read, there is a ValueError,
or any result: this module does not check that there are enough values on the
stack.  So nothing may be deleted because of a result from here.  Memory: 50
bytes for each reference, or as in `references`.
"""

import functools
import re
from typing import Any

from .references import OID
from .references import references
from .wrapped import TooMuch

# A record without a Q and without a match of this has no reference.
_REFERRING_BY_LINE = re.compile(rb'P[^\n]{8}\n')

# Values of these lengths are stepped over by the regular expression, which has
# a branch for each length.
_TEXT, _BYTES, _NUMBER = range(256), range(64), range(16)
# Opcodes whose values may be longer, and the bytes of their length.
_COUNTED = {ord('X'): 4, ord('B'): 4, ord('T'): 4, ord('C'): 1, ord('U'): 1}


def _counted(code: bytes, size: int, lengths: range) -> bytes:
    """A pattern for an opcode, a length of that size, and as many bytes.  (Not
    for the bytes of an oid, which may be the beginning of a reference.)"""
    return code + b'(?:%b)' % b'|'.join(
        re.escape(length.to_bytes(size, 'little')) + b'.{%d}' % length
        for length in lengths if not (code == b'C' and length == OID))


_GLOBAL = rb'c[^\n]*\n[^\n]*\n'
_REMEMBER = rb'(?:q.|r.{4})?'
_RECALL = rb'h.|j.{4}'
_STEPPED_OVER = b'|'.join([
    rb'[qhK].|[rjJ].{4}|M..|G.{8}',
    rb'[N\x88\x89}\])(uesabtR\x81\x85\x86\x87]',
    _counted(b'X', 4, _TEXT), _GLOBAL, _counted(b'C', 1, _BYTES),
    _counted(b'U', 1, _BYTES), _counted(rb'\x8a', 1, _NUMBER),
    rb'\x80[\0-\3]'])
_CLASS = b'(?:%b|%b%b)' % (_RECALL, _GLOBAL, _REMEMBER)
_ONWARDS = (
    rb'(?:%b){0,256}(?:C\x08(?P<oid>.{8})(?:%b(?:%b\x86%b)?(?P<refers>Q))?'
    rb'|(?P<stop>\.))?' % (_STEPPED_OVER, _REMEMBER, _CLASS, _REMEMBER))
# For the first match, with the usual first pickle: a class alone.
_FROM_THE_FIRST = rb'(?P<alone>(?:\x80[\0-\3])?%b(?:q.)?\.)?%b' % (
    _GLOBAL, _ONWARDS)


@functools.cache
def _matching() -> Any:
    """Both patterns, compiled.  This takes ten milliseconds, which a process
    that reads no references saves."""
    return (re.compile(_FROM_THE_FIRST, re.DOTALL).match,
            re.compile(_ONWARDS, re.DOTALL).match)


def quick_references(
        record: bytes, most_values: int | None = None) -> list[bytes]:
    """The oids that a record refers to, in their order in the record.

    TooMuch if there are more than `most_values`.
    """
    last = record.rfind(b'Q')
    if last < 0 and not _REFERRING_BY_LINE.search(record):
        return []
    oids = _found(
        record, last, len(record) if most_values is None else most_values)
    return references(record, most_values) if oids is None else oids


def _found(record: bytes, last: int, most: int) -> list[bytes] | None:
    """The oids; None if the record must be read with a stack.

    Behind `last`, no opcode refers to a value on the stack.
    """
    oids = []
    from_the_first, from_there = _matching()
    begin, found = 0, from_the_first(record)
    assert found is not None    # it may be empty
    pickles = 1 if found['alone'] else 2
    while True:
        at = found.end()
        kind = found.lastgroup
        if kind == 'refers':
            oids.append(found['oid'])
            if len(oids) > most:
                raise TooMuch(f'it has more than {most:,} references')
            if at > last and record.find(b'P', at) < 0:
                return oids
        elif kind == 'stop':
            pickles -= 1
            if not pickles:
                return oids
        elif at <= begin:
            size = _COUNTED.get(record[at]) if at < len(record) else None
            if size is None or at < begin:
                return None
            at += 1 + size
            at += int.from_bytes(record[at - size:at], 'little')
        begin, found = at, from_there(record, at)
        assert found is not None
