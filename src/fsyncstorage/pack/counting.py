"""What a pack frees, by class: noted while a Copier copies to nowhere.

Two figures tell what is freed.  One is the bytes of records with their
headers, by their classes.  The other is what transactions have besides
records: headers, users, descriptions, extensions.  Their sum is how much
shorter the file becomes.  (A record that is kept with its data in the place of
a pointer becomes longer, so less is freed of its class.)
"""

import typing

from ..format import scan
from ..format.classes import FRONT
from ..format.classes import Classes
from ..format.scan import RECORD_HEADER
from ..format.scan import Chains
from ..format.window import Window
from .plan import Objects

#: The class of a record that undoes the creation of its object.
NO_DATA = '(no data)'
# How a record begins that a storage wrapper has changed; a pickle never does.
_WRAPPED = b'.'
# The number of the class that cannot be told.
UNKNOWN = 0
# Classes that are listed by name.
MOST_LISTED = 1000


def refuse_wrapped(record: bytes) -> None:
    """Its first byte is enough."""
    if record.startswith(_WRAPPED):
        raise ValueError(
            'a record was wrapped by another storage (compressed, for'
            ' example): what it refers to cannot be foretold')


#: What is freed of one class, as plain data: 'class', 'objects' (those whose
#: state at the pack time is not kept, as nothing refers to them), 'records',
#: 'bytes'.
Row = dict[str, typing.Any]


class Tally:

    def __init__(self, window: Window) -> None:
        self._window = window
        self._chains = Chains(window)
        self._classes = Classes()
        self._no_data = self._classes.named(NO_DATA)
        #: The number of a class -> how many objects go.
        self._objects: dict[int, int] = {}

    def add(self, found: scan.Transaction, lengths: dict[int, int],
            objects: Objects | None = None) -> None:
        """Add a transaction; `lengths` has the position of each record that is
        copied, and its length in the new file.

        `objects`, up to the pack end, has the current record of each object.
        """
        self._ahead = self._window.for_records_of(found.end - found.position)
        for record in found.records:
            length = lengths.get(record.position)
            freed = record.end - record.position - (length or 0)
            if not freed:
                continue
            number = self._class(record)
            self._classes.bytes[number] += freed
            if length is None:
                self._classes.records[number] += 1
                if objects is not None and objects.is_current(record):
                    self._objects[number] = self._objects.get(number, 0) + 1

    def _class(self, record: scan.Record) -> int:
        try:
            source = self._chains.source(record)
        except scan.Damage:
            return UNKNOWN  # a wrong pointer of a record that goes
        if not source.length:
            return self._no_data
        window = self._window
        if source is record:
            window = self._ahead
            window.cover(
                record.position, RECORD_HEADER + min(record.length, FRONT))
        refuse_wrapped(window.read(source.position + RECORD_HEADER, 1))
        return self._classes.of_record(
            window, source.position, source.length)

    def rows(self) -> list[Row]:
        """The largest first; the last row sums up what is not listed."""
        classes = self._classes
        made = sorted(
            (_row(name, self._objects.get(number, 0), classes.records[number],
                  classes.bytes[number])
             for number, name in enumerate(classes.names)
             if classes.records[number] or classes.bytes[number]),
            key=lambda row: (-row['bytes'], row['class']))
        listed, others = made[:MOST_LISTED], made[MOST_LISTED:]
        if others:
            listed.append(_row(f'({len(others):,} more)', *(
                total(others, name) for name in (
                    'objects', 'records', 'bytes'))))
        return listed


def _row(name: str, objects: int, records: int, size: int) -> Row:
    return {'class': name, 'objects': objects, 'records': records,
            'bytes': size}


def total(rows: list[Row], name: str) -> int:
    return sum(row[name] for row in rows)
