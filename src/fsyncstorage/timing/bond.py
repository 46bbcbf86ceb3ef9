"""The bond between the driver and all processes that serve one sample.

It is a pair of connected sockets: the driver has one end, and every process of
the sample, however far down, the other.  When the driver is gone, or lets go,
each of them reads that from its end, and ends.  When the last of them is gone,
the driver reads that from its own.  So nobody is left behind, and the driver
knows when nobody writes to the scratch directory any more.

The process that takes the sample needs no thread for this: it is ended by the
driver, or by what it waits for.
"""

import os
import socket
import threading

#: The end of this process; None outside of a sample.
_held = None


class Bond:
    """What the driver makes before it forks the first process."""

    def __init__(self):
        self._own, self._theirs = socket.socketpair()

    def fork(self):
        """In the driver, when the first process is there."""
        self._theirs.close()

    def hold(self):
        """In that process: from now on it and its children hold the end."""
        global _held
        self._own.close()
        _held = self._theirs
        _held.set_inheritable(True)

    def end(self, seconds):
        """Tell all to end, and wait until they did; False if not in time."""
        self._own.shutdown(socket.SHUT_WR)
        self._own.settimeout(seconds)
        try:
            return self._own.recv(1) == b''
        except TimeoutError:
            return False
        finally:
            self._own.close()


def number():
    """To hand the bond to a program that is started."""
    return _held.fileno()


def inherit(descriptor):
    """In that program: from now on it and its children hold the end."""
    global _held
    _held = socket.socket(fileno=descriptor)


def follow(descriptor=None):
    """End this process, at once, when the driver is gone or lets go."""
    descriptor = number() if descriptor is None else descriptor
    threading.Thread(
        target=_end_after, args=(descriptor,), daemon=True).start()


def _end_after(descriptor):
    os.read(descriptor, 1)
    os._exit(1)
