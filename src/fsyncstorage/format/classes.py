"""The classes of the records of a file: a number and figures for each.

Names come from the file, so their number and their length have bounds.  When
there are too many names, further classes count under `OTHERS`, so that totals
stay right.
"""

from . import scan
from .classname import ENOUGH
from .classname import FRONT
from .classname import class_name
from .classname import plain_beginning
from .window import Window

# The bound of different names.
MOST_NAMES = 20_000

OTHERS = '(others)'
UNKNOWN_CLASS = '(unknown class)'
#: The class of a record that only its storage wrapper can read.
WRAPPED = '(wrapped record)'
BLOB = 'ZODB.blob.Blob'


class Classes:
    """The classes of a file: each has a number, and figures of its records."""

    def __init__(self) -> None:
        self.names: list[str] = []
        #: For each number: how many records, and the bytes of their data.
        self.records: list[int] = []
        self.bytes: list[int] = []
        self._numbers: dict[str, int] = {}
        #: The beginning of a record -> the number of its class.
        self._by_beginning: dict[bytes, int] = {}
        # Number 0: an object has it until its class is known.
        self._unknown = self.named(UNKNOWN_CLASS)
        self.wrapped = self.named(WRAPPED)
        self.blob = self.named(BLOB)
        self._others = self.named(OTHERS)

    def named(self, name: str) -> int:
        """The number of the class of that name."""
        number = self._numbers.get(name)
        if number is None:
            if len(self.names) >= MOST_NAMES:
                return self._others
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
            self.records.append(0)
            self.bytes.append(0)
        return number

    def of_record(self, window: Window, position: int, length: int) -> int:
        """The number of the class of the record at a position, with data of
        this length."""
        begin = position + scan.RECORD_HEADER
        beginning = plain_beginning(window.read(begin, min(length, FRONT)))
        if beginning is None:
            return self._of_rare(window.read(begin, min(length, ENOUGH)))
        number = self._by_beginning.get(beginning)
        if number is None:
            number = self.named(class_name(beginning) or UNKNOWN_CLASS)
            if len(self._by_beginning) < MOST_NAMES:
                self._by_beginning[beginning] = number
        return number

    def _of_rare(self, front: bytes) -> int:
        """The same, if the record does not name it in the usual way."""
        name = class_name(front)
        if name is not None:
            return self.named(name)
        is_wrapped = front[:1] == b'.' and front[:2] not in (b'.z', b'.h')
        return self.wrapped if is_wrapped else self._unknown
