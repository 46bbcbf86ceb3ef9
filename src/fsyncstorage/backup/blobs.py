"""Ships the blobs of a segment, or of a base: first the list, which claims
them, then the blobs, some at a time.
"""

import contextlib
import hashlib
import logging
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator

from ..format.window import Pread
from . import bodies
from . import content
from . import head as heads
from .ahead import Item
from .ahead import Result
from .ahead import read_ahead
from .bodies import ListedBlob
from .head import Head
from .layout import Timeline
from .prefix import File
from .prefix import Unreachable
from .store import Exists
from .store import Store

logger = logging.getLogger(__name__)

#: Blobs on their way at a time.
AT_ONCE = 4

# oid and tid
Name = tuple[bytes, bytes]


class Blobs:
    """The blobs of a file, on their way to a store."""

    def __init__(self, store: Store, names: Timeline, file: File) -> None:
        self._store = store
        self._names = names
        self._database = names.database
        self._file = file
        #: The sums of those that are in the store, if these are known.
        self.shipped: dict[Name, bytes] = {}

    def look_for(self, names: Collection[Name]) -> Iterator[object]:
        """Which of them are in the store?  Something for each blob there."""
        for entry in self._store.list(self._database.blobs):
            oid, _, rest = entry.key.removeprefix(
                self._database.blobs + '/').partition('/')
            tid, _, sum = rest.partition('-')
            with contextlib.suppress(ValueError):
                name = bytes.fromhex(oid), bytes.fromhex(tid)
                if name in names:
                    self.shipped[name] = bytes.fromhex(sum)
            yield entry

    def summed(self, names: Collection[Name],
               perhaps: Collection[Name]) -> Iterator[ListedBlob]:
        """These blobs, with their sums; of those that are blobs perhaps, the
        ones that have a file."""
        yield from _each(names, self._summed)
        for blob in _each(perhaps, self._summed):
            if blob.size is not None:
                yield blob

    def _summed(self, name: Name) -> ListedBlob:
        try:
            with self._opened(name) as (size, read):
                return ListedBlob(*name, size, self.shipped.get(name)
                                  or content.sum_of(read, size))
        except FileNotFoundError:
            return ListedBlob(*name, None)

    @contextlib.contextmanager
    def _opened(self, name: Name) -> Iterator[tuple[int, Pread]]:
        """The size of a blob, and what reads it."""
        with self._file.open_blob(*name) as file:
            yield file.size(), content.of_file(file.fileno())

    def put_list(self, sequence: int, blobs: list[ListedBlob]) -> bytes:
        """Put the list for the object of this number; return its sum."""
        body = bodies.blob_list(blobs)
        sum = hashlib.sha256(body).digest()
        with contextlib.suppress(Exists):
            content.put(
                self._store, self._names.blob_list(sequence, sum),
                Head(heads.LIST, heads.WHOLE, 0, len(body), sum),
                content.of_bytes(body))
        return sum

    def put(self, blobs: list[ListedBlob]) -> Iterator[object]:
        """Put them; something for each."""
        return _each(blobs, self._put)

    def _put(self, blob: ListedBlob) -> None:
        if blob.size is None or (blob.oid, blob.tid) in self.shipped:
            return
        with self._opened((blob.oid, blob.tid)) as (_, read), \
                contextlib.suppress(Exists):
            content.put(
                self._store,
                self._database.blob(blob.oid, blob.tid, blob.sum),
                Head(heads.BLOB, heads.WHOLE, 0, blob.size, blob.sum,
                     tid=blob.tid, oid=blob.oid), read)


def note_missing(path: str, file: File, blobs: Iterable[ListedBlob]) -> None:
    """`path` is that of the data file; Unreachable, if they may be elsewhere.
    """
    missing = [blob for blob in blobs if blob.size is None]
    if missing and not file.has_its_name:
        raise Unreachable('a pack has replaced the file, and may have removed'
                          ' these blobs')
    if missing:
        logger.warning(
            '%s: %d blobs are missing, and so they are in the backup; the'
            ' first is of oid %s and tid %s', path, len(missing),
            missing[0].oid.hex(), missing[0].tid.hex())


def _each(items: Iterable[Item], act: Callable[[Item], Result]
          ) -> Iterator[Result]:
    """What is done with each, some at a time.  (There may be a million.)"""
    for _, result in read_ahead(items, lambda item: 0, act, AT_ONCE):
        yield result
