"""What a backup says of itself, in a file beside the data file.

`fsync-backup run` writes it in each round, also where it is no child of the
server; the process that shows the storage reads it.  The file is replaced as a
whole, and not synced: it is about now.  Whoever may write to that directory
may write anything into it, so what is read is checked.
"""

import contextlib
import json
import os
from typing import Any
from typing import NamedTuple

from .. import datafile

#: (Not `.backup`, as people call a copy.)
SUFFIX = '.shipped'
#: The name under which the file is written.
SUFFIX_OF_NEW = '.shipped.new'
# More bytes than the file ever has, and more than any of its numbers.
_MOST_BYTES = 1 << 12
_MOST = 1 << 64


class Said(NamedTuple):
    #: All that was published then is in the store (seconds since the epoch).
    shipped: float | None = None
    #: Durable bytes of the data file that are not in the store.
    behind: int | None = None
    #: When the last drill has ended that found all to be sound.
    drilled: float | None = None


def write(path: str, said: Said) -> None:
    """For the data file of this path; OSError."""
    new = path + SUFFIX_OF_NEW
    # (Of this name there may be a link, to a file that only root may write.)
    with datafile.open_new(new) as file:
        file.write(json.dumps(said._asdict()).encode())
    os.replace(new, path + SUFFIX)


def read(path: str) -> dict[str, Any]:
    """Empty: there is no backup, or it has said nonsense."""
    found: Any = None
    with contextlib.suppress(OSError, ValueError, RecursionError):
        number = os.open(
            path + SUFFIX, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(number, 'rb') as file:
            found = json.loads(file.read(_MOST_BYTES))
    if not isinstance(found, dict):
        return {}
    return {name: found[name] for name in Said._fields
            if _is_number(found.get(name))}


def _is_number(value: object) -> bool:
    return (isinstance(value, (int, float)) and not isinstance(value, bool)
            and 0 <= value < _MOST)  # (NaN is not)
