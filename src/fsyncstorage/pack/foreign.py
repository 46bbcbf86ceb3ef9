"""A packer of the user's own (the key `packer`).

It knows nothing of what is on its way to the disk.  So it runs with commits
stopped: the append lock is held, and everything is settled, from before it
begins until the files are swapped.  Such a packer takes that lock itself, and
returns with it, so it gets an object that behaves like the storage in
everything but the lock, which is another one, under each of its names.
"""

import logging
import threading
from typing import Any

from ZODB.fsIndex import fsIndex

from .plan import References

logger = logging.getLogger(__name__)


def packed_by(packer: Any, storage: Any, referencesf: References, stop: bytes,
              gc: bool) -> tuple[int, fsIndex] | None:
    """Return what it returns; the append lock is held until `move_on`."""
    storage.is_swapping = True
    storage.hold_still()
    logger.warning(
        '%s: commits wait until the packer of the key "packer" has ended',
        storage._file_name)
    found: tuple[int, fsIndex] | None = packer(
        _WithAnotherLock(storage), referencesf, stop, gc)
    storage.pack_watch.go_on()  # it may be cancelled by now
    return found


class _WithAnotherLock:

    def __init__(self, storage: Any) -> None:
        lock = threading.Lock()
        vars(self).update(
            _storage=storage,
            _commit_lock=lock,
            # The names that packers from before ZODB 3.10 know.
            _commit_lock_acquire=lock.acquire,
            _commit_lock_release=lock.release)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)['_storage'], name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(vars(self)['_storage'], name, value)

    def __len__(self) -> int:
        return len(vars(self)['_storage'])
