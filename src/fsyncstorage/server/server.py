"""The listening server: connections, all storages together.

It takes the arguments of ZEO's StorageServer, and stands in its place.
"""

import asyncio
import logging
import os
import socket
import weakref

import ZODB.event
from ZEO.asyncio.server import Acceptor
from ZEO.StorageServer import Closed
from ZEO.StorageServer import StorageServer

from .. import wire
from .accounts import Accounts
from .channel import Channel
from .channel import Refused
from .channel import admit
from .connection import Connection
from .connection import Traffic
from .door import CHANNEL
from .door import Door
from .door import Full
from .frames import Room
from .mailbox import Mailbox
from .service import Service
from .session import Session
from .tls import Secured

logger = logging.getLogger(__name__)

# Connections that may wait to be accepted: where there is no room for one, its
# client's system tries again a second later.  More would only wait longer: to
# let so many in, and send them away, takes half a second.
BACKLOG = 1024
# Connections that are let in before others have their turn: uvloop takes one.
AT_ONCE = 32
# Turns of the loop that those who are being accepted have when it closes.
TO_ACCEPT = 10
#: Seconds for the last replies to leave when the server closes.
FAREWELL = 1


class _Acceptor(Acceptor):

    _more_are_near = False

    def __init__(self, storage_server, addr, ssl, msgpack):
        self._ssl_context = ssl  # used behind the door
        self._listening = ()
        super().__init__(storage_server, addr, None, msgpack)
        self._listening = [
            socket.socket(fileno=os.dup(each.fileno()))
            for each in self.server.sockets]
        for each in self._listening:
            each.listen(BACKLOG)
            each.setblocking(False)

    def factory(self):
        if not self._more_are_near:
            self._more_are_near = True
            self.event_loop.call_soon(self._let_more_in)
        connection = self.storage_server.new_connection(
            self.event_loop, self.addr, self.msgpack)
        if self._ssl_context is None:
            return connection
        return Secured(self.event_loop, self._ssl_context,
                       self.storage_server.door, connection)

    def _let_more_in(self):
        """Those who wait behind one who was let in.

        Else the last of many would wait for as many turns of the loop.
        """
        self._more_are_near = False
        for listening in self._listening:
            for _ in range(AT_ONCE):
                try:
                    one, _ = listening.accept()
                except OSError:  # nobody, or nothing that we can do about
                    break
                self.event_loop.create_task(self._let_in(one))

    async def _let_in(self, one):
        try:
            await self.event_loop.connect_accepted_socket(self.factory, one)
        except OSError as error:
            logger.info('a connection that was lost at once: %s', error)

    def loop(self, timeout=None):
        """Serve, until somebody stops the loop."""
        self.event_loop.run_forever()
        if self.storage_server.said_farewell:
            self.close_loop()

    def stop_listening(self, turns=TO_ACCEPT):
        """First let those in who are being accepted, in tasks: asyncio would
        leave their sockets open, for their server is closed."""
        if turns and asyncio.all_tasks(self.event_loop):
            self.event_loop.call_soon(self.stop_listening, turns - 1)
        else:
            self._close_listening()

    def close_loop(self):
        self._close_listening()
        self.event_loop.close()

    def _close_listening(self):
        """However often it is called."""
        self.server.close()
        listening, self._listening = self._listening, ()
        for each in listening:
            each.close()


class Server(StorageServer):

    def __init__(self, addr, storages, *, invalidation_queue_size=100,
                 invalidation_age=None, transaction_timeout=None, **options):
        #: A random name of this server, as long as it lives.
        self.instance = os.urandom(16)
        self.connections = set()
        #: Accepted, and not among the connections yet.
        self.coming = weakref.WeakSet()
        self.services = {}
        self.traffic = Traffic()
        self.door = Door()
        self.accounts = Accounts()
        self.room = None  # for long frames; its loop is there with the first
        self._closing = False
        self.said_farewell = False
        super().__init__(addr, storages, Acceptor=_Acceptor, **options)
        self.mailbox = Mailbox(self.acceptor.event_loop)
        self.services = {
            name: Service(
                name, storage, self.zeo_storages_by_storage_id[name],
                self.stats[name], self.acceptor.event_loop, self.mailbox,
                queue_size=invalidation_queue_size,
                queue_age=invalidation_age,
                timeout=transaction_timeout)
            for name, storage in storages.items()}
        for service in self.services.values():
            service.start()

    # Connections

    def new_connection(self, loop, addr, msgpack):
        """The first may come before all of the server is there: it is read
        when it is."""
        if self.room is None:
            self.room = Room(loop)
        session = Session(self, self.read_only)
        session.connection = Connection(
            loop, addr, session, msgpack, self.traffic)
        self.coming.add(session.connection)
        return session.connection

    def open_channel(self, connection, hello):
        """The read channel that takes the place of a connection."""
        service = admit(self, hello)
        channel = Channel(
            connection.loop, connection.addr, service, self.accounts,
            self._forget)
        try:
            self.door.stay(connection, CHANNEL, channel)
        except Full:
            raise Refused(wire.TOO_MANY, 'no descriptors are left') from None
        self.connections.add(channel)
        self.connections.discard(connection)
        return channel

    def close_conn(self, session):
        super().close_conn(session)
        self._forget(session.connection)

    def _forget(self, connection):
        self.connections.discard(connection)
        self.door.leave(connection)
        if self.said_farewell:
            self._stop_behind_the_last()

    def _stop_behind_the_last(self):
        """Who is being accepted, in a task, is closed when it is made."""
        loop = self.acceptor.event_loop
        if not (self.connections or self.coming or asyncio.all_tasks(loop)):
            loop.stop()

    # What storages tell, from any thread (stock's StorageServerDB)

    def _setup_invq(self, name, storage):
        """Stock's hook; a Service keeps the queue."""

    def invalidate(self, session, storage_id, tid, oids):
        if self.services:  # else it is read with the rest when we begin
            self.mailbox.post(
                self.services[storage_id].changed_elsewhere, tid, oids)

    def _invalidateCache(self, storage_id):
        """Clients shall verify their caches: let them connect again."""
        if self.services:
            self.mailbox.post(
                self._reconnect_all, self.services[storage_id])

    def _reconnect_all(self, service):
        service.reset_invalidations()
        for session in list(service.sessions):
            session.connection.close()

    # Statistics

    def server_status(self, storage_id):
        status = self.services[storage_id].status()
        status['bytes-received'] = self.traffic.received
        status['bytes-sent'] = self.traffic.sent
        return status

    # The end

    def close(self, join_timeout=FAREWELL):
        """Answer what was finished, then close connections and storages."""
        if self._closing:
            return
        self._closing = True
        loop, acceptor = self.acceptor.event_loop, self.acceptor
        loop_is_elsewhere = loop.is_running()
        if loop_is_elsewhere:
            loop.call_soon_threadsafe(acceptor.stop_listening)
        else:
            acceptor.stop_listening()
        ZODB.event.notify(Closed(self))
        for service in self.services.values():
            service.close()
        for storage in self.storages.values():
            storage.close()
        if loop_is_elsewhere:
            loop.call_soon_threadsafe(self._say_farewell, loop)
        else:
            loop.call_soon(self._say_farewell, loop)
            loop.run_forever()
            acceptor.close_loop()

    def stop(self):
        """Return from `loop`, and then close.  For signal handlers."""
        loop = self.acceptor.event_loop
        loop.call_soon_threadsafe(loop.stop)

    def _say_farewell(self, loop):
        self.said_farewell = True
        self.mailbox.deliver()
        loop.call_later(FAREWELL, loop.stop)
        for connection in list(self.connections):
            connection.close()
        self.door.close(self.connections)
        self._stop_behind_the_last()
