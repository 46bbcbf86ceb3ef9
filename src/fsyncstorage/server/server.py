"""The listening server: connections, all storages together.

It takes the arguments of ZEO's StorageServer, and replaces it.
"""

import asyncio
import contextlib
import functools
import itertools
import os
import socket
from collections.abc import Callable
from collections.abc import Iterable
from typing import Any

import ZODB.event
from ZEO.StorageServer import Closed
from ZEO.StorageServer import StorageServer

from ..metrics import exporters
from ..storage import conflicts
from . import handout
from .accounts import Accounts
from .clients import Tally
from .connection import Connection
from .door import Door
from .hosting import replica_of
from .incoming import Room
from .listening import Listener
from .oursession import OurSession
from .readers import ReaderProcesses
from .readers import number_of_processes
from .service import Service
from .service import Traffic
from .session import Session
from .threads import Mailbox
from .threads import attempt

#: Seconds for the last replies to leave when the server closes.
FAREWELL = 1


class Server(StorageServer):

    def __init__(self, addr: Any, storages: dict[str, Any], *,
                 invalidation_queue_size: int = 100,
                 invalidation_age: float | None = None,
                 transaction_timeout: float | None = None,
                 metrics: exporters.Address | None = None,
                 greets_as_stock: bool = False,
                 tls_from: str | None = None,
                 **options: Any) -> None:
        """The arguments of StorageServer; `metrics` is the address at which
        all storages are shown, in addition to the addresses that they name
        themselves.  If it greets as stock, our own clients take it for stock,
        unless they are told otherwise.  `tls_from` is the configuration file
        that has `ssl`: without it, no process can read for clients over TLS.
        """
        #: A random name for this run of the server.
        self.instance = os.urandom(16)
        #: Called before each answer: may it leave?  None: always.
        self.may_answer: Callable[[], bool] | None = None
        for storage in storages.values():  # at most one is a node (hosting)
            if (replica := replica_of(storage)) is not None:
                self.may_answer = replica.may_answer
        self.connections: set[Connection] = set()
        self.services: dict[str, Service] = {}
        #: Of each client of ours, by the mark with which its readers name it.
        self.tallies: dict[bytes, Tally] = {}
        self.numbers = itertools.count(1)
        self.traffic = Traffic()
        self.door = Door()
        self.accounts = Accounts()
        self._closing = False
        self.said_farewell = False
        super().__init__(
            addr, storages,
            Acceptor=functools.partial(Listener, as_stock=greets_as_stock),
            **options)
        if self.client_conflict_resolution:
            for storage in storages.values():
                # Stock's method raises an error that unpickles the record.
                storage.tryToResolveConflict = conflicts.leave
        self.room = Room(self.acceptor.event_loop)  # for long frames
        self.mailbox = Mailbox(self.acceptor.event_loop)
        self.services = {
            name: Service(
                name, storage, self.zeo_storages_by_storage_id[name],
                self.stats[name], self.acceptor.event_loop, self.mailbox,
                queue_size=invalidation_queue_size,
                queue_age=invalidation_age,
                timeout=transaction_timeout,
                resolves_conflicts=not self.client_conflict_resolution)
            for name, storage in storages.items()}
        for service in self.services.values():
            service.start()
            if service.handout is not None:
                self.door.set_aside(handout.DESCRIPTORS)
        self.readers = self._reader_processes(options.get('ssl'), tls_from)
        #: Storages that are shown at the server's own address for metrics.
        self._shown: list[exporters.Showing] = []
        self._show(metrics)

    def _reader_processes(self, ssl: object,
                          tls_from: str | None) -> ReaderProcesses:
        offered = {name: service for name, service in self.services.items()
                   if service.handout is not None}
        if self.may_answer is not None or (ssl and tls_from is None):
            # A process that was frozen could answer when another node leads.
            offered = {}
        return ReaderProcesses(
            offered, self.instance, self.acceptor.greeting, self.tallies,
            self.mailbox, number_of_processes(
                [service.storage.readers for service in offered.values()]),
            tls_from if ssl else None)

    def _show(self, address: exporters.Address | None) -> None:
        for name, service in self.services.items():
            own = _own_showing(service.storage)
            if own is not None:
                own.served_by(service, self.traffic)
            if address is not None and (
                    own is None or own.address != address):
                shown = exporters.Showing(address, name, service.storage)
                shown.served_by(service, self.traffic)
                self._shown.append(shown)

    def _hide(self) -> None:
        for service in self.services.values():
            own = _own_showing(service.storage)
            if own is not None:
                own.served_no_more()
        for shown in self._shown:
            shown.hide()

    # Connections

    def new_connection(self, listener: Listener, newcomer: Any,
                       own: socket.socket) -> Connection:
        session = Session(self, self.read_only)
        connection = Connection(listener, session, newcomer, own)
        session.connection = connection
        return connection

    def close_conn(self, session: Session) -> None:
        super().close_conn(session)
        self.forget(session.connection)

    def forget(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.door.leave(connection)
        if self.said_farewell:
            self._stop_behind_the_last()

    def _stop_behind_the_last(self) -> None:
        if not (self.connections or self.acceptor.newcomers):
            self.acceptor.event_loop.stop()

    # Called by storages from any thread (stock's StorageServerDB)

    def _setup_invq(self, name: str, storage: Any) -> None:
        """Stock's hook; here, a Service keeps the queue."""

    def invalidate(self, session: Session | None, storage_id: str, tid: bytes,
                   oids: Iterable[bytes]) -> None:
        if self.services:  # else each Service reads it when it is made
            self.mailbox.post(
                self.services[storage_id].changed_elsewhere, tid, oids)

    def _invalidateCache(self, storage_id: str) -> None:
        """Make clients verify their caches, by disconnecting them."""
        if self.services:
            self.mailbox.post(
                self._reconnect_all, self.services[storage_id])

    def _reconnect_all(self, service: Service) -> None:
        service.end_all()
        service.reset_invalidations()

    def may_answer_at_last(self) -> bool:
        """`may_answer`, but always true for the last answers: they tell of
        commits, and are true even if another node leads by now."""
        return (self.may_answer is None or self.said_farewell
                or self.may_answer())

    # Statistics

    def server_status(self, storage_id: str) -> dict[str, Any]:
        status = self.services[storage_id].status()
        status['bytes-received'] = self.traffic.received
        status['bytes-sent'] = self.traffic.sent
        return status

    # The end

    def close(self, join_timeout: float = FAREWELL) -> None:
        """Answer what was finished; close the storages and connections."""
        if self._closing:
            return
        self._closing = True
        self._hide()
        try:
            self._close()
        finally:
            self._close_readers()
            for shown in self._shown:
                shown.close()

    def _close(self) -> None:
        loop, acceptor = self.acceptor.event_loop, self.acceptor
        loop_is_elsewhere = loop.is_running()
        if loop_is_elsewhere:
            self.soon(acceptor.stop_listening)
        else:
            acceptor.stop_listening()
        ZODB.event.notify(Closed(self))
        for service in self.services.values():
            service.close()
        for storage in self.storages.values():
            storage.close()
        if loop_is_elsewhere:
            self.soon(self._say_farewell, loop)
        else:
            loop.call_soon(self._say_farewell, loop)
            loop.run_forever()
            acceptor.close_loop()

    def _close_readers(self) -> None:
        """They belong to the loop; the last thing that it does closes them,
        too."""
        if self.acceptor.event_loop.is_running():
            with contextlib.suppress(RuntimeError):  # it is closed now
                self.soon(self.readers.close)
        else:
            self.readers.close()
        self.readers.join()

    def soon(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call it in the loop.  From any thread."""
        self.acceptor.event_loop.call_soon_threadsafe(function, *arguments)

    def hang_up(self) -> None:
        """Close the port, and then all connections, without another answer,
        until `acceptor.go_on`.

        Called in any thread: the sockets are shut at once, even while the loop
        waits for a disk that does not answer."""
        self.acceptor.refuse()
        for connection in list(self.connections):
            connection.shut()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.soon(self._end_all)

    def _end_all(self) -> None:
        for connection in list(self.connections):
            connection.abort()

    def stop(self) -> None:
        """Make `loop` return, so that the server closes.  For signal handlers.
        While it closes, and afterwards, this changes nothing."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.soon(self._end_loop if self.may_answer is None
                      else self.leave_to_another)

    def leave_to_another(self) -> None:
        """End the streams, then the loop.  Called in the loop.

        Clients of ours go on at the next server, and learn there what became
        of their commits.  The streams end at once, without more answers: a
        client that gets one would send more requests, which would be lost.
        """
        if self._closing:
            return
        self.acceptor.stop_listening()
        for connection in self._streams():
            connection.abort()
        # After the ends of these connections.
        self.acceptor.event_loop.call_soon(self._end_loop)

    def _end_loop(self) -> None:
        if not self._closing:  # else it runs again, for the last answers
            self.acceptor.event_loop.stop()

    def _streams(self) -> list[Connection]:
        return [each for each in self.connections
                if isinstance(each.session, OurSession)]

    def _say_farewell(self, loop: asyncio.AbstractEventLoop) -> None:
        self.said_farewell = True
        loop.call_later(FAREWELL, self._leave_the_rest, loop)
        self.mailbox.deliver()
        for service in self.services.values():
            attempt(service.announce)  # what was published last
        # Before any client sees a connection end.
        for each in self._streams():
            attempt(each.session.say_goodbye)
        self.readers.close()
        for connection in list(self.connections):
            connection.close()
        self._stop_behind_the_last()

    def _leave_the_rest(self, loop: asyncio.AbstractEventLoop) -> None:
        """Of peers that do not take their last answers."""
        for connection in list(self.connections):
            attempt(connection.abort)
        loop.call_later(FAREWELL, loop.stop)  # whatever fails in their ends


def _own_showing(storage: Any) -> exporters.Showing | None:
    """The Showing of a storage of ours, also if it is wrapped."""
    own = getattr(storage, 'metrics', None)  # of others, it may be anything
    return own if isinstance(own, exporters.Showing) else None
