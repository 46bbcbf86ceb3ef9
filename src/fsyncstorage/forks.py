"""A fork must not use the storages of its parent.

The child has copies of their files, positions and locks, but not the threads
that serve them: it would overwrite what the parent has written, remove the
parent's marks, free its lock, or wait for ever for a thread that is not there.

So the child gives up each storage that was open for writing right after the
fork, before anything else can use it; the addresses at which figures are
shown; and what a client reads locally.  Commits and readers need no check.
"""

import contextlib
import os
import weakref
from typing import IO
from typing import Any

_storages: weakref.WeakSet[Any] = weakref.WeakSet()


def give_up_in_a_fork(storage: Any) -> None:  # or others, as said above
    """Call its `give_up` in each child that is forked from now on."""
    _storages.add(storage)


def silence(file: IO[bytes]) -> None:
    """Keep the content of its buffer from getting into the file.

    Parent and child share an open file and its position: when it ends, the
    child would also write what the parent has still to write.
    """
    with contextlib.suppress(OSError, ValueError):  # no file, or closed
        number = file.fileno()
        nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.dup2(nowhere, number, inheritable=False)
        os.close(nowhere)


def _in_the_child() -> None:
    for storage in list(_storages):
        storage.give_up()
    _storages.clear()


os.register_at_fork(after_in_child=_in_the_child)
