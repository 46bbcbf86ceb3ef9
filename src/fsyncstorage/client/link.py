"""The connection to the server: ZEO's, and our channels in addition to it.

Loads use the read channels (reader) of a server that has them, and the ZEO
connection otherwise.  Transactions and invalidations use the commit channel
(stream) of a server that has one.  The messages of a transaction are gathered
until its vote (committing; outgoing for the ZEO connection).

All this belongs to the process that opened it; in a fork of that, loads fail.

The internals of ZEO that are used here were read from ZEO 6.2; tests/client
and tests/upstream fail when they move.
"""

import contextlib
import functools
import logging
import time

from ZEO.asyncio.client import ClientThread
from ZEO.Exceptions import ClientDisconnected

from .. import wire
from ..histogram import Histogram
from ..wire import commits
from ..wire import sessions
from .addresses import Addresses
from .channels import Channels
from .committing import Committing
from .finishing import Finishing
from .introduction import Introduction
from .localcounts import LocalCounts
from .opening import opening
from .outcome import finish
from .outcome import unknown_behind_silence
from .outgoing import Outgoing
from .plainprefetch import PlainPrefetches
from .process import Process
from .readchannel import Lost
from .reader import Reader
from .watch import is_possible
from .zeoconnection import ZeoConnection

logger = logging.getLogger(__name__)

# Messages of a transaction that are not answered before the vote.
GATHERED = {
    'storea', 'restorea', 'deleteObject', 'undoa', 'storeBlobShared',
    'checkCurrentSerialInTransaction'}

# Calls of a transaction that are answered.
ON_THE_STREAM = {'vote', 'tpc_abort'}


class Link(ClientThread):

    #: The server that was met last; None: it has no name, or there was none.
    instance = None
    #: It was a node of a log: another one goes on with the same history.
    is_node = False

    #: Reads without the server (LocalReads); None: there is none.
    local = None

    _reader = _outgoing = _stream = _introduction = None
    #: Both must be true before the stream is read: see `meet` and `moved`.
    _is_verified = _has_moved = False
    #: The server has not said yet whether there is a channel.
    _is_opening = False

    def __init__(self, addrs, storage, cache, storage_key, *args,
                 read_channels, local_reads=False, local_reads_socket=None,
                 local_blob_dir=None, server_timeout=None, ssl=None,
                 ssl_server_hostname=None):
        self._addrs = addrs
        self._server_timeout = server_timeout
        self.name = storage.__name__
        self._cache = cache
        self._storage_key = storage_key
        self._read_channels = read_channels
        self._local_reads = local_reads
        self._local_paths = local_reads_socket, local_blob_dir
        self._ssl = ssl
        self._ssl_server_hostname = ssl_server_hostname
        self._said_plain = False
        #: How long loads took that the cache did not answer, by their source.
        self.local_counts = LocalCounts()
        self.load_times = {'local': self.local_counts.times,
                           'channel': Histogram(), 'connection': Histogram()}
        self._committing = {}  # id of a transaction -> Committing
        self._plain_prefetches = PlainPrefetches(super().prefetch)
        self._process = Process('storage')
        # Without addresses: ZEO would connect before `setup_delegation`.
        super().__init__(
            (), storage, cache, storage_key, *args,
            ssl=ssl, ssl_server_hostname=ssl_server_hostname)

    def setup_delegation(self, loop):
        super().setup_delegation(loop)
        # ZEO has no hook for another class.  Its object has not run yet.
        self.client.__class__ = ZeoConnection
        self.client.begin(
            self, self._addrs, Addresses(), self._server_timeout)
        # ZEO has a method of the storage here; the marker may arrive before
        # the storage knows of us.
        self.client.info = functools.partial(self._info, self.client.info)

    @property
    def is_here(self):
        """False in a fork of the process that opened the storage."""
        return self._process.is_here

    # Which server (in the event loop)

    @property
    def was_interrupted(self):
        """The connection ends because of a thread of this process."""
        return self._stream is not None and self._stream.was_interrupted

    def leave(self):
        # First: no thread may take this connection for one without a stream.
        self.client.operational = False
        reader, self._reader = self._reader, None
        stream, self._stream = self._stream, None
        introduction, self._introduction = self._introduction, None
        self._is_verified = self._has_moved = False
        self._cache.new_generation()
        if stream is not None:
            stream.close('the connection has ended')
            # Now, as nothing was heard yet from the next server.
            stream.last_tid = self._cache.getLastTid()
            if stream.is_broken:
                self._cache.begin_anew(self._cache.getLastTid())
        if reader is not None:
            reader.close()
        if introduction is not None:
            introduction.end()

    def leave_file(self):
        """Before another server is looked at."""
        local, self.local = self.local, None
        if local is not None:
            local.close()

    async def open_stream(self, about):
        """Open the commit channel, if the server has one for this client.
        (A server of another version refuses it, and both log that.)"""
        instance, ticket = about.get('instance'), about.get('ticket')
        if not (is_possible and sessions.is_session(instance, ticket)):
            return
        address, hostname = self._peer()
        self._is_opening = True
        try:
            self._stream = await opening(
                self.loop, self.name, address, self._ssl, hostname,
                instance, ticket,
                self.client.protocol.protocol_version, self._invalid,
                self._stream_ended)
        except Lost as error:
            if self._has_moved:
                raise  # the cache is not verified, and ZEO tries again
            logger.warning(
                '%s: no commit channel to %s: %s; committing without',
                self.name, address, error)
        else:
            self._stream.check()
        finally:
            self._is_opening = False

    def _stream_ended(self, ended):
        """Called in any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._follow, ended)

    def _follow(self, ended):
        """The connection ends with its commit channel."""
        if ended is self._stream and self.client.protocol is not None:
            logger.info('%s: the commit channel has ended: %s', self.name,
                        ended.end_reason)
            self._reconnect()

    def _reconnect(self):
        protocol = self.client.protocol
        if protocol is not None:
            protocol.close()
            self.client.disconnected(protocol)

    def _info(self, tell_storage, info):
        tell_storage(info)
        if commits.MOVED in info:
            self.moved()

    def moved(self):
        """The last invalidation on the ZEO connection has come.

        If the client has given up the channel, the server will tell it nothing
        more: it needs another connection.
        """
        self._has_moved = True
        if self._stream is None and not self._is_opening:
            logger.info('%s: the server opened the commit channel too late',
                        self.name)
            self._reconnect()
        else:
            self._read_stream()

    def _read_stream(self):
        if self._has_moved and self._is_verified and self._stream is not None:
            self._stream.moved()

    def _invalid(self, events):
        """Called in the order of the stream."""
        # The verification of the cache may have handled some already.
        last = self._cache.getLastTid()
        if events[0].tid <= last:
            events = [each for each in events if each.tid > last]
        if events:
            self.client.invalidate_together(events)

    def meet(self, info):
        """A server was chosen, and the cache is verified."""
        about = info.get('fsyncstorage', {})
        self.is_node = (self._stream is not None
                        and isinstance(about.get('log'), bytes))
        if self._stream is not None:
            protocol = self.client.protocol
            protocol.sends_little()
            protocol.load_before = functools.partial(
                self._load_beside, protocol)
            self._is_verified = True
            self._read_stream()
        self.instance = about.get('instance')
        self._introduction = Introduction(
            self.loop, self.client.call_async, about)
        if self._local_reads and 'local' in about:
            from . import local  # its imports take milliseconds
            self.local = local.begin(
                self.name, self._cache, about['local'],
                *self._local_paths, self._introduction.reads_locally)
        mark = about.get('mark', wire.NO_MARK)
        lacks = self._lacks_for_channels(about.get('channel'), mark)
        if lacks is not None:
            if not self._said_plain:
                self._said_plain = True
                logger.info('%s: the server has no read channels%s; reading'
                            ' over the ZEO connection', self.name, lacks)
            return
        address, hostname = self._peer()
        self._reader = Reader(self._cache, *(
            Channels(self.name, most, address, self.instance,
                     self._storage_key, self._ssl, hostname, mark)
            for most in (self._read_channels, self._read_channels, 1)))

    def _lacks_for_channels(self, version, mark):
        """Why there are none, for a line of the log; None: there are."""
        if version is None:
            return ''
        if version != wire.VERSION:
            return ' of our version'
        if not wire.is_server(self.instance, mark):
            return ' that it has named as it should'
        return None

    def _peer(self):
        """The address that we are connected to, and its host name for TLS."""
        protocol = self.client.protocol
        if isinstance(protocol.addr, str):
            return protocol.addr, None
        host = protocol.addr[0] or '127.0.0.1'  # as in ZEO
        return protocol.get_peername()[:2], self._ssl_server_hostname or host

    # Reading

    def load_before(self, oid, tid):
        begun = time.monotonic()
        source, found = self._load_from(oid, tid)
        self.load_times[source].add(time.monotonic() - begun)
        return found

    def _load_from(self, oid, tid):
        """Where the answer came from, and the answer."""
        self._process.check()
        reader = self._reader
        if reader is not None:
            try:
                return 'channel', reader.load_before(oid, tid)
            except Lost as error:
                logger.debug('%s: %s', self.name, error)
        return 'connection', super().load_before(oid, tid)

    async def _load_beside(self, protocol, oid, tid):
        """A load on a ZEO connection whose invalidations come elsewhere.

        The answer is kept by the rule of read channels.  The server that gives
        it has announced everything that this client knows of.
        """
        load = self._cache.ask_beside(oid, tid)
        try:
            found = await protocol.call_sync('loadBefore', (oid, tid))
            if found:
                load.reply = wire.Found(0, load.since, *found)
            return found
        finally:
            self._cache.answered(load)

    def prefetch(self, oids, tid):
        """Ask for these objects; without a server, do nothing."""
        self._process.check()
        reader = self._reader
        local = self.local  # another thread may set it to None
        if local is not None:
            oids = local.prefetch(oids)
        if reader is not None:
            reader.prefetch(oids, tid)
        elif self.is_connected():
            self._plain_prefetches.add(oids, tid)

    @property
    def blob_channels(self):
        """The channels for blobs; None if the server has none."""
        self._process.check()
        reader = self._reader
        return None if reader is None else reader.blob_channels

    # Transactions: on the commit channel side by side, on the ZEO connection
    # one at a time, under the storage's commit lock.

    @property
    def stream(self):
        """The commit channel; None if there is none, or no server."""
        self._process.check()
        return self._stream if self.client.operational else None

    def stream_to_begin(self):
        """The commit channel for a transaction; None if there is none, or no
        server.  After a node of a log, wait for that of the next node."""
        if self.stream is None and self.is_node:
            return self.stream_behind(None, self.timeout)
        return self.stream

    def begin(self, stream, transaction, *description):
        # `transaction` is an id(): it may be that of a transaction object that
        # is gone, and whose abort was interrupted.
        self.over(transaction)
        if stream is not None:
            self._committing[transaction] = Committing(
                stream, transaction, *description)
            return
        protocol = self.client.protocol
        # In this order: a connection that ends is first not operational, then
        # without its stream; it sends nothing more (Outgoing).
        if (protocol is None or not self.client.operational
                or self._stream is not None):
            raise ClientDisconnected('not connected')
        self._outgoing = Outgoing(protocol, transaction, *description)

    def over(self, transaction):
        committing = self._committing.get(transaction)
        if committing is not None:
            # An interrupt may have come before its abort.  Forget it after
            # that: an interrupt may come here, too.
            if not committing.is_kept:
                with contextlib.suppress(ClientDisconnected):
                    committing.abort()
            del self._committing[transaction]

    def async_(self, method, *args):
        if method not in GATHERED:
            super().async_(method, *args)
        elif (committing := self._committing.get(args[-1])) is not None:
            committing.add(method, args)
        else:
            self._gather(self._outgoing.add, method, args)

    def send_blob(self, transaction, messages):
        committing = self._committing.get(transaction)
        if committing is not None:
            committing.add_iterator(messages)
        else:
            self._gather(self._outgoing.add_iterator, messages)

    def _gather(self, add, *args):
        add(*args)
        if self._outgoing.full:
            self._let_leave(self._outgoing.send(self.client))

    def _let_leave(self, coroutine, wait=True):
        # Noted first: even if this thread is interrupted, it will leave.
        self._outgoing.begun = True
        return self.io_call(coroutine, wait)

    def call(self, method, *args, wait=True, **options):
        self._process.check()
        if method == 'ping':
            return self._ping(**options)
        committing = method in ON_THE_STREAM and self._committing.get(args[0])
        if committing and method == 'vote':
            return self._vote(committing)
        if committing:
            with contextlib.suppress(ClientDisconnected):
                return committing.abort()
            # As without a connection: ZEO waits for the next one.
            if committing.has_waited:
                return None  # that was done
        elif method == 'vote':
            return self._let_leave(
                self._outgoing.vote(self.client, *args), wait)
        elif method == 'tpc_abort' and self._forget(*args):
            return None
        return super().call(method, *args, wait=wait, **options)

    def _ping(self, timeout=None):
        """When this returns, all earlier commits are visible."""
        stream = self.stream
        if stream is None or stream.end_reason is not None:
            stream = self.io_call(self._ping_beside(
                stream, self.timeout if timeout is None else timeout))
        if stream is not None:
            stream.ping()

    async def _ping_beside(self, ended, timeout):
        """Ping over the ZEO connection; or, if invalidations come on a stream,
        return that stream, for the caller to ping."""
        stream = await self._stream_behind(ended, timeout)
        if stream is None:
            await self.client.protocol.call_sync('ping', ())
        return stream

    def stream_behind(self, ended, timeout):
        """The stream of the next connection; None if that has none."""
        return self.io_call(self._stream_behind(ended, timeout))

    @staticmethod
    def _io_call_after_closure(coroutine, *args, **options):
        coroutine.close()  # else Python warns that nobody has awaited it
        raise ClientDisconnected('this storage is closed')

    async def _stream_behind(self, ended, timeout):
        if ended is not None:
            self._follow(ended)
        if not self.client.operational:
            await self.client.await_operational_co(timeout)
        return self._stream

    def committing(self, transaction):
        """The Committing; None: not begun, over, or without commit channel."""
        return self._committing.get(transaction)

    def _vote(self, committing):
        """On ClientDisconnected, it is not committed, and never will be."""
        trip = committing.trip
        if trip is None:
            return committing.vote()
        return finish(self, committing, self._finishing(trip.written, trip.f),
                      committing.vote_and_finish)

    def tpc_finish(self, transaction, updates, f, **options):
        self._process.check()
        committing = self._committing.get(transaction)
        if committing is None:
            with unknown_behind_silence():
                return super().tpc_finish(transaction, updates, f, **options)
        finish(self, committing, self._finishing(updates, f),
               committing.finish)
        return committing.finishing.tid

    def _finishing(self, updates, f):
        return Finishing(self.client.client, self._cache, updates, f)

    def _forget(self, transaction):
        """Forget it; return True if the server need not be told.

        This is also called for transactions other than that of `_outgoing`,
        for some twice.  Without a connection, ZEO's abort is called even if
        the server has not heard of the transaction: it waits for the next
        connection, so that the next try finds one.
        """
        outgoing = self._outgoing
        if outgoing is None or outgoing.transaction != transaction:
            return False
        self._outgoing = None
        return not outgoing.begun and self.client.operational
