"""Lists of transactions for a client, as long as an answer may be.

A description, a user and an extension may have 64 KB each, so entries are
counted in bytes, too.  They are gathered by what the storage takes for its
filter: so the storage keeps none, and ends when there are enough.
"""

import contextlib
import sys

# Most entries of a list, and most bytes of memory that they may take.
MOST_ENTRIES = 10_000
MOST_BYTES = 4 << 20


class _Enough(Exception):
    pass


def listed(ask, first, last, wanted=None):
    """The entries from `first` on, and before `last`, of those that have what
    is `wanted` (keys and values).  `ask(filter)` asks the storage for all."""
    entries = []
    number = size = 0
    wanted = (wanted or {}).items()

    def take(entry):
        nonlocal number, size
        if any(entry.get(key) != value for key, value in wanted):
            return
        if number >= first:
            size += _size(entry)
            if size > MOST_BYTES and entries:
                raise _Enough
            entries.append(entry)
        number += 1
        if number >= last:
            raise _Enough

    if first < last:
        with contextlib.suppress(_Enough):
            ask(take)
    return entries


def limited(first, last):
    """The end of a list that begins at `first`; a negative `last` is the
    number of its entries, of which there are at most MOST_ENTRIES."""
    return min(first - last if last < 0 else last, first + MOST_ENTRIES)


def _size(value):
    """Bytes of memory of plain data."""
    if isinstance(value, dict):
        parts = [*value, *value.values()]
    elif isinstance(value, (list, tuple, set, frozenset)):
        parts = value
    else:
        parts = ()
    return sys.getsizeof(value) + sum(map(_size, parts))
