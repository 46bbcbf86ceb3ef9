"""Reads the data file of a server on the same machine, without the server.

`LocalReads` belongs to one connection to one run of a server, from `Link.meet`
on.  Its thread gets descriptors over a unix socket: of the data file, of the
server's object map, and, if the server has blobs, of a file that marks their
directory (localblobs).  They make a `Source`, which answers loads until the
server says that the map is retired (then the thread asks for a new one), or
until this client verifies its cache with a server again.  When the server ends
without saying so, the source stays: it reads only what is durable.

If anything is not certain, the answer is `NOT_KNOWN`: then the client asks the
server.  A source never raises an error to its caller, and none of its answers
goes into the cache.

Left to others: the layout of the map (format.objectmap), the look-up
(format.view).  docs/internals/localreads.rst says when a position may be used,
and why.
"""

import array
import contextlib
import errno
import logging
import os
import socket
import stat
import struct
import threading

from ZODB.FileStorage.format import CorruptedError
from ZODB.POSException import POSError
from ZODB.utils import p64
from ZODB.utils import u64

from .. import forks
from ..datafile import DataFile
from ..datafile import Descriptor
from ..format.objectmap import SECRET_SIZE
from ..format.objectmap import NotAMap
from ..format.objectmap import Reader
from ..format.objectmap import is_possible
from ..format.view import BLOCK
from ..format.view import PAGE
from ..format.view import View
from ..wire.framing import LONGEST
from ..wire.handover import HAND_OVER
from ..wire.handover import LONGEST_NAME
from ..wire.handover import SUFFIX
from .localblobs import LocalBlobs
from .localblobs import NotHere
from .localcounts import NOT_KNOWN

logger = logging.getLogger(__name__)

#: Seconds for connecting, and until the next try after a refusal.
CONNECT_WITHIN = 10
RETREAT = 10
#: Seconds between a retired map and the next.
PAUSE = 0.1

#: After this many loads, offer the processor to other processes.
TURN = 64

#: Descriptors or memory are short: there may be some again in a moment.
_SHORT = errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS

#: How many descriptors come, without blobs and with blobs.
_DESCRIPTORS = 2, 3

# What a damaged or hostile file can cause.  If an oid has no data here, the
# server may still have some.
_DOUBTS = (CorruptedError, POSError, OSError, ValueError, OverflowError,
           MemoryError, struct.error)


class Refused(Exception):
    """Nothing is handed over now."""


class _Closed(Exception):
    """The source is no longer wanted."""


class _View(View):

    __slots__ = ()

    #: As on a read channel.
    longest = LONGEST


class Source:

    def __init__(self, data_file, object_map, blobs=None):
        """`blobs`: LocalBlobs; None: blobs cannot be read locally."""
        self.blobs = blobs
        self._file = data_file
        self._map = object_map
        self._view = _View(data_file, object_map, 0, None)
        self._loads = 0

    def load_before(self, oid, tid):
        """As the storage's; NOT_KNOWN where the answer is not certain."""
        self._loads += 1  # (with several threads, some may not be counted)
        if not self._loads % TURN:
            _offer_the_processor()
        end, durable, retired = self._map.marks()
        position = self._map.get(oid, 0)
        if retired or not 0 < position < durable:
            return NOT_KNOWN
        if end > durable:
            end = durable
        view = self._view
        if view.end != end:
            view = self._view = _View(self._file, self._map, end, None)
        try:
            return view.load_before_from(position, oid, tid)
        except _DOUBTS as error:
            logger.debug('%s is asked for: %s', oid.hex(), error)
            return NOT_KNOWN

    def prefetch(self, oids):
        """Let the kernel read these objects ahead; return the oids for which
        the server must be asked."""
        _, durable, retired = self._map.marks()
        pages, others = set(), []
        for oid in oids:
            if oid is None:  # a new object
                continue
            position = self._map.get(oid, 0)
            if retired or not 0 < position < durable:
                others.append(oid)
            else:
                pages.add(position // PAGE)
        with contextlib.suppress(*_DOUBTS):  # then its load asks the server
            for page in sorted(pages):
                os.posix_fadvise(self._file.fileno(), page * PAGE, BLOCK,
                                 os.POSIX_FADV_WILLNEED)
        return others


def _offer_the_processor():
    """A local load waits for nothing: other processes, such as the server,
    would get this processor only when the system takes it away."""
    with contextlib.suppress(OSError):  # it may be forbidden
        os.sched_yield()


class LocalReads:

    #: Answers loads; None: there is nothing to read from.
    source = None

    def __init__(self, name, cache, path, secret, blobs=None,
                 tell=lambda does: None):
        """`blobs`: the name of the server's directory of blobs.  `tell(does)`
        is called in the thread whenever local reads begin or end."""
        self._name = name
        self._cache = cache
        self._path = path
        self._secret = secret
        self._blobs = blobs
        self._tell = tell
        self._process = os.getpid()
        #: The last tid that was known, and the one up to which we answer.
        self._limits = b'', b''
        #: The connection that the thread waits on; `close` ends it.
        self._connection = None
        #: Guards `source`, `_connection`, and whether it is closed.
        self._changing = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(
            target=self._run, daemon=True, name=f'{name} local reads')
        forks.give_up_in_a_fork(self)
        self._thread.start()

    def load_before(self, oid, tid):
        source = self.source
        if source is None or not self._is_here():
            return NOT_KNOWN
        # Without the cache's lock.  The tid that is asked for was told under
        # it; and a last tid that is seen here early is published, too.
        known = self._cache.tid
        last, limit = self._limits
        if known != last:
            limit = p64(u64(known) + 1)
            self._limits = known, limit
        if tid > limit:
            return NOT_KNOWN
        return source.load_before(oid, tid)

    def prefetch(self, oids):
        """Return the oids for which the server must be asked."""
        source = self.source
        if source is None or not self._is_here():
            return oids
        return source.prefetch(oids)

    def blob_path(self, oid, serial):
        """The path at which a blob can be read; None: it must be fetched."""
        source = self.source
        if source is None or source.blobs is None or not self._is_here():
            return None
        return source.blobs.path(oid, serial)

    def _is_here(self):
        """Is this no fork?  A WSGI server may fork without telling Python,
        and then `give_up` is not called."""
        return os.getpid() == self._process

    def close(self):
        """Let go of all files.

        The thread ends on its own.  This does not wait for it: the name that
        it connects to may be on a file system that does not answer.
        """
        if not self._is_here():
            self.give_up()
            return
        with self._changing:
            self._closed.set()
            self.source = None
            if self._connection is not None:
                with contextlib.suppress(OSError):  # the server is gone
                    self._connection.shutdown(socket.SHUT_RDWR)

    def give_up(self):
        """Called in a fork: the thread and its connection are the parent's.

        The thread may have held the lock when the process was forked.
        """
        connection, self.source, self._connection = (
            self._connection, None, None)
        if connection is not None:
            connection.close()  # the parent's stays open
        self._changing, self._closed = threading.Lock(), threading.Event()

    # The thread

    def _run(self):
        pause = 0
        try:
            while not self._closed.wait(pause):
                pause = self._read_until_told()
        except _Closed:
            pass
        except (OSError, NotAMap) as error:
            if not self._closed.is_set():
                _say_not_locally(self._name, error)

    def _read_until_told(self):
        """Get a source, and let it answer until it is retired.

        Return the seconds to wait before the next try; None: until `close`.
        """
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(CONNECT_WITHIN)
                connection.connect(self._path)
                connection.settimeout(None)
                return self._read_from(connection)
        except (Refused, OSError, NotAMap) as error:
            if not _may_pass(error):
                raise
            logger.debug('%s: %s', self._name, error)
            return RETREAT

    def _read_from(self, connection):
        try:
            self._use(connection, None)
            self._use(connection, received(
                connection, self._secret, self._blobs))
            logger.info('%s: reading locally, as the server hands out its'
                        ' file at %s', self._name, self._path)
            if not connection.recv(1):
                # The server is gone.  What is durable stays as it is.
                return None
            self._use(connection, None)  # any message says: let go
            return PAUSE
        finally:
            with self._changing:  # it will be closed
                self._connection = None

    def _use(self, connection, source):
        """Use this source, unless it was closed: nothing would end it then."""
        with self._changing:
            if self._closed.is_set():
                raise _Closed
            self._connection, self.source = connection, source
        self._tell(source is not None)


def begin(name, cache, about, path=None, blobs=None,
          tell=lambda does: None):
    """LocalReads as the server's `get_info` describes it, or None.

    `path`, `blobs`: where the server's socket and its directory of blobs are,
    if the client's configuration says so.  `tell`: see LocalReads.
    """
    if not (is_possible() and isinstance(about, dict)):
        return None
    try:
        return LocalReads(
            name, cache, _checked_path(path or _named_by_server(about)),
            _checked_secret(about.get('secret')),
            blobs or about.get('blobs'), tell)
    except (RuntimeError, ValueError) as error:  # (no thread can be started)
        _say_not_locally(name, error)
        return None


def _say_not_locally(name, error):
    logger.info(
        '%s: reading through the server, not locally: %s', name, error)


def _named_by_server(about):
    """The path of the socket.  Not any: it could be another program's."""
    path = about.get('socket')
    if not (isinstance(path, str) and path.endswith(SUFFIX)):
        raise ValueError('the server does not name its socket')
    return path


def _checked_path(path):
    if not path.startswith('/') or '\0' in path:
        raise ValueError(f'the socket {path!r} is not named with all of its'
                         ' directories')
    size = len(os.fsencode(path))  # or a UnicodeError, which is a ValueError
    if size > LONGEST_NAME:
        raise ValueError(f'the name of the socket {path!r} has {size} bytes,'
                         f' and the system allows {LONGEST_NAME}')
    return path


def _checked_secret(secret):
    if not isinstance(secret, bytes) or len(secret) != SECRET_SIZE:
        raise ValueError('the server does not say what its map begins with')
    return secret


def _may_pass(error):
    """Is it worth another try?"""
    # (The last two occur when many connect at once.)
    if isinstance(error, (Refused, BlockingIOError, TimeoutError)):
        return True
    cause = error.__cause__ or error
    return isinstance(cause, OSError) and cause.errno in _SHORT


def received(connection, secret, blobs=None):
    """The Source that the server hands over."""
    descriptors = _received_descriptors(connection)
    try:
        data_file, object_map = descriptors[:2]
        status = os.fstat(data_file)
        if not stat.S_ISREG(status.st_mode):
            raise NotAMap('the data file is no file')
        reader = Reader(object_map, secret)
        if not reader.is_of(status):
            raise NotAMap('the map is of another file')
        file = DataFile(
            'the data file of the server', os.O_RDONLY,
            lambda path, flags: descriptors.pop(0))
        return Source(file, reader, _local_blobs(blobs, descriptors))
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _local_blobs(directory, descriptors):
    """The last descriptor may be that of the directory's marker file."""
    if len(descriptors) < 2:  # only that of the map is left
        return None
    try:
        return LocalBlobs(directory, Descriptor(descriptors.pop()))
    except (NotHere, OSError) as error:
        logger.info('blobs are read through the server: %s', error)
        return None


def _received_descriptors(connection):
    """A list of two or three.  (`socket.recv_fds` ignores its `flags`.)"""
    numbers = array.array('i')
    room = socket.CMSG_SPACE(max(_DESCRIPTORS) * numbers.itemsize)
    message, ancillary, flags, _ = connection.recvmsg(
        len(HAND_OVER), room, socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            numbers.frombytes(
                data[:len(data) - len(data) % numbers.itemsize])
    was_cut = flags & socket.MSG_CTRUNC
    if message == HAND_OVER and len(numbers) in _DESCRIPTORS and not was_cut:
        return list(numbers)
    for number in numbers:
        os.close(number)
    if not message:
        raise Refused('the server hands nothing over now')
    if was_cut and len(numbers) < max(_DESCRIPTORS):
        raise Refused('no descriptors are left in this process')
    raise NotAMap('the server sent something else than its descriptors')
