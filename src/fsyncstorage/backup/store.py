"""What a backup needs of a store.

A store has objects: bytes under a key, which has directories as a path has
them.  Nothing else is asked of it, so that a directory, S3 and others do.
Whatever goes wrong is a StoreError of one line.
"""

from collections.abc import Iterator
from typing import NamedTuple
from typing import Protocol

#: Bytes of an object, at most: clients have all of it in memory.
LARGEST = 64 << 20


class StoreError(Exception):
    """The store cannot do it, or not now; one line."""


class Exists(StoreError):
    """There is an object of that key already."""

    def __init__(self, key: str) -> None:
        super().__init__(f'{key} is there already')


class Missing(StoreError):
    """There is no object of that key."""

    def __init__(self, key: str) -> None:
        super().__init__(f'{key} is not there')


class TooLarge(StoreError):
    """An object is larger than a backup makes them."""

    def __init__(self, key: str, size: int) -> None:
        super().__init__(f'{key} has {size:,} bytes, and a backup puts at most'
                         f' {LARGEST:,}')


class Entry(NamedTuple):
    key: str
    size: int
    #: When it was put, by the clock of the store: seconds since 1970.
    time: float


class Store(Protocol):
    """What was put, or is listed, is as durable as the store can make it."""

    #: For people.
    name: str

    def create(self, key: str, data: bytes) -> None:
        """Put an object, all or nothing; Exists if there is one.  After any
        other StoreError it may be there all the same."""

    def overwrite(self, key: str, data: bytes) -> None:
        """Put an object in the place of the one that may be there."""

    def get(self, key: str) -> bytes:
        """All of an object; Missing, TooLarge."""

    def front(self, key: str, length: int) -> bytes:
        """The first bytes of an object that is not empty; fewer, if it has
        fewer; Missing."""

    def list(self, directory: str, after: str = '') -> Iterator[Entry]:
        """All objects below it, in the order of their keys; only those whose
        keys are greater than `after`."""

    def delete(self, key: str) -> None:
        """Remove an object; it may be gone already."""


def is_there(store: Store, key: str) -> bool:
    try:
        store.front(key, 1)
    except Missing:
        return False
    return True
