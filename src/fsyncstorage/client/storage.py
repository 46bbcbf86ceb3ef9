"""FsyncClient: the storage that ZODB sees.

It has a cache of objects (cache), one of blobs (blobs), and a stream to a
server (failover, stream).  What commits call is in commits.

When a stream opens, the cache is verified before any thread may use it: the
server's welcome says what has changed since the cache's last tid, and what
changes later is announced after the welcome, on the same stream.
"""

import contextlib
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any
from typing import BinaryIO
from typing import TypeAlias

import ZODB.event
import zope.interface
from ZEO.Exceptions import ClientDisconnected
from ZEO.interfaces import StaleCache
from ZODB import interfaces
from ZODB.blob import BlobFile
from ZODB.mvccadapter import MVCCAdapter
from ZODB.POSException import POSKeyError
from ZODB.POSException import ReadConflictError
from ZODB.POSException import ReadOnlyError
from ZODB.POSException import Unsupported
from ZODB.utils import load_current
from ZODB.utils import z64

from .. import core
from ..format import UNCERTAIN
from ..histogram import Histogram
from ..version import own_version
from ..wire import frames
from ..wire import values
from . import iterating
from . import options
from .blobs.blobcache import BlobCache
from .blobs.directory import MODE
from .blobs.download import Download
from .blobs.download import Interrupted
from .blobs.shared import SharedDirectory
from .blobs.shared import helper_of_cache
from .cache import Cache
from .commits import Commits
from .connection import use_our_connection
from .doom import REASON
from .doom import Doom
from .failover import Failover
from .failover import NoServer
from .failover import Opened
from .localcounts import LocalCounts
from .packs import Packs
from .process import Process
from .raised import exception
from .readers import Lost
from .reads import Reads
from .stream import Stream

logger = logging.getLogger(__name__)

#: Data, serial, and the tid of the next revision.
Revision: TypeAlias = tuple[bytes, bytes, bytes | None]

MB = 1 << 20
#: Seconds.
WAIT_TIMEOUT = 30
MAY_BE_SILENT = 30
READERS = 4

#: What ClientStorage takes for the sake of older programs.
WITHOUT_EFFECT = frozenset((
    'disconnect_poll', 'min_disconnect_poll', 'max_disconnect_poll',
    'drop_cache_rather_verify', 'credentials', 'username', 'password',
    'realm'))

#: What a storage may be; a server says which of these its own is.
_MAY_BE = (
    interfaces.IStorageRestoreable, interfaces.IStorageIteration,
    interfaces.IStorageUndoable, interfaces.IStorageCurrentRecordIteration,
    interfaces.IBlobStorage, interfaces.IExternalGC)


@zope.interface.implementer(interfaces.IMultiCommitStorage)
class FsyncClient(Commits):
    """The client of a server of fsyncstorage: a drop-in for ClientStorage.

    A commit takes one round trip, and several threads of a process commit side
    by side.  Objects and blobs are cached on disk; on the server's own machine
    they are read from its files, where the server allows that.

    At a stock server it waits; the section <fsyncclient> and `fsync-zeo://`
    look which server is there when they open.
    """

    def __init__(self, addr: Any, storage: str = '1',
                 cache_size: int = 20 * MB, name: str = '',
                 wait_timeout: float | None = None, *, wait: bool = True,
                 read_only: bool = False, read_only_fallback: bool = False,
                 cache: str | None = None, client: str | None = None,
                 var: str | None = None, client_label: str | None = None,
                 ssl: Any = None, ssl_server_hostname: str | None = None,
                 server_sync: bool = False,
                 server_timeout: float | None = MAY_BE_SILENT,
                 read_channels: int = READERS, blob_dir: str | None = None,
                 shared_blob_dir: bool = False,
                 blob_cache_size: int | None = None,
                 blob_cache_size_check: int | None = None,
                 blob_cache_fill: str = 'commit', blob_cache_mode: int = MODE,
                 local_reads: str = 'auto',
                 local_reads_socket: str | None = None,
                 local_blob_dir: str | None = None,
                 **without_effect: Any) -> None:
        """The arguments of ClientStorage, and the other keys of an
        <fsyncclient> (component.xml says what they mean).

        :param float server_timeout: None: off.
        :param blob_cache_size_check: is ignored: the limit always holds.
        :param without_effect: what ClientStorage takes for the sake of older
            programs.
        """
        read_channels = options.read_channels(read_channels)
        local_reads = options.local_reads(local_reads)
        server_timeout = options.server_timeout(server_timeout)
        blob_cache_fill = options.blob_cache_fill(blob_cache_fill)
        blob_cache_mode = options.blob_cache_mode(blob_cache_mode)
        if unknown := without_effect.keys() - WITHOUT_EFFECT:
            raise TypeError(f'unknown options: {", ".join(sorted(unknown))}')
        for each in sorted(without_effect):
            logger.info('%s: %s has no effect', name or addr,
                        each.replace('_', '-'))
        if blob_cache_size_check is not None:
            logger.info('%s: blob-cache-size-check has no effect: the size of'
                        ' the blob cache always holds', name or addr)
        if isinstance(addr, int):
            addr = '127.0.0.1', addr  # which is its name, too, as stock's
        # (Others look it up, as in stock's.)
        self._addr = options.addresses_of(addr)
        #: Of the server that was met last.
        self._server_addr: Any = None
        self.__name__ = name or str(addr)
        self.wait_timeout = wait_timeout or WAIT_TIMEOUT
        self.server_sync = server_sync
        self._storage = storage
        self._label = client_label or ''
        self._most_readers = read_channels
        self._ssl, self._hostname = ssl, ssl_server_hostname
        self._wants = (frames.WILL_NOT_WRITE if read_only else 0)
        self._takes_read_only = read_only_fallback
        self._is_read_only = read_only
        self._may_be_silent = server_timeout
        #: Names this client to servers; nobody else must know it.
        self._id = os.urandom(16)
        self._number_of_stream = 0  # that was used last
        self._numbers_of_streams = itertools.count(1)  # for several threads
        self._db = None
        self._doom = Doom()
        self._about: dict[str, Any] = {}
        self._sizes = 0, 0
        #: The server that was met last.
        self._instance: bytes | None = None
        self._oids: list[bytes] = []
        self._oids_lock = threading.Lock()
        #: Iterators at servers (iterating).
        self._abandoned: list[tuple[Stream, int]] = []
        self._is_closed = False
        self._process = Process('storage')
        self._reads_locally = local_reads == 'auto'
        self._local_paths = local_reads_socket, local_blob_dir
        self._local_counts, self._load_times = LocalCounts(), Histogram()
        #: Progress, cancel and forecast of packs.
        self.packs = Packs(self._call)
        #: Reads the server's file (client.local); None: there is none.
        self._local: Any = None
        self.blob_dir, self.shared_blob_dir = blob_dir, shared_blob_dir
        self._blobs: Any = None
        self.fshelper = None
        self._reads: Any = None  # until there is a server
        self._failover: Any = None
        self._cache = Cache(
            _path_of_cache(cache, client, var, storage), cache_size)
        try:
            if shared_blob_dir:
                self._blobs = SharedDirectory(blob_dir)
                self.fshelper = self._blobs.helper
            elif blob_dir is not None:
                self._blobs = BlobCache(
                    blob_dir, blob_cache_size, self._fetch_blob,
                    blob_cache_fill, blob_cache_mode)
                self.fshelper = helper_of_cache(blob_dir)
            self._failover = Failover(
                self.__name__, self._addr, ssl, ssl_server_hostname, self)
            if wait:
                self._failover.wait(self.wait_timeout)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return (f'<{type(self).__name__} {self.__name__}'
                f' storage {self._storage!r}>')

    @property
    def name(self) -> str:
        return self.__name__

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True
        if not self._process.is_here:
            return  # a child leaves all of it to its parent
        if self._failover is not None:
            self._failover.close()
        if self._local is not None:
            self._local.close()
        self._cache.close()
        if self._blobs is not None:
            self._blobs.close()

    def new_addr(self, addr: Any) -> None:
        """Leave the server, and go to one at this address, as stock's."""
        self._addr = options.addresses_of(addr)
        self._failover.move(self._addr)

    # Called by failover, in its thread

    def hellos(self) -> Iterator[Callable[[], frames.Hello]]:
        yield lambda: self._hello(self._wants)
        if self._takes_read_only:
            yield lambda: self._hello(frames.TAKES_READ_ONLY)

    @property
    def wants_better(self) -> bool:
        return self._takes_read_only and self._is_read_only

    def _hello(self, flags: int) -> frames.Hello:
        number = self._number_of_stream = next(self._numbers_of_streams)
        return frames.Hello(
            0, frames.MAGIC, frames.LOWEST, frames.HIGHEST, self._id,
            number, self._cache.last_tid or z64, flags,
            self._storage.encode(), self._label.encode()[:255],
            own_version().encode()[:255])

    def meet(self, opened: Opened) -> Stream:
        welcome = opened.welcome
        try:
            about = values.decoded(welcome.about, dict)
            self._end_local()  # that file may lack what is told now
            self._verify(welcome, about)
            self._about = about
            self._is_read_only = bool(about.get('read_only'))
            self._sizes = (_number(about.get('length')),
                           _number(about.get('size')))
            self._instance = welcome.instance
            self._server_addr = opened.address
            with self._oids_lock:  # a restarted server may give them to others
                self._oids = []
            self._provide(about)
            stream = Stream(opened.connection, opened.inbox, welcome,
                            self._may_be_silent, self._told)
            self._reads = Reads(
                self.__name__, self._cache, stream,
                self._most_readers if about.get('readers') is True else 0,
                opened.address, self._ssl, self._hostname,
                self._hello_of_a_reader(welcome, about))
            self._begin_local(stream, about.get('local'))
            return stream
        except (frames.PeerError, NoServer) as error:
            opened.connection.close()
            raise NoServer(str(error)) from error
        except BaseException:
            opened.connection.close()
            raise

    def _hello_of_a_reader(self, welcome: frames.Welcome,
                           about: dict[str, Any]) -> frames.HelloOfAReader:
        mark = about.get('mark')
        if not isinstance(mark, bytes) or len(mark) != 8:
            mark = bytes(8)
        return frames.HelloOfAReader(
            0, frames.MAGIC, frames.LOWEST, frames.HIGHEST, welcome.instance,
            mark, self._storage.encode())

    def _provide(self, about: dict[str, Any]) -> None:
        said = about.get('interfaces')
        said = said if isinstance(said, list) else ()
        for each in _MAY_BE:
            if [each.__module__, each.__name__] in said:
                zope.interface.alsoProvides(self, each)

    def leave(self, stream: Stream) -> None:
        """This stream is over: no answer to an earlier load counts."""
        self._cache.new_generation()
        self._reads.close()
        if stream.is_broken:
            self._cache.begin_anew(self._cache.last_tid)

    def _end_local(self) -> None:
        earlier, self._local = self._local, None
        if earlier is not None:
            earlier.close()

    def _begin_local(self, stream: Stream, offered: Any) -> None:
        """Read the file of a server on this machine, if it offers that."""
        if self._reads_locally and offered is not None:
            from . import local

            def tell(does: Any) -> None:
                with contextlib.suppress(ClientDisconnected):
                    stream.ask(frames.Call(
                        0, b'about_client', values.encoded((does,))))

            self._local = local.begin(
                self.__name__, self._cache, offered,
                *self._local_paths, tell)

    # Verification

    def _verify(self, welcome: frames.Welcome,
                about: dict[str, Any]) -> None:
        """Bring the cache, and what connections have, to the state of the
        server; NoServer if it does not fit."""
        seen, tid = self._cache.last_tid, welcome.tid
        changed = about.get('changed')
        if changed is not None:
            if not isinstance(changed, bytes):
                raise frames.PeerError('a welcome without what has changed')
            changed = frames.split(changed)
        if seen == z64 and not self._cache:
            changed = []
        elif not len(self._cache) and self._db is None:
            changed = None  # nothing is cached, and no transaction has begun
        elif self._has_lost(welcome, about, changed):
            self._tell_of_a_stale_cache()
            logger.warning(
                '%s: the server lost %s, the last transaction that this client'
                ' has seen, or has forgotten it; it is at %s. The cache is'
                ' dropped, and transactions that are under way fail',
                self.__name__, seen.hex(), tid.hex())
            self._cache.begin_anew(tid)
            self._doom.fall(self._db, tid)
            self.invalidateCache()
            return
        # The last tid comes at the end: a transaction that begins at it must
        # have been told what has changed.
        if changed is None:
            if len(self._cache):
                self._tell_of_a_stale_cache()
                logger.warning(
                    '%s: the cache is dropped: the server cannot say what has'
                    ' changed since', self.__name__)
            self._cache.begin_anew(min(seen, tid))
            self.invalidateCache()
        else:
            self._cache.drop(changed)
        self.invalidateTransaction(tid, changed or ())
        if changed is None:  # of those that have begun before that tid
            self.invalidateCache()
        self._cache.set_last_tid(tid)

    def _tell_of_a_stale_cache(self) -> None:
        """As stock's client, for programs that end themselves then."""
        try:
            ZODB.event.notify(StaleCache(self))
        except Exception:
            logger.exception('%s: sending StaleCache', self.__name__)

    def _has_lost(self, welcome: frames.Welcome, about: dict[str, Any],
                  changed: list[bytes] | None) -> bool:
        """Has the server lost the last transaction that we know of?

        The same run of the server has lost nothing.  Another one that is
        behind us may be a copy that lags: it says by `lost` whether it may
        have lost something.  One that is ahead, without that transaction, has
        lost or forgotten it: in doubt it is lost.  If there is no database
        yet, no transaction has begun, and it is enough to drop the cache.
        """
        seen, tid = self._cache.last_tid, welcome.tid
        if seen in (z64, tid) or welcome.instance == self._instance:
            return False
        if seen < tid:
            return self._db is not None and changed is None
        if not about.get('lost'):
            raise NoServer(
                f'it is at {tid.hex()}, and this client has seen {seen.hex()}.'
                ' If that is meant to be so, end this process, remove its'
                f' cache file ({self._cache.path or "it has none"}), and start'
                ' it again')
        return True

    # What comes unasked, in the order of the stream

    def _told(self, messages: list[frames.Message]) -> None:
        first = messages[0]
        if first.__class__ is frames.Invalid:
            self._invalid([(each.tid, frames.split(each.oids))
                           for each in messages])
            return
        self._sizes = first.length, first.size
        if self._local is not None:
            self._local.look()

    def _invalid(self, changes: list[tuple[bytes, list[bytes]]]) -> None:
        self._cache.invalidate(changes)
        last, _ = changes[-1]
        if self._may_be_told_together:
            self.invalidateTransaction(
                last, [oid for _, oids in changes for oid in oids])
        else:
            for tid, oids in changes:
                self.invalidateTransaction(tid, oids)
        self._cache.set_last_tid(last)

    # The database

    #: Several transactions may be announced as one: a database of ZODB takes
    #: that.  A server that has this storage tells its own clients of each one,
    #: and so may any class with its own methods for that.
    _may_be_told_together = False

    def registerDB(self, db: Any) -> None:
        super().registerDB(db)
        self._db = db
        self._may_be_told_together = (
            getattr(type(db), 'invalidate', None) is MVCCAdapter.invalidate
            and type(self).invalidateTransaction
            is FsyncClient.invalidateTransaction)
        if isinstance(db, MVCCAdapter):
            use_our_connection()

    def invalidateTransaction(self, tid: bytes, oids: Iterable[bytes]) -> None:
        if self._db is not None:
            self._db.invalidate(tid, oids)

    def invalidateCache(self) -> None:
        if self._db is not None:
            self._db.invalidateCache()

    # Calls

    def _stream(self) -> Stream:
        self._process.check()
        return self._failover.stream or self._failover.wait(self.wait_timeout)

    def _call(self, method: str, *arguments: Any) -> Any:
        return self._call_on(self._stream(), method, *arguments)

    def _call_on(self, stream: Stream, method: str, *arguments: Any) -> Any:
        answer = stream.ask(frames.Call(
            0, method.encode(), values.encoded(arguments)))
        if answer.__class__ is frames.Error:
            raise exception(answer)
        try:
            return values.decoded(answer.result)
        except frames.PeerError as error:
            raise stream.not_understood(error) from error

    def ping(self) -> None:
        """When this returns, all earlier commits are visible."""
        self._stream().ask(frames.Ping(0))

    def sync(self, force: bool = True) -> None:
        if self.server_sync:
            self.ping()

    # Reading

    def loadBefore(self, oid: bytes, tid: bytes) -> Revision | None:
        # While the load waits, the server may lose what its transaction has
        # seen.
        try:
            found = self._load_by_core(oid, tid)
            if found is UNCERTAIN:
                found = self._load_before(oid, tid)
        except POSKeyError:
            if not self._doom.refuses(tid):
                raise
        else:
            if not self._doom.refuses(tid):
                return found
        raise ReadConflictError(REASON, oid=oid)

    def _load_by_core(self, oid: bytes, tid: bytes) -> Any:
        try:
            if core.load is not None:
                return core.load(self, oid, tid)
        except (Lost, ClientDisconnected) as error:
            logger.debug('%s: a load is repeated: %s', self.__name__, error)
        return UNCERTAIN

    def _load_before(self, oid: bytes, tid: bytes) -> Revision | None:
        local = self._local
        if local is not None:
            found: Any = self._local_counts.counted(
                local.load_before, oid, tid)
            if found is not UNCERTAIN:
                return found
        return (self._cache.load_before(oid, tid)
                or self._load_from_server(oid, tid))

    def _load_from_server(self, oid: bytes, tid: bytes) -> Revision | None:
        """If it is lost, from the next one."""
        while True:
            self._stream()
            begun = time.monotonic()
            try:
                found = self._reads.load_before(oid, tid)
                self._load_times.add(time.monotonic() - begun)
                return found
            except (Lost, ClientDisconnected) as error:
                logger.debug('%s: a load is repeated: %s', self.__name__,
                             error)

    def prefetch(self, oids: Iterable[bytes], tid: bytes) -> None:
        # A fork would take the replies of its parent, or the parent its.
        self._process.check()
        local = self._local
        if local is not None:
            oids = local.prefetch(oids)
        if self.is_connected():
            self._reads.prefetch(oids, tid)

    def load(self, oid: bytes, version: str = '') -> tuple[bytes, bytes]:
        return load_current(self, oid, version)

    def loadSerial(self, oid: bytes, serial: bytes) -> bytes:
        return self._call('loadSerial', oid, serial)

    def getTid(self, oid: bytes) -> bytes:
        return self._call('getTid', oid)

    def history(self, oid: bytes, size: int = 1) -> list[dict[str, Any]]:
        return self._call('history', oid, size)

    def record_iternext(self, next: bytes | None = None) -> Any:
        return self._call('record_iternext', next)

    def undoLog(self, first: int = 0, last: int = -20,
                filter: Any = None) -> list[dict[str, Any]]:
        return [] if filter is not None else self._call('undoLog', first, last)

    def undoInfo(self, first: int = 0, last: int = -20,
                 specification: Any = None) -> list[dict[str, Any]]:
        return self._call('undoInfo', first, last, specification)

    def iterator(self, start: bytes | None = None,
                 stop: bytes | None = None) -> iterating.Transactions:
        return iterating.Transactions(
            iterating.Server(self._call_on, self._stream(), self._abandoned),
            start, stop)

    # Blobs

    def _needed_blobs(self) -> Any:
        if self._blobs is None:
            raise Unsupported('no directory for blobs is configured')
        return self._blobs

    def loadBlob(self, oid: bytes, serial: bytes) -> str:
        return (self._local_blob(oid, serial)
                or self._needed_blobs().load(oid, serial))

    def _local_blob(self, oid: bytes, serial: bytes) -> str | None:
        """The path of a blob in the server's directory, on this machine."""
        local = self._local
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
        return (self._opened_local_blob(oid, serial, blob)
                or self._needed_blobs().open(oid, serial, blob))

    def leaseBlob(self, oid: bytes, serial: bytes,
                  seconds: float = 60) -> str | None:
        """The path of a file in the cache, which is kept there in preference
        to others for `seconds`.

        None: it is not there (`loadBlob` brings it into the cache).
        """
        return self._needed_blobs().lease(oid, serial, seconds)

    def openArriving(self, oid: bytes, serial: bytes) -> BinaryIO:
        """As openCommittedBlobFile, but without waiting for all of the blob.

        A blob that is in the cache, or short, is opened as a usual file.  Any
        other is a file without a descriptor (arriving), which reads the bytes
        that have arrived, and waits for more.  For either, `seek` to the end
        returns the size.
        """
        return (self._opened_local_blob(oid, serial)
                or self._needed_blobs().open_arriving(oid, serial))

    def temporaryDirectory(self) -> str:
        return self._needed_blobs().temporary_directory

    def _fetch_blob(self, oid: bytes, serial: bytes,
                    download: Download) -> None:
        falls = self._doom.falls
        if self._is_closed:
            raise ClientDisconnected('this storage is closed')
        self._stream()
        try:
            self._reads.fetch_blob(oid, serial, download)
        except (Lost, ClientDisconnected) as error:
            raise Interrupted(str(error)) from error
        except POSKeyError:
            if falls == self._doom.falls:
                raise
            # The server lost the blob while we waited.
            raise ReadConflictError(REASON, oid=oid) from None

    # Figures

    def stats(self) -> dict[str, Any]:
        """Figures for monitoring, as a dictionary; counted since the storage
        was opened."""
        (hits, evictions, _), local = self._cache.stats(), self._local
        return {'connected': self.is_connected(),
                'cache_hits': hits,
                'cache_misses': self._load_times.count,
                'cache_evictions': evictions,
                'reads_locally': local is not None and (
                    local.source is not None),
                'local_reads': self._local_counts.loads,
                **({} if self._blobs is None else self._blobs.stats())}

    def load_times(self) -> dict[str, Histogram]:
        """How long loads took that the cache did not answer, by their source:
        the data file, read here (local; one in 16 is timed), or the server.
        """
        return {'local': self._local_counts.times, 'server': self._load_times}

    # The rest of a storage

    def new_oid(self) -> bytes:
        if self.isReadOnly():
            raise ReadOnlyError()
        while True:
            with self._oids_lock:
                kept = self._oids  # another list, if a server comes meanwhile
                if kept:
                    return kept.pop()
            oids = self._call('new_oids')
            if not isinstance(oids, list) or not all(
                    isinstance(oid, bytes) and len(oid) == 8 for oid in oids):
                raise ClientDisconnected('a server that gives no oids')
            with self._oids_lock:
                kept[:0] = reversed(oids)

    def pack(self, t: float | None = None, referencesf: Any = None,
             wait: bool = True, days: float = 0) -> None:
        self._call('pack', (time.time() if t is None else t) - days * 86400,
                   wait)

    def lastTransaction(self) -> bytes:
        return self._cache.last_tid

    def isReadOnly(self) -> bool:
        return self._is_read_only

    is_read_only = isReadOnly

    def is_connected(self, test: bool = False) -> bool:
        return self._failover.stream is not None

    def supportsUndo(self) -> bool:
        return bool(self._about.get('supportsUndo'))

    def getName(self) -> str:
        """Stock's: Zope shows it."""
        connected = 'connected' if self.is_connected() else 'disconnected'
        return f'{self.__name__} ({connected})'

    def getSize(self) -> int:
        return self._sizes[1]

    def __len__(self) -> int:
        return self._sizes[0]

    def sortKey(self) -> str:
        """Stock's: as transactions of several databases are sorted by it, all
        clients of a server must have the same."""
        return f'{self._storage}:{self._server_addr}'

    def server_status(self, timeout: float | None = None) -> dict[str, Any]:
        return self._call('server_status')


def _number(value: Any) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


def _path_of_cache(cache: str | None, client: str | None, var: str | None,
                   storage: str) -> str | None:
    """Beside the cache that ZEO's client would use, which stays as it is."""
    if cache is None and client:
        cache = os.path.join(var or os.getcwd(), f'{client}-{storage}.zec')
    return cache and cache + '.fsync'
