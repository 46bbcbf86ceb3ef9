"""Reads the data file of a server on the same machine, without the server.

`LocalReads` belongs to one connection to one run of a server, from `Link.meet`
on.  Its thread asks at a unix socket for descriptors: of the data file, of the
server's object map, and, if the server has blobs, of a file that marks their
directory (localblobs).  They make a `Source`, which answers loads until its
map is retired (then the thread asks for a new one), or until this client
verifies its cache with a server again.  When the server ends, the source
stays: it reads only what is durable.

If anything is not certain, the answer is `UNCERTAIN`: then the client asks the
server.  None of the answers goes into the cache.

Left to others: what is certain (format.source).
"""

import array
import logging
import os
import socket
import stat
import threading

from ZODB.utils import p64
from ZODB.utils import u64

from .. import forks
from ..datafile import DataFile
from ..datafile import Descriptor
from ..format import UNCERTAIN
from ..format.objectmap import INSTANCE_SIZE
from ..format.objectmap import MapReader
from ..format.objectmap import NotAMap
from ..format.objectmap import is_possible
from ..format.source import Source
from ..wire.handover import HAND_OVER
from ..wire.handover import LONGEST_NAME
from ..wire.handover import SUFFIX
from .localblobs import LocalBlobs
from .localblobs import NotHere

logger = logging.getLogger(__name__)

#: Seconds for the server to make a map and to send it.
WITHIN = 10
#: Seconds until the next try after a refusal.
RETREAT = 10
#: Seconds between a retired map and the next.
PAUSE = 0.1
#: A load notices at once that the map is retired.  A client that is idle looks
#: so often (seconds): until then it keeps a file that a pack has replaced.
LOOK_EACH = 30

#: How many descriptors come, without blobs and with blobs.
_DESCRIPTORS = 2, 3


class Refused(Exception):
    """Nothing is handed over now."""


class LocalReads:

    #: Answers loads; None: there is nothing to read from.
    source = None
    #: Where the source's blobs are; None: they cannot be read locally.
    _blobs = None

    def __init__(self, name, cache, path, instance, blob_dir=None,
                 tell=lambda does: None):
        """`blob_dir`: the name of the server's directory of blobs.
        `tell(does)` is called in the thread whenever local reads begin or
        end."""
        self._name = name
        self._cache = cache
        self._path = path
        self._instance = instance
        self._blob_dir = blob_dir
        self._tell = tell
        self._process = os.getpid()
        #: The last tid that was known, and the one up to which we answer.
        self._limits = b'', b''
        #: Guards `source`, `_blobs` and `_closed`.
        self._changing = threading.Lock()
        self._closed = False
        #: The log says once that the server refuses.
        self._was_refused = False
        #: There is something to do for the thread.
        self._woken = threading.Event()
        self._thread = threading.Thread(
            target=self._run, daemon=True, name=f'{name} local reads')
        forks.in_child(self)
        self._thread.start()

    def load_before(self, oid, tid):
        source = self.source
        if source is None or not self._is_here():
            return UNCERTAIN
        # Without the cache's lock.  The tid that is asked for was told under
        # it; and a last tid that is seen here early is published, too.
        known = self._cache.tid
        last, limit = self._limits
        if known != last:
            limit = p64(u64(known) + 1)
            self._limits = known, limit
        if tid > limit:
            return UNCERTAIN
        found = source.load_before(oid, tid)
        if found is UNCERTAIN and source.is_retired:
            self._woken.set()
        return found

    def prefetch(self, oids):
        """Return the oids for which the server must be asked."""
        source = self.source
        if source is None or not self._is_here():
            return oids
        return source.prefetch(oids)

    def blob_path(self, oid, serial):
        """The path at which a blob can be read; None: it must be fetched."""
        blobs = self._blobs
        if blobs is None or not self._is_here():
            return None
        return blobs.path(oid, serial)

    def look(self):
        """Look at once whether the map is retired."""
        self._woken.set()

    def _is_here(self):
        """Is this no fork?  A WSGI server may fork without telling Python,
        and then `forked` is not called."""
        return os.getpid() == self._process

    def close(self):
        """Let go of all files.

        The thread ends on its own.  This does not wait for it: the name that
        it connects to may be on a file system that does not answer.
        """
        if not self._is_here():
            self.forked()
            return
        with self._changing:
            self._closed = True
            self.source = self._blobs = None
        self._woken.set()

    def forked(self):
        """Called in a fork, where the thread is missing.

        It may have held the lock when the process was forked.
        """
        self._closed = True
        self.source = self._blobs = None
        self._changing, self._woken = threading.Lock(), threading.Event()

    # The thread

    def _run(self):
        while not self._closed:
            pause = self._read_until_retired()
            self._woken.clear()
            if not self._closed:
                self._woken.wait(pause)

    def _read_until_retired(self):
        """Get a source, and let it answer until it is retired, or until
        `close`.  Return the seconds to wait before the next try."""
        try:
            source, blobs = self._ask()
        except (Refused, OSError, NotAMap) as error:
            if not self._was_refused:
                self._was_refused = True
                _say_not_locally(self._name, error)
            return RETREAT
        self._was_refused = False
        if self._use(source, blobs):
            logger.info('%s: reading locally, as the server hands out its'
                        ' file at %s', self._name, self._path)
        while not (self._closed or source.is_retired):
            self._woken.wait(LOOK_EACH)
            self._woken.clear()
        self._use(None, None)
        return PAUSE

    def _ask(self):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(WITHIN)
            connection.connect(self._path)
            return received(connection, self._instance, self._blob_dir)

    def _use(self, source, blobs):
        """Use them, unless it was closed: nothing would end it then."""
        with self._changing:
            if self._closed:
                return False
            self.source, self._blobs = source, blobs
        self._tell(source is not None)
        return True


def begin(name, cache, about, path=None, blob_dir=None,
          tell=lambda does: None):
    """LocalReads as the server's `get_info` describes it, or None.

    `path`, `blob_dir`: where the server's socket and its directory of blobs
    are, if the client's configuration says so.  `tell`: see LocalReads.
    """
    if not (is_possible() and isinstance(about, dict)):
        return None
    try:
        return LocalReads(
            name, cache, _checked_path(path or _named_by_server(about)),
            _checked_instance(about.get('instance')),
            blob_dir or about.get('blobs'), tell)
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


def _checked_instance(instance):
    if not isinstance(instance, bytes) or len(instance) != INSTANCE_SIZE:
        raise ValueError('the server does not say what its map begins with')
    return instance


def received(connection, instance, blob_dir=None):
    """The Source that the server hands over, and its LocalBlobs or None."""
    descriptors = _received_descriptors(connection)
    try:
        data_file, object_map = descriptors[:2]
        status = os.fstat(data_file)
        if not stat.S_ISREG(status.st_mode):
            raise NotAMap('the data file is no file')
        reader = MapReader(object_map, instance)
        if not reader.is_of(status):
            raise NotAMap('the map is of another file')
        file = DataFile(
            'the data file of the server', os.O_RDONLY,
            lambda path, flags: descriptors.pop(0))
        return Source(file, reader), _local_blobs(blob_dir, descriptors)
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
