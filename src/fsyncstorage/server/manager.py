"""Tells the service manager that the server is ready, alive, and stopping.

It uses the protocol of systemd's `sd_notify`: each message is a datagram to
the socket that NOTIFY_SOCKET names.  The variables are taken out of the
environment, so that processes which this one starts do not have them.  Nothing
here blocks: a message that cannot be sent now is sent again a moment later.
"""

import asyncio
import errno
import logging
import os
import socket
import threading
from collections.abc import MutableMapping

logger = logging.getLogger(__name__)

# Seconds until a message is sent again, when the manager does not read.
AGAIN = 0.1
# Errors that pass: the manager does not read, or there is no memory.
PASSING = errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM

_VARIABLES = 'NOTIFY_SOCKET', 'WATCHDOG_USEC', 'WATCHDOG_PID'


class Manager:

    #: Seconds between two messages WATCHDOG=1; None: none are expected.
    every: float | None = None

    _socket: socket.socket | None = None
    _has_failed = False

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        name, microseconds, process = (
            environment.pop(variable, '') for variable in _VARIABLES)
        # Other kinds of addresses (vsock) are for virtual machines.
        if not name.startswith(('/', '@')):
            return
        self._address = '\0' + name[1:] if name.startswith('@') else name
        # Kept open, as later there may be no descriptor left.
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        if process in ('', str(os.getpid())) and microseconds.isdecimal():
            # (0 means that there is no watchdog.)
            self.every = int(microseconds) / 2e6 or None

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Tell it in the first turn of the loop that the server is ready, and
        then by a timer of the loop that it is alive.  No other thread does
        that: if the loop is blocked, the message has to be missing.  Called in
        the thread in which the loop will run."""
        if self._socket is not None:
            loop.call_soon(self._begin, loop)

    def wait(self, event: threading.Event) -> None:
        """Wait for the event, in a process that has no loop yet; meanwhile
        tell the manager that the process is ready and alive."""
        is_ready = False
        while not event.is_set():
            said = self._say('WATCHDOG=1' if is_ready else 'READY=1')
            is_ready = is_ready or said
            event.wait(self.every if said else AGAIN)

    def stopping(self) -> None:
        """From now on it expects no sign of life.  May be repeated."""
        self._say('STOPPING=1')
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    # In the loop

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._say('READY=1'):
            loop.call_later(AGAIN, self._begin, loop)
        elif self.every is not None:
            self._feed(loop, self.every)

    def _feed(self, loop: asyncio.AbstractEventLoop, every: float) -> None:
        said = self._say('WATCHDOG=1')
        loop.call_later(every if said else min(AGAIN, every),
                        self._feed, loop, every)

    def _say(self, message: str) -> bool:
        """False: the message should be sent again."""
        if self._socket is None:
            return True
        try:
            self._socket.sendto(message.encode(), self._address)
        except OSError as error:
            if error.errno in PASSING:
                return False
            if not self._has_failed:
                self._has_failed = True
                logger.warning(
                    'the service manager cannot be told %s: %s',
                    message, error)
        return True

