"""Which staged blobs the records of a log name.

A blob stays in the log as long as the record that names it: until all nodes
have kept what is behind that, and it is trimmed (`remove_named`).  What was
staged and is named by no record, because its vote was aborted or its writer
has died, is found by the next writer (`unnamed`).

To remove a blob that is needed would lose it for good, and one member of the
log may be wrong.  So `unnamed` believes only records that are linked, each to
the one before, up to one that this writer knows.
"""

from collections.abc import Iterable
from collections.abc import Iterator

from ..history.record import Damaged
from ..history.record import Data
from ..history.record import Place
from ..history.record import Record
from ..history.record import Unknown
from ..history.record import parse
from ..history.record import place_of
from ..history.staged import epoch_of
from ..log.interface import Log
from ..log.interface import Missing
from ..log.interface import Trimmed
from ..log.interface import Unanswered

# Blobs that are removed by one call.
AT_ONCE = 1000


def remove_named(log: Log, first: int) -> None:
    """Remove the blobs that records before this one name: the log is about to
    be trimmed up to it, and a record says so.

    Unanswered: some may be removed; call it again.
    """
    if not log.all_staged():
        return
    ids: set[bytes] = set()
    for record, _ in _linked(log, log.ends().first, first - 1):
        ids |= _named_by(record)
        if len(ids) >= AT_ONCE:
            log.unstage(ids)
            ids = set()
    log.unstage(ids)


def unnamed(log: Log, epoch: int, place: Place) -> set[bytes]:
    """What was staged in epochs before this one, and no record names.

    `place`: of the record that has begun this epoch, or of a later one; so
    records of earlier epochs are all before it.  Raise Unanswered if they are
    not all shown.
    """
    found = {id for id in log.all_staged() if epoch_of(id) < epoch}
    if not found:
        return found
    first, at = log.ends().first, place  # trimmed: no node needs them
    for record, at in _linked(log, first, place.sequence):
        found -= _named_by(record)
    if at != place:
        raise Unanswered(
            f'record {at.sequence} is shown as another one than it was')
    return found


def _named_by(record: Record) -> set[bytes]:
    return {blob.staged for blob in record.body.blobs} if isinstance(
        record.body, Data) else set()


def _linked(log: Log, first: int,
            last: int) -> Iterator[tuple[Record, Place]]:
    """These records, each linked to the one before."""
    number, before = first, None
    while number <= last:
        for record, place in _shown(log, number, before):
            if place.sequence <= last:
                yield record, place
            number, before = place.sequence + 1, place


def _shown(log: Log, number: int,
           before: Place | None) -> list[tuple[Record, Place]]:
    """This record, and some behind it, from a member that has it."""
    for member in None, *range(log.members):
        try:
            found = _fitting(log.read(number, member), number, before)
        except (Missing, Trimmed, Unanswered):
            continue
        if found:
            return found
    raise Unanswered(f'record {number} is shown by no member')


def _fitting(shown: Iterable[bytes], number: int,
             before: Place | None) -> list[tuple[Record, Place]]:
    found: list[tuple[Record, Place]] = []
    for raw in shown:
        try:
            record = parse(raw)
        except (Damaged, Unknown):
            break
        place = place_of(raw)
        if place.sequence != number + len(found) or (
                before is not None and record.previous != before.link):
            break
        found.append((record, place))
        before = place
    return found
