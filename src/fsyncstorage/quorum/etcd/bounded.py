"""A socket with a deadline, and a limit for the bytes that it receives.

A peer that sends a byte now and then, or never ends, could hold up a caller
for ever, and fill the memory.  So each question sets a deadline, and a limit
for its answer.  Both are checked here, below the code that parses the bytes.
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
        """From now on, receive at most `most` bytes, before the deadline."""
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
                # It may have said why it closed: because of our certificate.
                self.socket.settimeout(self._patience())
                self.socket.recv(1)
            raise

    def receive(self) -> bytes:
        """Some bytes; none if the connection has ended."""
        self.socket.settimeout(self._patience())
        return self._counted(self.socket.recv(PACKET))

    def receive_at_once(self) -> bytes | None:
        """What has already arrived; None if nothing has."""
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
        """Any thread may call it: the connection ends, which wakes the thread
        that waits for it."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)

    def close(self) -> None:
        self.socket.close()
