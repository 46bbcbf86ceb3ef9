"""Hands the data file and the object map to clients on the same machine.

A storage that is served has a Handout: a thread with a unix socket next to the
data file.  With local reads, the operator says who may connect; without them,
only processes of the server's own user, which are those that read for it
(readerprocess).  Every process that can connect to the socket is sent a
descriptor of each of the two files, for reading, as soon as there is a map;
then the connection is closed.  One that is closed without descriptors says:
ask the server.  Nothing is kept for a client, and nothing waits for one: they
are served one after the other.

A process of another user that gets a file for reading could open it again for
writing, whatever directory the file is in.  So such a process gets no file
that others may write to.

If the thread ends by an error, the log says so, and nothing is offered any
more.

Left to others: the map (storage.objectmap), what a client does with it
(client.local).  docs/internals/localreads.rst has the protocol.
"""

import contextlib
import errno
import math
import os
import socket
import stat
import struct
import threading
import time

from ZODB.blob import LAYOUT_MARKER

from ..format.objectmap import is_possible
from ..storage.objectmap import NoMap
from ..storage.objectmap import TooFarApart
from ..wire.handover import HAND_OVER
from ..wire.handover import LONGEST_NAME
from ..wire.handover import SUFFIX
from . import quiet

logger = quiet.get_logger(__name__)

#: Descriptors that a Handout needs: its socket, a client with what it is sent,
#: and the memory of a map, twice.
DESCRIPTORS = 8
#: The mode of a socket that is for the server's own user alone, and the modes
#: by which other users may write to a file.
OWN_USER = stat.S_IRUSR | stat.S_IWUSR
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
ROOT = 0
# Of SO_PEERCRED: pid, user, group.
_PEER = struct.Struct('3i')

#: Seconds from one client to the next; they wait in the socket's queue.
PAUSE = 0.005
# Errors of `accept`: descriptors or memory are short for now.
_MAY_PASS = errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS
#: Seconds until the next try, after a map could not be built.
RETREAT = 5


class Handout:

    def __init__(self, storage, path, mode):
        """Listen; raise OSError or RuntimeError if that is not possible."""
        self._storage = storage
        #: Are clients told of it?
        self.is_for_clients = storage.local_reads
        self._path = path
        #: The directory of blobs, or None.
        self._blobs = _directory_of_blobs(storage)
        self._others_may_connect = mode != OWN_USER
        self._not_before = 0.0
        self._process = os.getpid()
        self._closing = threading.Event()
        self._listener = _listen(path, mode)
        self._status = os.lstat(path)
        self._thread = threading.Thread(
            target=self._run, daemon=True, name=f'local reads of {path}')
        try:
            self._thread.start()
        except RuntimeError:
            self._end()
            raise

    @property
    def about(self):
        """What a client has to know; None: nothing is handed out any more."""
        if self._not_before == math.inf:
            return None
        return {'socket': self._path, 'instance': self._storage.instance,
                **({'blobs': self._blobs} if self._blobs else {})}

    def close(self):
        """Clients keep their files, see client.local."""
        if os.getpid() != self._process:  # a fork: the socket is the parent's
            self._listener.close()
            return
        self._closing.set()
        with contextlib.suppress(OSError):  # the thread has ended
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes `accept`
        self._thread.join()

    # In the thread

    def _run(self):
        try:
            while not self._closing.wait(PAUSE):
                self._serve_next()
        except Exception:
            logger.exception('%s: local reads have ended', self._path)
        finally:
            self._end()

    def _end(self):
        self._not_before = math.inf
        _remove_if_it_is(self._path, self._status)
        self._listener.close()

    def _serve_next(self):
        try:
            client, _ = self._listener.accept()
        except OSError as error:
            if error.errno in _MAY_PASS or self._closing.is_set():
                return
            raise
        with client:
            client.setblocking(False)
            try:
                self._hand_over(client)
                # A backup ships what is durable, and asks for more each
                # second: it waits for the end of this connection.  Nobody
                # else may choose when the storage syncs.
                if user_of(client) in (os.geteuid(), ROOT):
                    self._storage.make_durable()
            except Exception as error:
                # Also an error of the storage: it is closed, or has stopped.
                logger.info('%s: nothing is handed to a local client: %s',
                            self._path, error)

    def _hand_over(self, client):
        descriptors = [*self._current_map().open()]
        try:
            if self._others_may_write(descriptors[0]):
                raise NoMap('its group, or everybody, may write to the file')
            if self._blobs is not None:
                self._add_marker(descriptors)
            socket.send_fds(client, [HAND_OVER], descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _current_map(self):
        if time.monotonic() < self._not_before:
            raise NoMap('there was none a moment ago')
        try:
            return self._storage.object_map()
        except TooFarApart:
            self._not_before = math.inf
            raise
        except NoMap:
            self._not_before = time.monotonic() + RETREAT
            raise

    def _others_may_write(self, descriptor):
        return (self._others_may_connect
                and os.fstat(descriptor).st_mode & WRITABLE_BY_OTHERS)

    def _add_marker(self, descriptors):
        """Add the marker of the blob directory.  A client that gets none asks
        the server for its blobs."""
        with contextlib.suppress(OSError):
            descriptors.append(_opened_marker(self._blobs))
            if self._others_may_write(descriptors[-1]):
                os.close(descriptors.pop())


def _listen(path, mode):
    name = os.fsencode(path)
    if len(name) > LONGEST_NAME:
        raise OSError(f'the name has {len(name)} bytes, and the system allows'
                      f' {LONGEST_NAME}')
    with contextlib.suppress(FileNotFoundError):
        _remove_if_it_is(path, os.lstat(path))
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(path)
        os.chmod(path, mode)  # before `listen`, nobody can connect
        listener.listen()
    except BaseException:
        listener.close()
        raise
    return listener


def user_of(client):
    """The user of the process that has connected, as the kernel says."""
    _, user, _ = _PEER.unpack(client.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return user


def _directory_of_blobs(storage):
    """None: there is none, or clients could not be told of it."""
    directory = getattr(storage, 'blob_dir', None)
    if not directory:
        return None
    directory = os.path.abspath(directory)
    with contextlib.suppress(UnicodeError):
        directory.encode()
        return directory
    return None


def _opened_marker(directory):
    """Open a file whose descriptor proves which directory it is in.

    (With a descriptor of the directory itself, a client could leave its
    container.)
    """
    return os.open(
        os.path.join(directory, LAYOUT_MARKER),
        os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)


def _remove_if_it_is(path, status):
    """Remove this socket.  Anything else that has its name is not ours."""
    with contextlib.suppress(FileNotFoundError):
        if (stat.S_ISSOCK(status.st_mode)
                and os.path.samestat(os.lstat(path), status)):
            os.remove(path)


def offered(storage):
    """The Handout of a storage; None if no other process may read its file.

    A wrapper never does: its records differ from those in the file of the
    storage that it wraps.
    """
    if (not hasattr(type(storage), 'object_map') or not is_possible()
            or storage.isReadOnly()):
        return None
    path = os.path.abspath(storage.getName()) + SUFFIX
    try:
        path.encode()  # clients are told the path
        return Handout(storage, path, storage.local_reads_mode
                       if storage.local_reads else OWN_USER)
    except (OSError, RuntimeError, UnicodeError) as error:
        logger.warning('%r: no local reads, and no process that reads for'
                       ' clients: %s', path, error)
        return None
