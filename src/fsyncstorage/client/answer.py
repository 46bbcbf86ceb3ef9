"""What a thread waits for on the commit channel of a client."""

import contextlib
import threading

from ZEO.Exceptions import ClientDisconnected

from ..wire import commits


class Unanswered(ClientDisconnected):
    """The stream ended after a request, or a part of it, had left.

    Unless the server has said goodbye, nobody here knows what became of it.
    """


class Answer:
    """The answer that one thread waits for."""

    __slots__ = 'number', 'event', 'error', 'waits', 'was_left', '_wake'

    def __init__(self):
        self.number = self.event = self.error = None
        #: The request has left, and the thread may be woken to read.
        self.waits = False
        #: Its thread no longer waits, and has given up the turn.
        self.was_left = False
        self._wake = threading.Lock()
        self._wake.acquire()

    @property
    def is_there(self):
        return self.event is not None or self.error is not None

    def result(self):
        if self.error is not None:
            raise self.error
        return self.event

    def wake(self):
        with contextlib.suppress(RuntimeError):  # it is awake
            self._wake.release()

    def sleep(self, seconds):
        self._wake.acquire(timeout=seconds)


class UntilSent:
    """A context: from the changes here for a request, until that has left.

    Any exception in it ends the stream, also one from a signal handler: the
    server would not hear of the changes.  Only a CallerError is raised before
    anything has changed.
    """

    __slots__ = '_stream',

    def __init__(self, stream):
        self._stream = stream

    def __enter__(self):
        pass

    def __exit__(self, kind, error, traceback):
        if kind is not None and not issubclass(kind, commits.CallerError):
            self._stream.interrupted('while it sent')
