"""TLS, behind the door: who has not shaken hands yet is counted, too.

The listening socket knows nothing of TLS.  Each connection is let in first, as
a newcomer; then its socket is made one with TLS, if that takes no longer than
`PATIENCE` seconds.
"""

import asyncio
import os
import socket

from . import quiet
from .connection import PATIENCE
from .connection import host_of
from .door import Full

logger = quiet.get_logger(__name__)


class Secured(asyncio.Protocol):
    """A connection until its handshake is over; then it is another one's."""

    def __init__(self, loop, context, door, connection):
        self._loop = loop
        self._context = context
        self._door = door
        self._connection = connection
        connection.predecessor = self

    def connection_made(self, transport):
        try:
            self._door.enter(self, host_of(transport))
        except Full:
            logger.error('a connection is refused: no descriptors are left')
        else:
            # Its socket goes on with another transport: this one reads, which
            # uvloop does whatever it is told here.
            self._own = socket.socket(fileno=os.dup(
                transport.get_extra_info('socket').fileno()))
            self._task = self._loop.create_task(self._shake_hands())
        transport.abort()

    async def _shake_hands(self):
        own, self._own = self._own, None
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._connection, own, ssl=self._context,
                ssl_handshake_timeout=PATIENCE)
        except OSError as error:
            logger.info('a connection without TLS: %s', error)
        finally:
            self._door.leave(self)

    def abort(self):
        self._task.cancel()
        if self._own is not None:  # it has not begun
            self._own.close()
