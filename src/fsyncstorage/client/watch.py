"""Tells the background reader of a stream when something comes.

It does so once each time that it is armed, by any thread.  While a thread
that wants an answer reads the stream, it is not armed: to wake the background
reader for each answer would cost what the channel saves.

There is one event mask, which the last call sets.  So that no `arm` undoes a
`wake` whose event the background reader has not got yet, it is woken from the
first `wake` until it goes on.

It is never closed, since any thread may arm it at any time: its descriptor
goes with the last reference to it.
"""

import errno
import select

#: Only with this can the background reader be left asleep.
is_possible = hasattr(select, 'epoll')

# What the system says of a connection that is closed: also if its number is
# that of something else by now, which cannot be polled if it is a file.
CLOSED = errno.EBADF, errno.ENOENT, errno.EPERM


class Watch:

    # What it is woken for may lie here: the socket need not tell of it.
    _is_woken = False

    def __init__(self, connection):
        self._descriptor = connection.fileno()
        self._poll = select.epoll()
        self._poll.register(self._descriptor, select.EPOLLONESHOT)

    def arm(self):
        """Wake it when something comes."""
        self._set(select.EPOLLIN | select.EPOLLONESHOT)
        if self._is_woken:  # in this order: `wake` notes it first
            self._wake()

    def wake(self):
        """Wake it now: a socket from which little was sent can be written."""
        self._is_woken = True
        self._wake()

    def _wake(self):
        self._set(select.EPOLLIN | select.EPOLLOUT | select.EPOLLONESHOT)

    def disarm(self):
        # An error of the connection is told all the same, once.
        self._set(select.EPOLLONESHOT)

    def _set(self, events):
        try:
            self._poll.modify(self._descriptor, events)
        except OSError as error:  # what the handler of a signal raises, too
            if error.errno not in CLOSED:
                raise

    def wait(self, seconds=None):
        self._poll.poll(seconds)
        self._is_woken = False  # before it looks at what lies here
