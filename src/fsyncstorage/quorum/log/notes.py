"""The notes of nodes in the log: who owns a name, what that node has kept, and
how it is.

If two machines had one name, each would replace the note of the other, and the
log would be trimmed past what the other needs.  So a note also has the
*identity* of its node: random bytes, which a node has from its beginning
(files.state).  A name whose note has another identity is taken, until that
note is forgotten.  A majority decides that: one member may still have a note
that was forgotten.

The log promises little about notes: one that arrives late replaces a later
one.  A copy of a node (its directory was copied by hand, or its machine
cloned) has its identity, too.  If both run, the log is not kept for the one
that is behind, and that is refused one day.
"""

import math
import struct
import typing
from collections.abc import Mapping

from ..history.record import CHECKSUM
from ..history.record import IDENTITY
from ..history.record import OID
from ..history.record import Damaged
from ..history.record import Place
from ..history.record import parse_place
from .interface import RESERVED
from .interface import Log
from .members import agreed
from .members import each
from .members import majority
from .reading import Refused


class Health(typing.NamedTuple):

    #: By the clock of its machine.
    time: float
    #: How many seconds ago the last probe of its disk began that was good.
    age: float
    could_lead: bool
    #: Why it comes no further, or cannot lead; empty: nothing is wrong.
    trouble: str
    #: Another number as often as its pack gets on; and when that has all up to
    #: the end that was announced, the pack, with size and checksum of it, or
    #: with NO_PART.
    pulse: int = 0
    part: bytes = b''


#: Of a node that has been copied, or begins.
UNKNOWN = Health(0.0, math.inf, False, '')
#: In place of size and checksum: its file cannot be packed.
NO_PART = bytes(OID + CHECKSUM)
_HEALTH = struct.Struct(f'>dd?I{IDENTITY + len(NO_PART)}s')
_TROUBLE = 400  # bytes


class Note(typing.NamedTuple):

    #: The identity of the node.
    identity: bytes
    #: The place that it has kept.
    place: Place
    health: Health = UNKNOWN

    def packed(self) -> bytes:
        time, age, could_lead, trouble, pulse, part = self.health
        return (self.identity + self.place.packed() + _HEALTH.pack(
            time, age, could_lead, pulse, part) + trouble.encode()[:_TROUBLE])


#: Where the health of a note begins.
_KEPT = IDENTITY + len(Place(0, bytes(IDENTITY)).packed())


def parse_note(raw: bytes) -> Note:
    """Raise Damaged."""
    place = parse_place(raw[IDENTITY:_KEPT])
    if not 0 <= len(raw) - _KEPT - _HEALTH.size <= _TROUBLE:
        raise Damaged(f'a note of {len(raw)} bytes')
    time, age, could_lead, pulse, part = _HEALTH.unpack_from(raw, _KEPT)
    if not (0 <= time < math.inf and 0 <= age):
        raise Damaged(f'a note of the time {time}, and a probe of {age} s')
    # (It gets into lines of the log.)
    trouble = ''.join(
        each if each.isprintable() else ' '
        for each in raw[_KEPT + _HEALTH.size:].decode('utf-8', 'replace'))
    return Note(raw[:IDENTITY], place, Health(
        time, age, could_lead, trouble, pulse, part if any(part) else b''))


def of_nodes(log: Log) -> dict[bytes, bytes]:
    """The notes that are about nodes, by their names.

    What any member of a majority has counts: the log is trimmed by the notes,
    and past the node whose note one member has lost.
    """
    found: dict[bytes, bytes] = {}
    for number, notes in enumerate(each(log, log.notes), 1):
        found = {**notes, **found}
        if number == majority(log):
            break
    return {name: raw for name, raw in found.items()
            if not name.startswith(RESERVED)}


def shown(name: bytes) -> str:
    """The name of a node, to be printed; it may be any bytes."""
    text = name.rstrip(b'\0').decode('ascii', 'replace')
    return text if text.isprintable() and text.isascii() else name.hex()


class Taken(Refused):
    """Another node has our name."""


class Author:
    """A node, as the author of its notes."""

    def __init__(self, name: bytes, identity: bytes) -> None:
        self.name = name
        self.identity = identity

    def note(self, log: Log, place: Place, health: Health = UNKNOWN) -> None:
        log.note(self.name, Note(self.identity, place, health).packed())

    def claim(self, log: Log, place: Place,
              health: Health = UNKNOWN) -> Mapping[bytes, bytes]:
        """Make sure that the name is ours, and that its note says this; return
        all notes, as they were before."""
        notes = log.notes()
        self.refuse_another(log, notes)
        self.note(log, place, health)
        return notes

    def refuse_another(self, log: Log, notes: Mapping[bytes, bytes]) -> None:
        """Raise Taken if another node has our name, by these notes."""
        if self._is_another(notes) and agreed(
                log, lambda member: self._is_another(log.notes(member))):
            name = shown(self.name)
            raise Taken(
                f'the log knows another node of the name {name}. Two nodes'
                ' never have one name: give this one another (node in'
                ' <quorum>). If that one is gone, and this one is to be in its'
                f' place: fsync-quorum forget {name}, then try again')

    def _is_another(self, notes: Mapping[bytes, bytes]) -> bool:
        return not notes.get(self.name, self.identity).startswith(
            self.identity)
