"""The files that a server hands to other processes of its machine.

A server waits at a unix socket next to the data file.  It sends the
descriptors of the data file, of the object map, and, if it has blobs, of a
file that marks their directory (blobs), as soon as there is a map.  They
make a `Source`, which answers loads until its map is retired.

A `HandedOver` gets them in a thread of its own, and asks anew when the map is
retired.  Local clients (client.local) and the processes that read for a server
(server.readerprocess) have one for each storage.

docs/internals/localreads.rst has the protocol.
"""

import array
import functools
import logging
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

from .. import core
from .. import forks
from ..datafile import Descriptor
from ..format import NotAMap
from ..format.objectmap import INSTANCE_SIZE
from ..format.source import Source as Twin
from ..wire.handover import HAND_OVER
from ..wire.handover import LONGEST_NAME
from ..wire.handover import SUFFIX
from .blobs import LocalBlobs
from .blobs import NotHere

logger = logging.getLogger(__name__)

Source: Any = core.Source or Twin

#: Seconds for the server to make a map and to send it.
WITHIN = 10
#: Seconds until the next try after a refusal.
RETREAT = 10
#: Seconds between a retired map and the next.
PAUSE = 0.1
#: A load notices at once that the map is retired.  A process that is idle
#: looks so often (seconds): until then it keeps a file that a pack has
#: replaced.
LOOK_EACH = 30

#: How many descriptors come, without blobs and with blobs.
_DESCRIPTORS = 2, 3


class Refused(Exception):
    """Nothing is handed over now."""


class HandedOver:

    #: Answers loads; None: there is nothing to read from.
    source: Twin | None = None
    #: Where the source's blobs are; None: they cannot be read here.
    blobs: LocalBlobs | None = None

    def __init__(self, name: str, path: str, instance: bytes,
                 blob_dir: str | None = None, of_child: bool = False,
                 tell: Callable[[bool], object] = lambda has_source: None,
                 twin: bool = False) -> None:
        """`instance` is that of the storage that the server has open, and
        `blob_dir` the name of its directory of blobs.  `of_child`: this
        process ends with the server.  `tell` is called in the thread whenever
        there begins, or ceases, to be a source.  `twin`: the source is the
        one in plain Python, of which its caller needs more than loads."""
        self.name = name
        self._path = path
        self._instance = instance
        self._blob_dir = blob_dir
        self._make: Callable[[int, int, bytes], Any] = functools.partial(
            Twin if twin else Source, of_child=of_child)
        self._is_silent = of_child
        self._tell = tell
        self._process = os.getpid()
        #: Guards `source`, `blobs` and `_closed`.
        self._changing = threading.Lock()
        self._closed = False
        #: The log says once that the server refuses.
        self._was_refused = False
        #: The server was asked, since a map was retired if one was: there is a
        #: source, or none for now.
        self.was_asked = threading.Event()
        #: There is something to do for the thread.
        self._woken = threading.Event()
        self._thread = threading.Thread(
            target=self._run, daemon=True, name=f'{name} local reads')
        forks.in_child(self)
        self._thread.start()

    def look(self) -> None:
        """Look at once whether the map is retired."""
        self._woken.set()

    def is_here(self) -> bool:
        """Is this no fork?  A WSGI server may fork without telling Python,
        and then `forked` is not called."""
        return os.getpid() == self._process

    def close(self) -> None:
        """Let go of all files.

        The thread ends on its own.  This does not wait for it: the name that
        it connects to may be on a file system that does not answer.
        """
        if not self.is_here():
            self.forked()
            return
        with self._changing:
            self._closed = True
            self.source = self.blobs = None
        self._woken.set()

    def forked(self) -> None:
        """Called in a fork, where the thread is missing.

        It may have held the lock when the process was forked.
        """
        self._closed = True
        self.source = self.blobs = None
        self._changing, self._woken = threading.Lock(), threading.Event()

    # The thread

    def _run(self) -> None:
        while not self._closed:
            pause = self._read_until_retired()
            self._woken.clear()
            if not self._closed:
                self._woken.wait(pause)

    def _read_until_retired(self) -> float:
        """Get a source, and let it answer until it is retired, or until
        `close`.  Return the seconds to wait before the next try."""
        try:
            source, blobs = self._ask()
        except (Refused, OSError, NotAMap) as error:
            self.was_asked.set()
            if not self._was_refused:
                self._was_refused = True
                say_not_locally(self.name, error)
            return RETREAT
        self._was_refused = False
        if self._use(source, blobs) and not self._is_silent:
            logger.info('%s: reading locally, as the server hands out its'
                        ' file at %s', self.name, self._path)
        self.was_asked.set()
        while not (self._closed or source.is_retired):
            self._woken.wait(LOOK_EACH)
            self._woken.clear()
        self.was_asked.clear()
        self._use(None, None)
        return PAUSE

    def _ask(self) -> tuple[Twin, LocalBlobs | None]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(WITHIN)
            connection.connect(self._path)
            return received(connection, self._instance, self._blob_dir,
                            self._make)

    def _use(self, source: Twin | None, blobs: LocalBlobs | None) -> bool:
        """Use them, unless it was closed: nothing would end it then."""
        with self._changing:
            if self._closed:
                return False
            self.source, self.blobs = source, blobs
        self._tell(source is not None)
        return True


def say_not_locally(name: str, error: Exception) -> None:
    logger.info(
        '%s: reading through the server, not locally: %s', name, error)


def checked_path(path: str) -> str:
    if not path.startswith('/') or '\0' in path:
        raise ValueError(f'the socket {path!r} is not named with all of its'
                         ' directories')
    size = len(os.fsencode(path))  # or a UnicodeError, which is a ValueError
    if size > LONGEST_NAME:
        raise ValueError(f'the name of the socket {path!r} has {size} bytes,'
                         f' and the system allows {LONGEST_NAME}')
    return path


def named_by_server(about: dict[str, Any]) -> str:
    """The path of the socket.  Not any: it could be another program's."""
    path = about.get('socket')
    if not (isinstance(path, str) and path.endswith(SUFFIX)):
        raise ValueError('the server does not name its socket')
    return path


def checked_instance(instance: object) -> bytes:
    if not isinstance(instance, bytes) or len(instance) != INSTANCE_SIZE:
        raise ValueError('the server does not say what its map begins with')
    return instance


def received(connection: socket.socket, instance: bytes,
             blob_dir: str | None = None,
             make: Callable[[int, int, bytes], Any] | None = None,
             ) -> tuple[Twin, LocalBlobs | None]:
    """The Source that the server hands over, and its LocalBlobs or None."""
    data_file, object_map, *marker = received_descriptors(connection)
    source = (make or Source)(data_file.number, object_map.number, instance)
    return source, _local_blobs(blob_dir, marker[0]) if marker else None


def _local_blobs(directory: str | None,
                 marker: Descriptor) -> LocalBlobs | None:
    try:
        return LocalBlobs(directory, marker)
    except (NotHere, OSError) as error:
        logger.info('blobs are read through the server: %s', error)
        return None


def received_descriptors(connection: socket.socket) -> list[Descriptor]:
    """Of the data file, of the map, and perhaps of the marker of blobs.
    (`socket.recv_fds` ignores its `flags`.)"""
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
        return [Descriptor(each) for each in numbers]
    for number in numbers:
        os.close(number)
    if not message:
        raise Refused('the server hands nothing over now')
    if was_cut and len(numbers) < max(_DESCRIPTORS):
        raise Refused('no descriptors are left in this process')
    raise NotAMap('the server sent something else than its descriptors')
