"""Removes what no kept point needs.

All points from a given one on are kept, and so is the last base before it,
with all behind that.  A timeline to which nothing was added since is kept from
where its children need it; its end stays, which keeps its writer out.

A blob goes when no list that stays names it.  Whoever puts a blob, or a part
of one, has put its list before; so these are listed first, and then the lists
are read.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from typing import NamedTuple

from . import bodies
from . import content
from . import head as heads
from . import timeline
from .ahead import read_ahead
from .head import Damaged
from .layout import Database
from .layout import Timeline
from .store import Entry
from .store import Store
from .timeline import History
from .verification import verify


class Pruned(NamedTuple):
    objects: int
    size: int


def prune(store: Store, database: Database, tid: bytes, time: float,
          is_dry: bool = False) -> Pruned:
    """Keep each point from this tid on, which is of that time.

    Damaged: something that has to be kept is, and nothing is removed."""
    blobs, parts = [*store.list(database.blobs)], [
        *store.list(database.parts)]
    firsts = [(database.timeline(number), first) for number, first in _firsts(
        store, database, tid, time).items()]
    claimed = {key for names, first in firsts
               for key in _claimed(store, names, first)}
    places = {directory: (names, first) for names, first in firsts
              for directory in (names.log, names.lists, names.bases)}

    def goes(key: str) -> bool:
        """(The object of a part may not be there yet, or any more.)"""
        directory = key.rpartition('/')[0]
        if directory in places:
            names, first = places[directory]
            return names.sequence(key) < first
        return key.startswith(f'{database.blobs}/') and key not in claimed

    bases = [entry for names, _ in firsts
             for entry in store.list(names.bases) if goes(entry.key)]
    others = [entry for names, _ in firsts
              for directory in (names.log, names.lists)
              for entry in store.list(directory) if goes(entry.key)]
    others += [entry for entry in blobs if goes(entry.key)]
    parts = [entry for entry in parts if goes(database.whole_of(entry.key))]
    if not is_dry:
        # Without these bases, others begin at one that stays.
        for each in parts, bases, others:
            _remove(store, each)
    found = [*parts, *bases, *others]
    return Pruned(len(found), sum(entry.size for entry in found))


def _remove(store: Store, entries: Iterable[Entry]) -> None:
    for _ in read_ahead(entries, lambda entry: 0,
                        lambda entry: store.delete(entry.key)):
        pass


def _firsts(store: Store, database: Database, tid: bytes,
            time: float) -> dict[int, int]:
    """From which number on the objects of each timeline stay."""
    firsts: dict[int, int] = {}
    newest = timeline.newest(store, database)
    for number in range(1, newest + 1):
        history = History(store, database, number)
        names, last = history.names, None
        for last in store.list(names.log):
            pass
        if last is not None:
            sequence = names.sequence(last.key)
            has_ended = history.head(sequence).kind == heads.END
            firsts[number] = sequence + (not has_ended)
        if number < newest and (last is None or last.time < time):
            continue
        start = history.start(tid)
        if problems := verify(history, first=start).problems:
            raise Damaged(f'nothing is removed: {problems[0]}')
        for begin, stop in history.stretches():
            if stop is None or start < stop:
                each = begin.names.number
                firsts[each] = min(start, firsts.get(each, start))
    return firsts


def _claimed(store: Store, names: Timeline, first: int) -> Iterator[str]:
    """The keys of the blobs that lists from this number on name."""
    database = names.database
    kept = (entry for entry in store.list(names.lists)
            if names.sequence(entry.key) >= first)
    for entry, data in read_ahead(
            kept, lambda entry: entry.size,
            lambda entry: content.got(store, entry.key)):
        _, pieces = content.opened(store, entry.key, data, (heads.LIST,))
        for blob in bodies.read_blob_list(b''.join(pieces)):
            yield database.blob(blob.oid, blob.tid, blob.sum)
