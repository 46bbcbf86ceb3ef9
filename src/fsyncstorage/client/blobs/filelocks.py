"""Files that are locked by `flock`: a process that dies loses its locks.

A fork shares the locks of its parent, and would keep them after the parent
dies.  So a child closes the files that it inherits (forks).

Left to the callers: what a lock means, and in which order locks are taken.
"""

import fcntl
import os
import weakref

from ... import forks


class LockFile:
    """An open file that can be locked, also against other opens of it."""

    def __init__(self, path, flags=os.O_RDWR):
        self.path = path
        self.fd = os.open(path, flags, 0o600)
        # Closed even if this object is only dropped: an interrupt may come
        # before the caller has ensured that it will be closed.
        self._close = weakref.finalize(self, os.close, self.fd)
        self._close.atexit = False
        forks.in_child(self)

    def lock(self, wait=True):
        """Lock it exclusively; return whether it is locked now."""
        try:
            fcntl.flock(
                self.fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True

    def share(self):
        """Lock it together with others that share the lock."""
        fcntl.flock(self.fd, fcntl.LOCK_SH)

    def unlock(self):
        fcntl.flock(self.fd, fcntl.LOCK_UN)

    def is_in_place(self):
        """Does the file still have its name?"""
        try:
            return os.path.samestat(os.fstat(self.fd), os.stat(self.path))
        except FileNotFoundError:
            return False

    def close(self):
        if self.fd is not None:
            # Closing is not enough: a child may have inherited the file before
            # `in_child` knew of it.
            self.unlock()
            self.forked()

    def forked(self):
        self.fd = None
        self._close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


def claim(path, wait=True, flags=os.O_RDWR | os.O_CREAT):
    """The file of this name, locked; None if another has locked it.

    While this waits, the file may lose its name: then this tries again, with
    the file that has the name now.
    """
    while True:
        file = LockFile(path, flags)
        try:
            locked = file.lock(wait)
            if locked and file.is_in_place():
                return file
        except BaseException:
            file.close()
            raise
        file.close()
        if not locked:
            return None
