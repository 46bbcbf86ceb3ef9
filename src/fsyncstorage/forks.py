"""A fork must not use the storages and the caches of its parent.

The child has copies of their files, positions and locks, but not the threads
that serve them.  It would overwrite what the parent has written, remove the
parent's marks, free its lock, or wait for ever for a missing thread.

So right after the fork, before anything else can use them, the child gives up
each storage that was open for writing, the addresses at which figures are
shown, and the files that a client reads locally; and it closes the files of a
blob cache that are locked.  Commits and readers need no check.
"""

import contextlib
import os
import weakref
from typing import IO
from typing import Any

_inherited: weakref.WeakSet[Any] = weakref.WeakSet()


def in_child(thing: Any) -> None:
    """Call `thing.forked()` in each child that is forked from now on, and in
    the children of these."""
    _inherited.add(thing)


def silence(file: IO[bytes]) -> None:
    """Keep the content of the file's buffer from getting into the file.

    Parent and child share an open file and its position.  When the child ends,
    it would also write the bytes that the parent still has to write.
    """
    with contextlib.suppress(OSError, ValueError):  # no file, or closed
        number = file.fileno()
        nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.dup2(nowhere, number, inheritable=False)
        os.close(nowhere)


def _in_the_child() -> None:
    for thing in list(_inherited):
        thing.forked()


os.register_at_fork(after_in_child=_in_the_child)
