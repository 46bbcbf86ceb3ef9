"""The ZEO connection to one address: before a server is chosen there may be
several, and then one of them is used (zeoconnection).

It is ZEO's own, but for four things: it tries its address again when
`addresses` says so; `liveness` checks it as soon as the connection is made; it
ends soon when it is closed, even if the server does not take what was written
to it; and it checks what a server says before the client uses it, since that
may be anything.

The internals of ZEO that are used here were read from ZEO 6.2; tests/client
and tests/upstream fail when they move.
"""

import asyncio
import logging

from ZEO.asyncio.client import Protocol
from ZEO.shortrepr import short_repr

from ..wire import PeerError
from .liveness import Liveness
from .liveness import Silent
from .sockets import SECONDS_OF_LITTLE
from .sockets import Counted
from .sockets import keep_alive
from .sockets import unread
from .sockets import was_given_up

logger = logging.getLogger(__name__)

# Seconds in which written data may leave when a connection is closed.  With
# TLS the other side must answer, too.
CLOSED_WITHIN = 1

# Bytes that a server may send before it has taken this client: its greeting,
# and one answer.
MOST_BEFORE_REGISTERED = 1 << 20


def _is_tid(answer):
    return answer is None or isinstance(answer, bytes) and len(answer) == 8


def _is_description(answer):
    return (isinstance(answer, dict)
            and isinstance(answer.get('fsyncstorage', {}), dict)
            and isinstance(answer.get('interfaces', ()), (tuple, list)))


_CHECKS = {'register': _is_tid, 'lastTransaction': _is_tid,
           'get_info': _is_description}


class ZeoProtocol(Protocol):

    #: The server has taken this client, and answers calls.
    is_registered = False
    #: The call that the server answers at once, whatever else it does.
    asks_by = 'ping'
    #: When the client began to use it, by the clock of the loop; None: it has
    #: not.
    used_since = None
    _liveness = _transport = _abort = None
    _has_heard = False
    _received_before = 0

    def __init__(self, addresses, may_be_silent, *args, **options):
        """`may_be_silent`: seconds; None: for ever."""
        self._addresses = addresses
        self._may_be_silent = may_be_silent
        super().__init__(*args, **options)

    # Connecting

    def connect(self):
        self._connecting = self.loop.create_task(self._connect())

    async def _connect(self):
        said = None
        while not self.closed:
            await asyncio.sleep(self._addresses.wait(self.addr))
            try:
                return await self._create_connection()
            except Exception as error:
                self._addresses.failed(self.addr, self.connect_poll / 2)
                if str(error) != said:
                    said = str(error)
                    logger.info('no connection to %s: %s', self.addr, said)

    def _create_connection(self):
        def this():
            return self

        if not isinstance(self.addr, tuple):
            return self.loop.create_unix_connection(
                this, self.addr, ssl=self.ssl)
        host, port = self.addr
        return self.loop.create_connection(
            this, host or '127.0.0.1', port, ssl=self.ssl,
            server_hostname=self.ssl_server_hostname)

    def connection_made(self, transport):
        self._transport = Counted(transport)
        super().connection_made(self._transport)
        self._note_what_comes()
        keep_alive(transport.get_extra_info('socket'))
        if self._may_be_silent is None or self.closed:
            return
        self._liveness = Liveness(
            self.loop, self._may_be_silent, self, f'the server {self.addr}')

    def sends_little(self):
        """There is a commit channel, for all that may be large."""
        keep_alive(self._transport.get_extra_info('socket'),
                   SECONDS_OF_LITTLE)

    def _note_what_comes(self):
        """Note each piece of a message that takes long to arrive, too."""
        received = self.data_received

        def data_received(data):
            self._has_heard = True
            if not self.is_registered:
                self._check_room(len(data))
            received(data)

        self.data_received = data_received

    def _check_room(self, size):
        self._received_before += size
        if self._received_before > MOST_BEFORE_REGISTERED:
            logger.warning(
                '%s: the connection is ended', f'the server {self.addr} has'
                f' sent {self._received_before} bytes before it has taken'
                f' this client')
            self._transport.abort()

    async def server_call(self, method, *args):
        answer = await super().server_call(method, *args)
        if method in _CHECKS and not _CHECKS[method](answer):
            raise PeerError(f'the server {self.addr} answers {method} by'
                            f' {short_repr(answer)}')
        return answer

    # For liveness

    def is_silent(self):
        connection = self._transport.get_extra_info('socket')
        has_heard, self._has_heard = self._has_heard, False
        # A server that takes what waits to leave is there, however slow it is.
        is_taken = self._transport.is_taken()
        return not (has_heard or unread(connection) or is_taken
                    or self._waits_for_its_turn())

    def _waits_for_its_turn(self):
        """Has the server greeted, and was not yet asked to register?  It owes
        nothing while another address is being verified."""
        return not (self.protocol_version is None or self.futures
                    or self.is_registered)

    def ask_for_a_sign(self):
        """By a call that the server answers in its loop, and for which it
        needs nothing."""
        if self.is_registered:
            answer = self.call_sync(self.asks_by, ())
            # If the connection ends, its exception must not be logged.
            answer.add_done_callback(lambda answer: answer.exception())

    def give_up(self, reason):
        self.client.server_is_silent(self, reason)

    # Ending

    def close(self, exc=None):
        if self._liveness is not None:
            self._liveness.end()
        super().close(exc)
        if self._transport is not None and self._abort is None:
            self._abort = self.loop.call_later(
                CLOSED_WITHIN, self._transport.abort)

    def abort(self, reason):
        """Close it, and let nothing more leave."""
        self.close(reason)
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc):
        if not self.closed and was_given_up(exc):
            exc = Silent(f'nothing was heard from the server {self.addr}:'
                         f' {exc}')
            logger.warning('%s: the connection is ended', exc)
        super().connection_lost(exc)  # it closes itself
        if self._abort is not None:
            self._abort.cancel()
        self._transport = None
