"""What a record refers to, in less time, for what only counts.

ZODB writes a reference in one way: the oid as bytes, the class, a tuple of the
two, and the opcode that refers to it.  So nothing needs to be kept of what a
pickle has besides: one regular expression steps over all opcodes that take
part in no reference, and finds the next one.  What is written in another way
is read with a stack (references): each opcode that refers must have its oid
right before it, and what could change the order of values is not stepped over.

Promises: of a record that ZODB can read, the references are those that
`references` finds.  Of one that it cannot read, ValueError or any: nobody
looks here whether there are enough values on the stack.  So nothing may be
thrown away because of what is found here.  Memory: 50 bytes a reference, or as
there.
"""

import functools
import re
from typing import Any

from .references import OID
from .references import references
from .wrapped import TooMuch

# Without a Q or one of these, there is no reference.
_REFERRING_BY_LINE = re.compile(rb'P[^\n]{8}\n')

# Lengths that are stepped over by the regular expression, which has a branch
# for each.
_TEXT, _BYTES, _NUMBER = range(256), range(64), range(16)
# Opcodes with longer ones: bytes of the length.
_COUNTED = {ord('X'): 4, ord('B'): 4, ord('T'): 4, ord('C'): 1, ord('U'): 1}


def _counted(code: bytes, size: int, lengths: range) -> bytes:
    """An opcode, a length of that size, and so many bytes.  (Those of an oid
    may be the beginning of a reference.)"""
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
# The first time, with what is nearly always the first pickle: a class alone.
_FROM_THE_FIRST = rb'(?P<alone>(?:\x80[\0-\3])?%b(?:q.)?\.)?%b' % (
    _GLOBAL, _ONWARDS)


@functools.cache
def _matching() -> Any:
    """Of both, compiled: ten milliseconds, of which a process that reads no
    references is spared."""
    return (re.compile(_FROM_THE_FIRST, re.DOTALL).match,
            re.compile(_ONWARDS, re.DOTALL).match)


def quick_references(
        record: bytes, most_values: int | None = None) -> list[bytes]:
    """The oids that a record refers to, in their order in the record.

    TooMuch if there are more than that.
    """
    last = record.rfind(b'Q')
    if last < 0 and not _REFERRING_BY_LINE.search(record):
        return []
    oids = _found(
        record, last, len(record) if most_values is None else most_values)
    return references(record, most_values) if oids is None else oids


def _found(record: bytes, last: int, most: int) -> list[bytes] | None:
    """None: it has to be read.

    Behind `last`, no opcode refers to what is on the stack.
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
