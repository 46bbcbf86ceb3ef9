"""The bytes that the log has for a file, after a state, read forward.

The log is read again for them, so that nothing large is kept in memory.
Reading at rising positions costs one reading of the log; each step back costs
another one.
"""

from collections.abc import Callable
from collections.abc import Container
from collections.abc import Iterator

from ..history.fold import Apply
from ..history.record import Data


class Contents:

    def __init__(self, records: Callable[[], Iterator[Apply]],
                 given_up: Container[bytes]) -> None:
        """`records()` returns all records that the log has after the state;
        `given_up` are the ids of batches that an epoch has given up."""
        self._records = records
        self._given_up = given_up
        self._begin()

    def _begin(self) -> None:
        self._left = self._data_records()
        self._position, self._data = 0, b''

    def _data_records(self) -> Iterator[tuple[int, bytes]]:
        for _, record in self._records():
            if (isinstance(record.body, Data)
                    and record.batch not in self._given_up):
                yield record.position, record.body.data

    def __call__(self, position: int, length: int) -> bytes:
        """These bytes; fewer where the log has no more."""
        if position < self._position:
            self._begin()
        found = b''
        while len(found) < length and self._reaches(position + len(found)):
            begin = position + len(found) - self._position
            found += self._data[begin:begin + length - len(found)]
        return found

    def _reaches(self, position: int) -> bool:
        """Advance to the record that has this position."""
        while position >= self._position + len(self._data):
            following = next(self._left, None)
            if following is None:
                return False
            self._position, self._data = following
        return position >= self._position
