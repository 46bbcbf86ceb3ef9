"""Wakes the background reader of a stream when something arrives.

The watch does so once each time that it is armed, by any thread.  While a
thread that wants an answer reads the stream, the watch is not armed: to wake
the background reader for each answer would cost more than the answer.

Any thread may arm it at any time, also when it is closed.

Linux has epoll, which lets a thread change what another one waits for.
Elsewhere the background reader is woken for each such change, and waits anew.
"""

import contextlib
import errno
import select
import socket
import time

# The errors for a connection that is closed.  Its descriptor's number may
# belong to something else by now, even to a file, which cannot be polled.
CLOSED = errno.EBADF, errno.ENOENT, errno.EPERM


class EpollWatch:
    """There is one event mask, which the last call sets.

    An `arm` must not undo a `wake` whose event the background reader has not
    got yet.  So from the first `wake` until the background reader goes on,
    each `arm` wakes it, too.
    """

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
        except ValueError:
            pass  # the watch is closed
        except OSError as error:  # perhaps raised by a signal handler
            if error.errno not in CLOSED:
                raise

    def wait(self, seconds=None):
        self._poll.poll(seconds)
        self._is_woken = False  # before the bytes that are here are read

    def close(self):
        """By the background reader, when it waits no more."""
        self._poll.close()


class PollWatch:

    _is_armed = _is_woken = False

    def __init__(self, connection):
        self._descriptor = connection.fileno()
        #: What is written to the one is read from the other, and has the
        #: background reader look at what it waits for.
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)

    def close(self):
        self._bell.close()
        self._ear.close()

    def arm(self):
        self._is_armed = True
        self._ring()

    def wake(self):
        self._is_woken = True
        self._ring()

    def disarm(self):
        self._is_armed = False

    def _ring(self):
        with contextlib.suppress(OSError):  # it is closed, or has much to read
            self._bell.send(b'.')

    def wait(self, seconds=None):
        ends = None if seconds is None else time.monotonic() + seconds
        while not self._is_woken:
            found = self._poll(ends)
            if not found or self._is_armed and self._descriptor in found:
                break
            if self._ear.fileno() in found:
                self._ear.recv(1000)
        self._is_armed = self._is_woken = False

    def _poll(self, ends):
        """The descriptors that have something; none: the time is over."""
        poll = select.poll()
        poll.register(self._ear, select.POLLIN)
        if self._is_armed:
            poll.register(self._descriptor, select.POLLIN)
        left = None if ends is None else max(0, ends - time.monotonic())
        return dict(poll.poll(None if left is None else 1000 * left))


Watch = EpollWatch if hasattr(select, 'epoll') else PollWatch
