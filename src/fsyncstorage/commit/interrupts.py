"""What becomes of a change that an interrupt ends half way.

An interrupt is an exception that no line of the code raises by itself: a
KeyboardInterrupt, or any other that is no Exception.  It may come between two
lines of any thread.  Mostly it is like an error: it ends the transaction of
that thread, and no other.  But in the middle of a change of what all
transactions share, it would leave half of the change.  To repair every half
change would take more care than anybody has.  So the change is whole, or
writing stops until the storage is opened again, from its file.  What was
appended until then is settled all the same.

An error that comes in the middle of such a change does the same: no line there
raises one but a DiskError, so it is a lack of memory, or a fault of the code.
"""

from collections.abc import Callable
from types import TracebackType

from ..errors import DiskError


class WholeOrStopped:
    """`with` it inside of the lock that guards the change, never around it: an
    interrupt may also come while this context is entered or left."""

    def __init__(self, stop: Callable[[BaseException], object]) -> None:
        """`stop(interrupt)` is called under the lock: it must not wait."""
        self._stop = stop

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None,
                 error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        if error is not None and not isinstance(error, DiskError):
            self._stop(error)
