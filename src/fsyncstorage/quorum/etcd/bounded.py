"""A socket that is used up to a point in time, and for so many bytes.

A peer that sends a byte now and then, or never ends, could hold a caller for
ever, and fill the memory.  So whoever asks says until when, and how much may
come; both are looked at here, below whatever makes sense of the bytes.
"""

import contextlib
import socket
import ssl
import time

from .trouble import Lost

#: Bytes that are read at once.
PACKET = 1 << 16


class Bounded:

    def __init__(self, socket: socket.socket) -> None:
        self.socket = socket
        self.deadline = 0.0
        self._left = 0

    def within(self, most: int, deadline: float) -> None:
        """From now on: so many bytes may come, and it is over then."""
        self._left = most
        self.deadline = deadline

    def send(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                self.socket.settimeout(self._patience())
                rest = rest[self.socket.send(rest):]
        except (ConnectionError, ssl.SSLEOFError):
            if isinstance(self.socket, ssl.SSLSocket):
                # It may have said why it left: our certificate.
                self.socket.settimeout(self._patience())
                self.socket.recv(1)
            raise

    def receive(self) -> bytes:
        """Some bytes; none: it has ended."""
        self.socket.settimeout(self._patience())
        return self._counted(self.socket.recv(PACKET))

    def receive_at_once(self) -> bytes | None:
        """What is there already; None: nothing."""
        self.socket.settimeout(0)
        try:
            return self._counted(self.socket.recv(PACKET))
        except (BlockingIOError, ssl.SSLWantReadError):
            return None

    def _patience(self) -> float:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError('it takes too long')
        return left

    def _counted(self, data: bytes) -> bytes:
        self._left -= len(data)
        if self._left < 0:
            raise Lost('an answer that is too long')
        return data

    def abort(self) -> None:
        """Any thread: whoever waits for it is woken, by its end."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)

    def close(self) -> None:
        self.socket.close()
