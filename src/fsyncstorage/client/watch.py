"""Tells the background reader of a stream when something comes.

It does so once each time that it is armed, by any thread.  While a thread
that wants an answer reads the stream, it is not armed: to wake the background
reader for each answer would cost what the channel saves.

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

    def __init__(self, connection):
        self._descriptor = connection.fileno()
        self._poll = select.epoll()
        self._poll.register(self._descriptor, select.EPOLLONESHOT)

    def arm(self):
        """Wake it when something comes."""
        self._set(select.EPOLLIN | select.EPOLLONESHOT)

    def wake(self):
        """Wake it now: a socket from which little was sent can be written."""
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
