"""Wakes the background reader of a stream when something arrives.

The watch does so once each time that it is armed, by any thread.  While a
thread that wants an answer reads the stream, the watch is not armed: to wake
the background reader for each answer would cost what the channel saves.

There is one event mask, which the last call sets.  An `arm` must not undo a
`wake` whose event the background reader has not got yet.  So from the first
`wake` until the background reader goes on, each `arm` wakes it, too.

The watch is never closed, since any thread may arm it at any time: its
descriptor is closed with the last reference to it.
"""

import errno
import select

#: Only with this can the background reader be left asleep.
is_possible = hasattr(select, 'epoll')

# The errors for a connection that is closed.  Its descriptor's number may
# belong to something else by now, even to a file, which cannot be polled.
CLOSED = errno.EBADF, errno.ENOENT, errno.EPERM


class Watch:

    # Woken for bytes that may have been received already: the socket does not
    # signal those.
    _is_woken = False

    def __init__(self, connection):
        self._descriptor = connection.fileno()
        self._poll = select.epoll()
        self._poll.register(self._descriptor, select.EPOLLONESHOT)

    def arm(self):
        """Wake the background reader when something arrives."""
        self._set(select.EPOLLIN | select.EPOLLONESHOT)
        if self._is_woken:  # in this order: `wake` notes it first
            self._wake()

    def wake(self):
        """Wake it now: a socket from which little was sent is writable."""
        self._is_woken = True
        self._wake()

    def _wake(self):
        self._set(select.EPOLLIN | select.EPOLLOUT | select.EPOLLONESHOT)

    def disarm(self):
        # An error of the connection wakes it all the same, once.
        self._set(select.EPOLLONESHOT)

    def _set(self, events):
        try:
            self._poll.modify(self._descriptor, events)
        except OSError as error:  # perhaps raised by a signal handler
            if error.errno not in CLOSED:
                raise

    def wait(self, seconds=None):
        self._poll.poll(seconds)
        self._is_woken = False  # before the bytes that are here are read
