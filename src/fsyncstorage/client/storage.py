"""FsyncClient: the storage that ZODB sees.

It is ZEO's ClientStorage, with our own connection (link), cache of objects
(cache) and cache of blobs (blobs).
"""

import logging
import os
import threading
from collections.abc import Callable
from typing import Any
from typing import BinaryIO

from ZEO.ClientStorage import MB
from ZEO.Exceptions import ClientDisconnected
from ZODB.blob import BlobFile
from ZODB.mvccadapter import MVCCAdapter
from ZODB.POSException import POSKeyError
from ZODB.POSException import ReadConflictError
from ZODB.POSException import ReadOnlyError
from ZODB.POSException import StorageTransactionError

from ..format import UNCERTAIN
from ..histogram import Histogram
from . import blobfetch
from .blobs.blobcache import BlobCache
from .blobs.directory import MODE
from .blobs.download import Download
from .cache import Cache
from .connection import use_our_connection
from .doom import REASON
from .doom import Doom
from .link import Link
from .onetrip import OneTrip
from .outgoing import blob_messages
from .packs import Packs
from .readchannel import Lost
from .written import Written
from .zeoconnection import AUTO

logger = logging.getLogger(__name__)

DEFAULT_READ_CHANNELS = 4
# Seconds
SHORTEST_SERVER_TIMEOUT = 1
FILLS = 'commit', 'load'
LOCAL_READS = 'auto', 'off'
MODES = 0o400, 0o440, 0o444


class FsyncClient(OneTrip):

    # The blob cache; None without a directory, or with a shared one.
    _blobs: BlobCache | None = None

    #: Several transactions may be announced as one: a database of ZODB takes
    #: that.  A server that has this storage tells its own clients of each one,
    #: and so may any class with its own methods for that.
    may_be_told_together = False

    def __init__(self, addr: Any, storage: str = '1',
                 cache_size: int = 20 * MB, name: str = '',
                 wait_timeout: float | None = None, *, cache: Any = None,
                 client: str | None = None, var: str | None = None,
                 blob_dir: str | None = None, shared_blob_dir: bool = False,
                 blob_cache_size: int | None = None,
                 blob_cache_size_check: int | None = None,
                 blob_cache_fill: str = 'commit', blob_cache_mode: int = MODE,
                 read_channels: int = DEFAULT_READ_CHANNELS,
                 local_reads: str = 'auto',
                 local_reads_socket: str | None = None,
                 local_blob_dir: str | None = None,
                 server_timeout: float | str | None = AUTO,
                 **options: Any) -> None:
        """The arguments of ClientStorage, and some of our own.

        :param int blob_cache_size: bytes that the files in `blob_dir` may take
            together; None: no limit.
        :param blob_cache_size_check: is ignored: the limit always holds.
        :param str blob_cache_fill: ``commit``: blobs of the client's commits
            go into the cache, too; ``load``: only blobs that it loads.
        :param int blob_cache_mode: mode of the files in the blob cache: 0o400,
            0o440 or 0o444.  Their readers may enter their directories.
        :param int read_channels: how many connections for reading are opened
            at most; as many again for blobs, and one for prefetches.
        :param str local_reads: ``auto``: read objects from the data file of a
            server that is on this machine and offers it; ``off``: never.
        :param str local_reads_socket: the path of that server's socket for
            local reads, if it is not the one that the server names.
        :param str local_blob_dir: the path of that server's directory of
            blobs, if it is not the one that the server names.
        :param float server_timeout: seconds after which a server is given up
            if nothing is heard from it, though it was asked; None: never;
            ``auto``: 30, or never, if there is only one address.
        """
        checked_server_timeout(server_timeout)
        checked_blob_cache_fill(blob_cache_fill)
        checked_blob_cache_mode(blob_cache_mode)
        checked_read_channels(read_channels)
        checked_local_reads(local_reads)
        if blob_cache_size_check is not None:
            logger.info('blob-cache-size-check is ignored: the size of the'
                        ' blob cache always holds')
        self._transfers = blobfetch.Transfers()
        self._doom = Doom()
        self._iterating = threading.RLock()
        #: Progress, cancel and forecast of packs.
        self.packs = Packs(lambda *args: self._call(*args))
        if blob_dir is not None and not shared_blob_dir:
            self._blobs = BlobCache(
                blob_dir, blob_cache_size, self._fetch_blob, blob_cache_fill,
                blob_cache_mode)

        def connect(*args: Any, **more: Any) -> Link:
            return Link(*args, read_channels=read_channels,
                        local_reads=local_reads == 'auto',
                        local_reads_socket=local_reads_socket,
                        local_blob_dir=local_blob_dir,
                        server_timeout=server_timeout, **more)

        try:
            super().__init__(
                addr, storage, cache_size, name, wait_timeout,
                cache=_cache(cache, client, var, storage, cache_size),
                blob_dir=blob_dir, shared_blob_dir=shared_blob_dir,
                _client_factory=connect, **options)
        except BaseException:
            self._close_blobs()
            raise

    @property
    def has_db(self) -> bool:
        """Is there a database, whose transactions may have begun?"""
        return self._db is not None

    def registerDB(self, db: Any) -> None:
        # A method of a derived class may want to hear of each transaction.
        self.may_be_told_together = (
            getattr(type(db), 'invalidate', None) is MVCCAdapter.invalidate
            and type(self).invalidateTransaction
            is FsyncClient.invalidateTransaction)
        if isinstance(db, MVCCAdapter):
            use_our_connection()
        super().registerDB(db)

    def notify_connected(self, connection: Any, info: dict[str, Any]) -> None:
        super().notify_connected(connection, info)
        self.packs.version = info.get('fsyncstorage', {}).get('packs')
        # A restarted server may give the same oids to others.
        self._oids.clear()
        if connection.lost:
            self._doom.fall(self._db, self.lastTransaction())
            connection.lost = False
        connection.link.meet(info)

    def close(self) -> None:
        super().close()
        self._close_blobs()

    def _close_blobs(self) -> None:
        if self._blobs is not None:
            self._blobs.close()

    # Figures

    def stats(self) -> dict[str, Any]:
        """Figures for monitoring, as a dictionary; counted since the storage
        was opened."""
        _, _, evictions, _, hits = self._cache.getStats()
        local = self._server.local
        times = self._server.load_times
        return {'connected': self.is_connected(), 'cache_hits': hits,
                'cache_misses': times['channel'].count
                + times['connection'].count,
                'cache_evictions': evictions,
                'reads_locally':
                local is not None and local.source is not None,
                'local_reads': self._server.local_counts.loads,
                **({} if self._blobs is None else self._blobs.stats())}

    def load_times(self) -> dict[str, Histogram]:
        """How long loads took that the cache did not answer, by their source:
        the data file, read here (local; one in 16 is timed), a read channel,
        or the ZEO connection."""
        times: dict[str, Histogram] = self._server.load_times
        return times

    # Objects that are read

    def loadBefore(self, oid: bytes,
                   tid: bytes) -> tuple[bytes, bytes, bytes | None] | None:
        # While the load waits, the server may lose what its transaction has
        # seen.
        try:
            local = self._server.local
            found: Any = UNCERTAIN
            if local is not None:
                found = self._server.local_counts.counted(
                    local.load_before, oid, tid)
            if found is UNCERTAIN:
                found = super().loadBefore(oid, tid)
        except POSKeyError:
            if not self._doom.refuses(tid):
                raise
        else:
            if not self._doom.refuses(tid):
                return found
        raise ReadConflictError(REASON, oid=oid)

    # Blobs that are read

    def loadBlob(self, oid: bytes, serial: bytes) -> str:
        if self._blobs is None:
            return super().loadBlob(oid, serial)
        return (self._local_blob(oid, serial)
                or self._blobs.load(oid, serial))

    def _local_blob(self, oid: bytes, serial: bytes) -> str | None:
        """The path of a blob in the server's directory, on this machine."""
        local = self._server.local
        return None if local is None else local.blob_path(oid, serial)

    def _opened_local_blob(self, oid: bytes, serial: bytes,
                           blob: Any = None) -> BinaryIO | None:
        path = self._local_blob(oid, serial)
        if path is None:
            return None
        try:
            return (open(path, 'rb') if blob is None
                    else BlobFile(path, 'r', blob))
        except OSError:  # a pack has removed it
            return None

    def openCommittedBlobFile(self, oid: bytes, serial: bytes,
                              blob: Any = None) -> BinaryIO:
        if self._blobs is None:
            return super().openCommittedBlobFile(oid, serial, blob)
        return (self._opened_local_blob(oid, serial, blob)
                or self._blobs.open(oid, serial, blob))

    def leaseBlob(self, oid: bytes, serial: bytes,
                  seconds: float = 60) -> str | None:
        """The path of a file in the cache, which is kept there in preference
        to others for `seconds`.

        None: it is not there (`loadBlob` brings it into the cache).
        """
        if self._blobs is not None:
            return self._blobs.lease(oid, serial, seconds)
        try:
            return super().loadBlob(oid, serial)
        except POSKeyError:
            return None

    def openArriving(self, oid: bytes, serial: bytes) -> BinaryIO:
        """As openCommittedBlobFile, but without waiting for all of the blob.

        A blob that is in the cache, or short, is opened as a usual file.  Any
        other is a file without a descriptor (arriving), which reads the bytes
        that have arrived, and waits for more.  For either, `seek` to the end
        returns the size.
        """
        if self._blobs is None:
            return super().openCommittedBlobFile(oid, serial)
        return (self._opened_local_blob(oid, serial)
                or self._blobs.open_arriving(oid, serial))

    def _fetch_blob(self, oid: bytes, serial: bytes,
                    download: Download) -> None:
        falls = self._doom.falls
        try:
            self._fetch(oid, serial, download)
        except POSKeyError:
            if falls == self._doom.falls:
                raise
            # The server lost the blob while we waited.
            raise ReadConflictError(REASON, oid=oid) from None

    def _fetch(self, oid: bytes, serial: bytes, download: Download) -> None:
        if self._server.is_closed():
            raise ClientDisconnected('this storage is closed')
        channels = self._server.blob_channels
        if channels is not None:
            try:
                blobfetch.by_channel(channels, oid, serial, download)
                return
            except Lost as error:
                logger.debug('%s: %s', self.__name__, error)
        if not self.is_connected():
            # This raises its own error if no server comes; `Interrupted` would
            # be retried, with another wait each time.
            self._wait()
        self._transfers.fetch(self._call, oid, serial, download)

    # Over the ZEO connection

    def receiveBlobStart(self, oid: bytes, serial: bytes) -> None:
        self._transfers.start(oid, serial)

    def receiveBlobChunk(self, oid: bytes, serial: bytes,
                         chunk: bytes) -> None:
        self._transfers.piece(oid, serial, chunk)

    def receiveBlobStop(self, oid: bytes, serial: bytes) -> None:
        self._transfers.stop(oid, serial)

    # Transactions

    def tpc_begin(self, txn: Any, tid: bytes | None = None,
                  status: str = ' ') -> None:
        """As ZEO's, but the buffer for what is written is ours (written)."""
        if self._is_read_only:
            raise ReadOnlyError()
        if not hasattr(txn, 'data'):  # the record of a copied transaction
            data: dict[Any, Any] = {}
            txn.data, txn.set_data = data.__getitem__, data.__setitem__
        if self._written(txn) is not None:
            raise StorageTransactionError(
                'Duplicate tpc_begin calls for same transaction')
        written = Written(self._connection_generation)
        try:
            stream = self._server.stream_to_begin()
            if stream is None:
                written.hold(self._commit_lock)
                # There may be another connection now.
                written.connection_generation = self._connection_generation
                stream = self._server.stream
            self._tbuf = written
            txn.set_data(self, written)
            self._server.begin(
                stream, id(txn), txn.user, txn.description, txn.extension,
                tid, status)
        except BaseException:
            if self._written(txn) is None:
                written.close()
            else:
                self.tpc_end(txn)
            raise

    def _check_trans(self, trans: Any, meth: str) -> Any:
        """As ZEO's; but a commit channel itself says whether it still exists.
        """
        written = self._written(trans)
        if written is not None and self._server.committing(id(trans)):
            written.connection_generation = self._connection_generation
        return super()._check_trans(trans, meth)

    def tpc_end(self, txn: Any) -> None:
        """As ZEO's; but with the commit channel there is no lock to free."""
        written = self._written(txn)
        if written is not None:
            self._server.over(id(txn))
            # In this order: an interrupted end is repeated.
            written.close()
            txn.set_data(self, None)

    def _written(self, txn: Any) -> Written | None:
        """What it wrote; None if it was not begun here, or is over."""
        try:
            return txn.data(self)
        except KeyError:
            return None

    # Iterators.  At the end of each transaction ZEO checks which iterators are
    # gone.  Its tables are for one thread, but here several finish at a time.

    def _setup_iterator(self, *args: Any) -> Any:
        with self._iterating:
            return super()._setup_iterator(*args)

    def _forget_iterator(self, iid: Any) -> None:
        with self._iterating:
            super()._forget_iterator(iid)

    def _iterator_gc(self, disconnected: bool = False) -> None:
        if self._iterator_ids:
            with self._iterating:
                super()._iterator_gc(disconnected)

    # Blobs that are written

    def storeBlob(self, oid: bytes, serial: bytes, data: bytes,
                  blobfilename: str, version: str, txn: Any) -> None:
        if self._blobs is None:
            return super().storeBlob(
                oid, serial, data, blobfilename, version, txn)
        transaction = self._check_trans(txn, 'storeBlob')
        # From now on the file is ours, and no longer at the caller's path.
        staged = self._blobs.stage(blobfilename)
        transaction.storeBlob(oid, staged)
        self.store(oid, serial, data, version, txn)
        self._server.send_blob(
            id(txn), blob_messages(staged, oid, serial, data, id(txn)))

    def finish_with_vote(self, txn: Any,
                         tpc_finish: Callable[[Any], object]) -> bool:
        # The methods of a derived class would be called before the commit, or
        # could refuse it when it is already made.
        return (type(self).tpc_finish is FsyncClient.tpc_finish
                and type(self).tpc_vote is FsyncClient.tpc_vote
                and super().finish_with_vote(txn, tpc_finish))

    def tpc_finish(self, txn: Any,
                   f: Callable[[bytes], object] = lambda tid: None) -> Any:
        staged = self._staged(txn)
        try:
            return super().tpc_finish(txn, f)
        finally:
            if staged and self._written(txn) is None:  # it is over
                self._discard(staged)

    def tpc_abort(self, txn: Any, timeout: float | None = None) -> None:
        staged = self._staged(txn)
        try:
            super().tpc_abort(txn, timeout)
        finally:
            self._discard(staged)

    def _staged(self, txn: Any) -> list[tuple[bytes, str]]:
        """Blob files of a transaction that are not in the cache yet."""
        written = None if self._blobs is None else self._written(txn)
        return [] if written is None else written.blobs

    def _discard(self, staged: list[tuple[bytes, str]]) -> None:
        if not self._server.is_here:
            return  # they are the parent's
        while self._blobs is not None and staged:
            _, path = staged.pop()
            self._blobs.discard(path)

    def _update_blob_cache(self, transaction: Written, tid: bytes) -> None:
        while self._blobs is not None and transaction.blobs:
            oid, staged = transaction.blobs.pop()
            self._blobs.commit(oid, tid, staged)


def checked_blob_cache_fill(value: str) -> str:
    if value not in FILLS:
        raise ValueError(
            f'blob-cache-fill is {" or ".join(FILLS)}, not {value!r}')
    return value


def checked_blob_cache_mode(value: int) -> int:
    if value not in MODES:
        raise ValueError(
            f'blob-cache-mode is 0400, 0440 or 0444, not {value:04o}')
    return value


def checked_read_channels(value: int) -> int:
    if value < 1:
        raise ValueError(f'read-channels is at least 1, not {value}')
    return value


def checked_local_reads(value: str) -> str:
    if value not in LOCAL_READS:
        raise ValueError(
            f'local-reads is {" or ".join(LOCAL_READS)}, not {value!r}')
    return value


def checked_server_timeout(value: float | str | None) -> float | str | None:
    if value is None or value == AUTO:
        return value
    if isinstance(value, str) or value < SHORTEST_SERVER_TIMEOUT:
        raise ValueError(
            f'server-timeout is auto, off or at least'
            f' {SHORTEST_SERVER_TIMEOUT}s, not {value}')
    return value


def _cache(cache: Any, client: str | None, var: str | None, storage: str,
           size: int) -> Any:
    """The cache that ZEO would use: a path, a client's name and a directory,
    or a temporary file."""
    if cache is None and client:
        cache = os.path.join(var or os.getcwd(), f'{client}-{storage}.zec')
    if cache is None or isinstance(cache, str):
        return Cache(cache, size)
    return cache
