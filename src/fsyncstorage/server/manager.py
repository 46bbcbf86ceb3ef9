"""Tells the service manager that the server serves, lives, and ends.

It is the protocol of systemd's `sd_notify`: each message is a datagram to the
socket that NOTIFY_SOCKET names.

READY=1     in the first turn of the event loop: from now on it serves.  A
            node that follows (hosting) says it when it begins to
WATCHDOG=1  twice in the time that WATCHDOG_USEC allows, by a timer of the
            event loop.  No thread does it: where the loop is blocked, it has
            to be missing, so that the server is restarted.  While there is no
            loop, the thread says it that waits for the storage
STOPPING=1  when the server begins to end; from then on nobody waits for
            WATCHDOG=1

MAINPID is never said.  The process that systemd has started is the one that
serves: it becomes no daemon, and no child of it serves.  A wrapper has to
become fsync-runzeo, by `exec`; then WATCHDOG_PID is right, too.

The variables are taken out of the environment: the processes that this one
starts (a pack, for example) have nothing to say.  What is forked from it has
no event loop, and says nothing either.

Nothing here waits.  If the manager does not read, the same is said again a
moment later.  So it is, for a minute, if the system has no memory for it.  If
the manager cannot be told at all, that is one line of the log.
"""

import asyncio
import errno
import logging
import os
import socket
import threading
from collections.abc import MutableMapping

logger = logging.getLogger(__name__)

# Seconds until it is said again, when the manager does not read.
AGAIN = 0.1
# The system has no memory for a datagram; and how often in succession it is
# said again because of that.
NO_MEMORY = errno.ENOBUFS, errno.ENOMEM
MOST_AGAIN = 600

_VARIABLES = 'NOTIFY_SOCKET', 'WATCHDOG_USEC', 'WATCHDOG_PID'


class Manager:

    #: Seconds between two signs of life; None: nobody waits for them.
    every: float | None = None

    _socket: socket.socket | None = None
    _has_failed = False
    #: How often in succession there was no memory.
    _without_memory = 0

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        name, microseconds, process = (
            environment.pop(variable, '') for variable in _VARIABLES)
        # Other kinds of addresses (vsock) are for virtual machines.
        if not name.startswith(('/', '@')):
            return
        self._address = '\0' + name[1:] if name.startswith('@') else name
        # Kept open: later, no descriptor may be left.
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        if process in ('', str(os.getpid())) and microseconds.isdecimal():
            # (0 is no time at all.)
            self.every = int(microseconds) / 2e6 or None

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Called in the thread in which the loop will run."""
        if self._socket is not None:
            loop.call_soon(self._begin, loop)

    def wait(self, event: threading.Event) -> None:
        """Wait for it, in a process that has no loop yet, and has nothing else
        to do: it is ready for what it does meanwhile, and lives."""
        is_ready = False
        while not event.is_set():
            said = self._say('WATCHDOG=1' if is_ready else 'READY=1')
            is_ready = is_ready or said
            event.wait(self.every if said else AGAIN)

    def stopping(self) -> None:
        """May be repeated."""
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
        """False: it should be said again."""
        if self._socket is None:
            return True
        try:
            self._socket.sendto(message.encode(), self._address)
        except BlockingIOError:
            return False
        except OSError as error:
            if (error.errno in NO_MEMORY
                    and self._without_memory < MOST_AGAIN):
                self._without_memory += 1
                return False
            if not self._has_failed:
                self._has_failed = True
                logger.warning(
                    'the service manager cannot be told %s: %s',
                    message, error)
        else:
            self._without_memory = 0
        return True
