"""The ZEO connection of a client, as its event loop sees it: ZEO's own, which
begins and ends together with our channels (link).

When it begins to verify the cache with another server, or again with the same
one, the channels to the server before are closed, and answers of that server
are no longer kept (a new generation of the cache).  This is also where the
client notices that a server has lost what this client has seen, before the
cache is used again.

While the client looks for a server, each address has a connection
(zeoprotocol) that is open, or being made, or waits until its address may be
tried again (addresses).  ZEO does not do so: when a server has closed the
connection or refused it, ZEO does not try that address again as long as
another address does not answer, or is used although it can only be read.

The internals of ZEO that are used here were read from ZEO 6.2; tests/client
and tests/upstream fail when they move.
"""

import logging

from ZEO.asyncio.client import ClientIO
from ZEO.asyncio.client import Fallback
from ZEO.Exceptions import ClientDisconnected
from ZODB.utils import z64

from .. import wire
from .zeoprotocol import ZeoProtocol

logger = logging.getLogger(__name__)

#: How long a server may be silent depends on whether there is another one.
AUTO = 'auto'
#: Seconds, where there are several addresses.  A server of ours answers in
#: less than one, whatever its disk does; a stock one may be busy for ten or
#: more, for example with the end of a pack.
BESIDE_OTHERS = 30


class ZeoConnection(ClientIO):

    link = None
    #: A server has lost what this client has seen, and the transactions that
    #: saw it are not doomed yet: the connection may end before they are.
    lost = False

    def begin(self, link, addrs, addresses, may_be_silent):
        """`may_be_silent`: seconds for a server; None: for ever; or AUTO."""
        self.link = link
        self.addrs = addrs
        self._addresses = addresses
        self._said_may_be_silent = may_be_silent
        self.try_connecting()

    # Which server

    def try_connecting(self):
        if not self.closed:
            self.protocols = [self._try(address) for address in self.addrs]

    def _may_be_silent(self):
        """Seconds; None: for ever."""
        if self._said_may_be_silent != AUTO:
            return self._said_may_be_silent
        # With one server there is no other to go to: to give it up, because it
        # is busy with a huge vote, for example, only loses what is under way.
        return BESIDE_OTHERS if len(self.addrs) > 1 else None

    def _try(self, address):
        return ZeoProtocol(
            self._addresses, self._may_be_silent(), self.loop, address, self,
            self.storage_key, self.read_only, self.connect_poll, ssl=self.ssl,
            ssl_server_hostname=self.ssl_server_hostname)

    def _go_on_looking(self):
        """Try each address again whose connection has ended."""
        if not self.closed and (
                self.protocol is None or self._is_a_fallback(self.protocol)):
            open_ = {protocol.addr: protocol
                     for protocol in self.protocols if not protocol.closed}
            self.protocols = [
                open_.get(address) or self._try(address)
                for address in self.addrs]

    def _is_a_fallback(self, protocol):
        return self.read_only is Fallback and protocol.read_only

    async def register(self, protocol, server_tid):
        protocol.is_registered = True
        if self.protocol is not None and self._is_a_fallback(protocol):
            # No better than the one that is used.  It may become writable.
            protocol.close()
            self._addresses.refused(protocol.addr, self.register_failed_poll)
            self._go_on_looking()
        else:
            await super().register(protocol, server_tid)

    def server_is_silent(self, protocol, reason):
        """Nothing was heard on this connection for too long."""
        protocol.abort(reason)
        self.disconnected(protocol)

    async def verify(self, server_tid):
        self.link.leave()
        self.link.leave_file()
        protocol = self.protocol
        try:
            about = (await protocol.server_call('get_info')).get(
                'fsyncstorage', {})
            if about.get('alive') == wire.ALIVE:
                protocol.asks_by = 'alive'
            if (server_tid not in (None, self.cache.getLastTid())
                    and self._has_seen_nothing()):
                self.cache.begin_anew(server_tid)
            elif await self._has_lost_what_we_saw(server_tid, about):
                self.lost = True
                if self.cache.getLastTid() > server_tid:
                    self.cache.begin_anew(server_tid)  # else ZEO refuses
            await self.link.open_stream(about)
            await super().verify(server_tid)
        except Exception as error:
            # As ZEO does when it cannot verify, but whatever fails.
            self.protocol = None
            self.register_failed(protocol, error)
        else:
            if self.operational:
                protocol.used_since = self.loop.time()

    def _has_seen_nothing(self):
        """Is there only a last tid, perhaps that of an earlier process?

        Then nothing is cached, and no transaction has begun.
        """
        return (bool(self.cache) and not len(self.cache)
                and not self.client.has_db)

    async def _has_lost_what_we_saw(self, server_tid, about):
        """Has the server lost the last transaction that we know of?

        The same run of the server has lost nothing.  Another one that is
        behind us may be a copy that lags: its answer to `get_info` says by
        `lost` whether it may have lost something.  One that is ahead, without
        that transaction, has lost or forgotten it: in doubt it is lost.  If
        there is no database yet, no transaction has begun, and it is enough
        that ZEO drops the cache.
        """
        seen = self.cache.getLastTid()
        if seen in (z64, server_tid) or server_tid is None:
            return False
        if about.get('instance') == self.link.instance:
            return False
        if seen > server_tid:
            lost = about.get('lost')
            if not lost:
                logger.error(
                    '%s: the server is at %s, and this client has seen %s. If'
                    ' that is meant to be so, end this process, remove its'
                    ' cache file (%s), and start it again',
                    self.client.__name__, server_tid.hex(), seen.hex(),
                    self.cache.path or 'it has none')
        else:
            lost = self.client.has_db and (
                await self.protocol.server_call(
                    'getInvalidations', seen) is None)
        if lost:
            logger.warning(
                '%s: the server lost %s, the last transaction that this client'
                ' has seen, or has forgotten it; it is at %s. The cache is'
                ' dropped, and transactions that are under way fail',
                self.client.__name__, seen.hex(), server_tid.hex())
        return lost

    def register_failed(self, protocol, exc):
        if self.protocol in (None, protocol):
            # End what was opened for its verification, too.  If ZEO could not
            # get the answer to `get_info`, it does not forget the connection,
            # and would never try another one.
            self.link.leave()
            self.protocol = None
            if self.ready:  # None: there was none yet
                self.ready = False
        protocol.close()
        self._addresses.refused(protocol.addr, self.register_failed_poll)
        self._go_on_looking()
        super().register_failed(protocol, exc)  # says why

    async def await_operational_co(self, *args, **options):
        await super().await_operational_co(*args, **options)
        if not self.operational:  # it has gone before this could go on
            raise ClientDisconnected('the connection has ended again')

    def disconnected(self, protocol=None):
        if protocol is not None:
            self._note_end(protocol)
        if protocol is None or protocol is self.protocol:
            self.link.leave()
            super().disconnected(protocol)
        else:
            self._go_on_looking()

    def _note_end(self, protocol):
        if protocol is self.protocol and self.link.was_interrupted:
            return  # its server has not failed: it is tried again at once
        if (protocol.used_since is not None and self.connect_poll
                <= self.loop.time() - protocol.used_since):
            self._addresses.was_of_use()
        else:
            # Longer than where nobody listens: a server must accept each of
            # these connections, perhaps with a TLS handshake.
            self._addresses.failed(protocol.addr, 2 * self.connect_poll)

    def close(self):
        # Before the cache is closed: nothing may be kept there any more.
        self.link.leave()
        self.link.leave_file()
        return super().close()

    def invalidateTransaction(self, tid, oids):
        # As ZEO's, which gives the cache one object at a time.
        if len(tid) != len(z64):
            raise ValueError(f'a transaction id of {len(tid)} bytes')
        self.cache.invalidate_all(oids, tid)
        self.client.invalidateTransaction(tid, oids)
        self.cache.setLastTid(tid)

    def invalidate_together(self, changes):
        """Tell the database of several transactions, each a tid and its oids,
        as if they were one.

        Nobody sees a last tid between theirs.  In the cache, each object ends
        at its own tid: a connection to the past may ask for any of them.
        """
        if not self.client.may_be_told_together:
            for tid, oids in changes:
                self.invalidateTransaction(tid, oids)
            return
        self.cache.invalidate_each(changes)
        tid, _ = changes[-1]
        self.client.invalidateTransaction(
            tid, [oid for _, oids in changes for oid in oids])
        self.cache.setLastTid(tid)
