"""Files that are locked by `flock`: who dies holds nothing any more.

No process id says who has a lock.  Processes in different containers share a
directory, but not their numbers.

A fork would share the locks of its parent with the child, which would then
keep them when the parent dies.  So a child closes what it inherits (`forked`).

What a lock means, and which comes before which, is for its user to say.
"""

import fcntl
import os
import weakref

_inherited: weakref.WeakSet = weakref.WeakSet()


def in_child(thing):
    """Call `thing.forked()` in each child that is forked from now on."""
    _inherited.add(thing)


def _forked():
    for thing in list(_inherited):
        thing.forked()


os.register_at_fork(after_in_child=_forked)


class LockFile:
    """An open file that can be locked, against other openings of it, too."""

    def __init__(self, path, flags=os.O_RDWR):
        self.path = path
        self.fd = os.open(path, flags, 0o600)
        in_child(self)

    def lock(self, wait=True):
        """Return whether it is locked now, by us and nobody else."""
        try:
            fcntl.flock(
                self.fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True

    def share(self):
        """Lock it together with others who share it."""
        fcntl.flock(self.fd, fcntl.LOCK_SH)

    def unlock(self):
        fcntl.flock(self.fd, fcntl.LOCK_UN)

    def is_in_place(self):
        """Is it still the file of this name?"""
        try:
            return os.path.samestat(os.fstat(self.fd), os.stat(self.path))
        except FileNotFoundError:
            return False

    def close(self):
        if self.fd is not None:
            # Closing is not enough: a child may have inherited the file just
            # before it was known here.
            self.unlock()
            self.forked()

    def forked(self):
        fd, self.fd = self.fd, None
        if fd is not None:
            os.close(fd)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


def claim(path, wait=True, flags=os.O_RDWR | os.O_CREAT):
    """The file of this name, locked; None if somebody else has locked it.

    Who waits for a file may get one that has lost its name meanwhile, and
    tries again with what has the name now.
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
