"""A fork must not use the storages of its parent.

The child has copies of their files, positions and locks, but not the threads
that go with them: it would write over what the parent has written, remove the
parent's marks, free its lock, or wait for ever for who is not there.

So in the child each storage that was open for writing is given up as soon as
the fork is made: before anything else can use it, and without a check in the
ways of commits and readers.
"""

import contextlib
import os
import weakref
from typing import IO
from typing import Any

_storages: weakref.WeakSet[Any] = weakref.WeakSet()


def give_up_in_a_fork(storage: Any) -> None:
    """Call its `give_up` in each child that is forked from now on."""
    _storages.add(storage)


def silence(file: IO[bytes]) -> None:
    """Let nothing of its buffer get into the file.

    Parent and child share an open file, and the position in it: what the
    parent has still to write, the child would write, too, when it ends.
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
