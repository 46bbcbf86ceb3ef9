"""The notes of nodes in the log: whose name it is, and what that has kept.

Two machines may be given one name by mistake.  Then the one would replace the
note of the other, and the log would be trimmed past what that needs.  So a
note has the *identity* of its node, too: random bytes, which a node has from
its beginning (files.state).  A name whose note has another identity is taken:
no node starts under it, and none begins, before that note is forgotten.

What the log promises of notes is little (interface): one that comes late
replaces a later one.
"""

import typing

from ..history.record import IDENTITY
from ..history.record import Place
from ..history.record import parse_place
from .interface import RESERVED
from .interface import Log
from .reading import Refused


class Note(typing.NamedTuple):

    #: Of the node.
    identity: bytes
    #: What it has kept.
    place: Place

    def packed(self) -> bytes:
        return self.identity + self.place.packed()


def parse_note(raw: bytes) -> Note:
    """Raise Damaged."""
    return Note(raw[:IDENTITY], parse_place(raw[IDENTITY:]))


def of_nodes(log: Log) -> dict[bytes, bytes]:
    """The notes that are about nodes, by their names."""
    return {name: raw for name, raw in log.notes().items()
            if not name.startswith(RESERVED)}


def shown(name: bytes) -> str:
    """The name of a node, for people; it may be any bytes."""
    text = name.rstrip(b'\0').decode('ascii', 'replace')
    return text if text.isprintable() and text.isascii() else name.hex()


class Author(typing.NamedTuple):
    """A node, as it notes."""

    name: bytes
    identity: bytes

    def note(self, log: Log, place: Place) -> None:
        log.note(self.name, Note(self.identity, place).packed())

    def claim(self, log: Log, place: Place) -> None:
        """The name is ours from now on."""
        self.noted(log)
        self.note(log, place)

    def noted(self, log: Log) -> bytes | None:
        """What we have noted; raise Refused if another node has our name."""
        raw = log.notes().get(self.name)
        if raw is not None and not raw.startswith(self.identity):
            name = shown(self.name)
            raise Refused(
                f'the log knows another node of the name {name}. Two nodes'
                ' never have one name: give this one another (node in'
                ' <quorum>). If that one is gone, and this one is to be in its'
                f' place: fsync-quorum forget {name}, then try again')
        return raw
