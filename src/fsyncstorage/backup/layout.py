"""The names of all objects in a store.

    DATABASE/tTIMELINE/begin
    DATABASE/tTIMELINE/log/SEQUENCE
    DATABASE/tTIMELINE/lists/SEQUENCE-SHA256
    DATABASE/tTIMELINE/bases/SEQUENCE
    DATABASE/tTIMELINE/heartbeat
    DATABASE/tTIMELINE/drill
    DATABASE/blobs/OID/TID-SHA256
    DATABASE/parts/KEY/SHA256

Numbers have leading zeros: so the order of names is that of numbers.
"""

import re

from .head import Damaged

#: Timelines are rare; one sequence a second is enough for 300 centuries.
TIMELINE, SEQUENCE = 6, 12

_NAME = re.compile(r'[A-Za-z0-9_][A-Za-z0-9._-]{0,99}')
_SEQUENCE = re.compile(r'([0-9]{%d})(-[0-9a-f]{64})?' % SEQUENCE)


def checked_database(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f'{name!r} is no name of a database: letters, digits,'
                         ' and . _ - behind the first are')
    return name


def part_of(key: str, sum: bytes) -> str:
    """Of the object of that key: it goes when that goes."""
    database, _, rest = key.partition('/')
    return f'{database}/parts/{rest}/{sum.hex()}'


class Database:
    """The names of one database."""

    def __init__(self, name: str) -> None:
        self.name = checked_database(name)
        self.parts = f'{name}/parts'
        self.blobs = f'{name}/blobs'

    def whole_of(self, part: str) -> str:
        """The key of the object of that part."""
        return (f'{self.name}/'
                + part.removeprefix(f'{self.parts}/').rpartition('/')[0])

    def blob(self, oid: bytes, tid: bytes, sum: bytes) -> str:
        return f'{self.blobs}/{oid.hex()}/{tid.hex()}-{sum.hex()}'

    def timeline(self, number: int) -> 'Timeline':
        return Timeline(self, number)


class Timeline:
    """The names of one timeline."""

    def __init__(self, database: Database, number: int) -> None:
        self.database = database
        self.number = number
        top = f'{database.name}/t{number:0{TIMELINE}d}'
        self.begin = f'{top}/begin'
        self.heartbeat = f'{top}/heartbeat'
        self.drill = f'{top}/drill'
        self.log = f'{top}/log'
        self.lists = f'{top}/lists'
        self.bases = f'{top}/bases'

    def segment(self, sequence: int) -> str:
        return f'{self.log}/{sequence:0{SEQUENCE}d}'

    def blob_list(self, sequence: int, sum: bytes) -> str:
        return f'{self.lists}/{sequence:0{SEQUENCE}d}-{sum.hex()}'

    def base(self, sequence: int) -> str:
        """Of the pack of this number."""
        return f'{self.bases}/{sequence:0{SEQUENCE}d}'

    def sequence(self, key: str) -> int:
        """Of an object of the log, a base, or a list."""
        directory, _, name = key.rpartition('/')
        found = _SEQUENCE.fullmatch(name)
        if (directory not in (self.log, self.bases, self.lists)
                or not found or bool(found[2]) != (directory == self.lists)):
            raise Damaged(f'{key} is nothing that a backup puts')
        return int(found[1])
