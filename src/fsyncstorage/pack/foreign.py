"""What a packer of the user's own gets in place of the storage.

Such a packer takes the append lock (`_commit_lock`), and copies up to the end
of the file.  But the file may contain an appended transaction whose final
status is written only after a sync (`status_last`: one with blobs, for
example).  The copy would lack that status, because it is written into the old
file later.  The next opening of the new file would then cut the transaction
off, though it was acknowledged.  Our own packer drains when it takes the lock
(`hold_still`); another packer knows only the lock.

So such a packer gets an object that behaves like the storage in everything but
one: its append lock, under each of its names, waits for such transactions once
it is taken.  While the lock is held, nothing is appended, and a sync does not
need the lock: so the wait ends.  The lock does not wait for other
transactions, which are nearly all: their copies are whole, and the swap
drains.  (Stock's packer takes the lock anew for each transaction.  If it
waited for a sync each time, it would never catch up with committers that share
their syncs.)

Left to others: that no file is replaced while something is not settled (swap).
"""

from typing import Any


class LockOfPacker:
    """The append lock of a storage.

    While it is held, each transaction in the file has its final status.
    """

    def __init__(self, storage: Any) -> None:
        self._storage = storage

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        storage = self._storage
        taken: list[bool] = []
        try:
            # This is one call of a function that is not written in Python, so
            # no interrupt can happen between taking the lock and noting it.
            taken.extend(map(
                storage._commit_lock.acquire, (blocking,), (timeout,)))
            if any(taken):
                storage._sequencer.wait_for_each_status()
                storage._refuse_when_stopped()
            return any(taken)
        except BaseException:
            if any(taken):
                storage._commit_lock.release()
            raise

    __enter__ = acquire

    def release(self) -> None:
        self._storage._commit_lock.release()

    def locked(self) -> bool:
        locked: bool = self._storage._commit_lock.locked()
        return locked

    def __exit__(self, *error: object) -> None:
        self.release()


class StorageOfPacker:
    """Behaves like the storage in everything but its append lock."""

    def __init__(self, storage: Any) -> None:
        lock = LockOfPacker(storage)
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
