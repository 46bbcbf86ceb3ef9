"""Hands the data file and the object map to clients on the same machine.

A storage that offers local reads has a Handout: a thread with a unix socket
next to the data file.  Every process that can connect to the socket gets a
descriptor of each of the two files, for reading, as soon as the map is built.
The first client causes that.  The connection stays open.  When the map is
retired, all clients are told to let go of both files, and are disconnected;
clients that connect again cause a new map.

Nothing here waits for a client.  A client costs a descriptor, and two more
while they are being sent to it.  There are at most `most_clients` clients.  A
client that sends anything is disconnected, and clients are accepted at a
limited rate.

A process of another user that gets a file for reading could open it again for
writing, whatever directory the file is in.  So such a process gets no file
that others may write to.

The thread owns everything but `_wake_up`.  It never touches the event loop.
If it ends by an error, the log says so, and nothing is offered any more.

Left to others: the map (storage.objectmap), what a client does with it
(client.local).  docs/internals/localreads.rst has the protocol.
"""

import contextlib
import math
import os
import resource
import select
import selectors
import socket
import stat
import threading
import time

from ZODB.blob import LAYOUT_MARKER

from ..format.objectmap import SECRET_SIZE
from ..storage.objectmap import NoMap
from ..storage.objectmap import TooFarApart
from ..wire.handover import HAND_OVER
from ..wire.handover import LET_GO
from ..wire.handover import LONGEST_NAME
from ..wire.handover import SUFFIX
from . import quiet

logger = quiet.get_logger(__name__)

#: Clients of a storage at the same time.
MOST_CLIENTS = 256
#: The local clients of all storages together may have one in this many of the
#: descriptors of the process.
PART_OF_DESCRIPTORS = 8
#: Connections that are accepted at once, and then each second.
AT_ONCE, A_SECOND = MOST_CLIENTS, 50
#: Descriptors that a Handout needs in addition: its sockets and selector, its
#: files, and those that it is handing over.
OWN_DESCRIPTORS = 10
#: The modes by which other users may write to a file.
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH

#: Seconds until the next try, after a map could not be built, and after there
#: was no descriptor for a client.
RETREAT = 30
NO_DESCRIPTOR = 1


class Handout:

    def __init__(self, storage, path, mode, most_clients=MOST_CLIENTS):
        """Listen; raise OSError or RuntimeError if that is not possible."""
        self._storage = storage
        self._path = path
        #: The directory of blobs, or None.
        self._blobs = _directory_of_blobs(storage)
        self._others_may_connect = mode != stat.S_IRUSR | stat.S_IWUSR
        self._most_clients = most_clients
        self._taken = Bucket(AT_ONCE, A_SECOND)
        #: Proves to a client that the files that it is handed are ours.
        self.secret = os.urandom(SECRET_SIZE)
        self._map = None
        self._not_before = 0.0
        self._clients = set()
        self._closing = self._has_ended = False
        self._listener = _listen(path, mode)
        self._status = os.lstat(path)
        self._woken, self._wake_up = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        for each, ready in ((self._listener, self._accept),
                            (self._woken, self._was_woken)):
            each.setblocking(False)
            self._selector.register(each, selectors.EVENT_READ, ready)
        self._wake_up.setblocking(False)
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
        if self._has_ended or self._not_before == math.inf:
            return None
        return {'socket': self._path, 'secret': self.secret,
                **({'blobs': self._blobs} if self._blobs else {})}

    @property
    def descriptors(self):
        """How many descriptors it may need."""
        return self._most_clients + OWN_DESCRIPTORS

    @property
    def clients(self):
        return len(self._clients)

    def close(self):
        """Disconnect all clients.  They keep their files, see client.local."""
        self._closing = True
        self._wake()
        self._thread.join()

    def _wake(self):
        """Called in any thread."""
        with contextlib.suppress(OSError):  # it is awake, or has ended
            self._wake_up.send(b'\0')

    # In the thread

    def _run(self):
        try:
            while not self._closing:
                for key, _ in self._selector.select():
                    key.data(key.fileobj)
        except Exception:
            logger.exception('%s: local reads have ended', self._path)
        finally:
            self._end()

    def _end(self):
        self._has_ended = True
        _remove_if_it_is(self._path, self._status)
        self._leave_map()
        for each in (*self._clients, self._listener, self._woken):
            each.close()
        self._selector.close()
        with contextlib.suppress(OSError):
            self._wake_up.close()

    def _was_woken(self, woken):
        with contextlib.suppress(BlockingIOError):
            woken.recv(4096)
        self._end_retired_map()

    def _end_retired_map(self):
        if self._map is not None and self._map.is_retired:
            self._storage.forget_map(self._map)
            self._leave_map()
            for client in list(self._clients):
                with contextlib.suppress(OSError):
                    client.send(LET_GO)
                self._send_away(client)

    def _leave_map(self):
        if self._map is not None:
            self._map.close()
            self._map = None

    def _pause(self, seconds):
        """Accept no clients for `seconds`, or until the thread is woken."""
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        poll.poll(1000 * seconds)

    def _accept(self, listener):
        if (seconds := self._taken.wait()) > 0:
            self._pause(seconds)
            return
        try:
            client, _ = listener.accept()
        except BlockingIOError:  # the client has gone
            return
        except OSError:  # no descriptors are left; the client still waits
            self._pause(NO_DESCRIPTOR)
            return
        self._taken.take()
        client.setblocking(False)
        self._end_retired_map()  # before this client is one of them
        if len(self._clients) >= self._most_clients:
            client.close()
            return
        self._selector.register(
            client, selectors.EVENT_READ, self._send_away)
        self._clients.add(client)
        try:
            self._hand_over(client)
        except Exception as error:
            # Also an error of the storage: it is closed, or has stopped.
            logger.info('%s: nothing is handed to a local client: %s',
                        self._path, error)
            self._send_away(client)

    def _hand_over(self, client):
        if self._map is None:
            self._build()
        descriptors = [*self._map.open()]
        try:
            if self._others_may_write(descriptors[0]):
                raise NoMap('its group, or everybody, may write to the file')
            if self._blobs is not None:
                self._add_marker(descriptors)
            socket.send_fds(client, [HAND_OVER], descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

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

    def _build(self):
        if time.monotonic() < self._not_before:
            raise NoMap('there was none a moment ago')
        self._not_before = time.monotonic() + RETREAT
        try:
            self._map = self._storage.object_map(self.secret, self._wake)
        except TooFarApart:
            self._not_before = math.inf
            raise
        self._not_before = 0.0

    def _send_away(self, client):
        """The client has sent something, or has gone, or must go.

        Two of these may happen at once.
        """
        if client in self._clients:
            self._clients.remove(client)
            self._selector.unregister(client)
            client.close()


class Bucket:
    """A rate limit: `most` at once, and then `a_second` each second."""

    def __init__(self, most, a_second):
        self._most, self._a_second = most, a_second
        self._left, self._since = most, time.monotonic()

    def wait(self):
        """Seconds until the next one may come; 0: now."""
        now = time.monotonic()
        self._left = min(
            self._most, self._left + (now - self._since) * self._a_second)
        self._since = now
        return max(0, (1 - self._left) / self._a_second)

    def take(self):
        self._left -= 1


def share(storages):
    """How many clients each of this number of storages may have.

    Together they take at most their part of the descriptors.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return MOST_CLIENTS
    most = limit // PART_OF_DESCRIPTORS // max(1, storages) - OWN_DESCRIPTORS
    return min(MOST_CLIENTS, most)


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


def is_wanted(storage):
    """Does the storage offer local reads?

    A wrapper never does: its records differ from those in the file of the
    storage that it wraps.
    """
    return (hasattr(type(storage), 'object_map')
            and storage.local_reads and not storage.isReadOnly())


def offered(storage, most_clients=MOST_CLIENTS):
    """The Handout of a storage; None if it offers no local reads."""
    if not is_wanted(storage):
        return None
    path = os.path.abspath(storage.getName()) + SUFFIX
    try:
        path.encode()  # clients are told the path
        if most_clients < 1:
            raise OSError('the process may have too few descriptors')
        return Handout(storage, path, storage.local_reads_mode, most_clients)
    except (OSError, RuntimeError, UnicodeError) as error:
        logger.warning('%r: no local reads: %s', path, error)
        return None
