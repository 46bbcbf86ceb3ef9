"""A process that reads for clients of ours: objects and blobs, on readers.

The server starts it, and hands it the sockets of readers, whose preface it has
seen and not taken.  From there on, all of such a connection is done here, in a
thread of its own: TLS, hello and answers.  So nobody waits for another's disk
or network, and nothing takes the interpreter of the server.

What is promised on a reader:

- The answer to a load names the last tid that was announced before the object
  was looked up.  Replies keep no order with what is announced on the client's
  stream: the client relies on that tid alone.
- What is not certain here, the client has to ask on its stream.
- An answer that has begun and cannot be ended ends the connection.
- A connection costs bounded memory: of a long record or a blob, a piece at a
  time is in memory.  A client that does not read for `PATIENCE` seconds is
  dropped, and so is one whose hello is not complete in time.

The process ends when the server ends, however it does: its map is no longer
kept up to date then.

Left to others: how many readers there may be (readers), what is certain
(format.source).
"""

import contextlib
import ctypes
import logging
import operator
import os
import signal
import socket
import struct
import sys
import threading
import time

from .. import core
from ..local.answering import Answering
from ..local.handedover import HandedOver
from ..processes.parent import ParentProcess
from ..wire import frames
from ..wire.tcp import set_options

logger = logging.getLogger(__name__)

#: Seconds for TLS and hello together; seconds for a client to read some of an
#: answer; seconds for the server to hand its files over.
HELLO_WITHIN = 10
PATIENCE = 60
FILES_WITHIN = 10
#: Bytes of a blob that are sent together.
PIECE = 1 << 18
#: Bytes of a frame that a client sends here.
LONGEST = 1 << 10
#: Seconds from one report of what was done here to the next; and to one that
#: says no more than that this process is alive.
REPORT_EACH = 0.2
SIGN_OF_LIFE_EACH = 2

#: Bytes for the stack of a thread: there may be a thousand of them.
STACK = 1 << 19

_SET_DEATH_SIGNAL = 1  # of prctl(2)


class Gone(Exception):
    """This reader has ended; its text says why."""


class Process:

    def __init__(self, job, report):
        """`job`: what the server has sent.  `report` takes a message to it."""
        self.instance = bytes.fromhex(job['instance'])
        self.greeting = bytes.fromhex(job['greeting'])
        self.tls = _context(job['configuration'])
        #: OpenSSL has its own buffers, which the core does not know.
        self.uses_twins = core.Answering is None or self.tls is not None
        self.storages = {
            each['name']: HandedOver(
                each['name'], each['socket'],
                bytes.fromhex(each['instance']), each['blobs'], of_child=True,
                twin=self.uses_twins)
            for each in job['storages']}
        self._report = report
        self._lock = threading.Lock()
        #: By the numbers with which they were handed over.
        self._readers = {}
        #: Numbers of those that have ended, with the readers; None: there was
        #: none.
        self._ended = []
        self._woken = threading.Event()

    def serve(self, door):
        """Take readers until the server ends."""
        threading.Thread(target=self._report_all, daemon=True).start()
        while True:
            # The number of a reader comes with its socket.
            message, descriptors, _, _ = socket.recv_fds(door, 8, 1)
            if not message:
                return
            number = int.from_bytes(message, 'big')
            if descriptors:
                self._begin(number, descriptors[0])
            else:  # none is left in this process: the system has closed it
                self._has_ended(number)

    def _begin(self, number, descriptor):
        reader = Reader(self, socket.socket(fileno=descriptor))
        with self._lock:
            self._readers[number] = reader
        try:
            threading.Thread(target=self._run, args=(number, reader),
                             daemon=True).start()
        except RuntimeError:  # the system allows no more threads
            logger.exception('a reader could not be served')
            reader.close()
            self._has_ended(number)

    def _run(self, number, reader):
        try:
            reader.run()
        except (Gone, EOFError, OSError, ValueError,
                frames.PeerError) as error:
            logger.info('a reader has ended: %s', error)
        except Exception:
            logger.exception('a reader has ended')
        finally:
            reader.close()
            self._has_ended(number)

    def _has_ended(self, number):
        with self._lock:
            self._ended.append((number, self._readers.pop(number, None)))
        self._woken.set()

    # Reports

    def _report_all(self):
        reported = time.monotonic()
        while True:
            self._woken.wait(REPORT_EACH)
            self._woken.clear()
            report = self._news()
            now = time.monotonic()
            if any(report.values()) or now > reported + SIGN_OF_LIFE_EACH:
                reported = now
                self._report(report)
            time.sleep(REPORT_EACH)

    def _news(self):
        """What was done and has ended since the last call."""
        with self._lock:
            ended, self._ended = self._ended, []
            readers = list(self._readers.items())
        for _, reader in readers:
            reader.end_if_over()
        return {'done': [{'number': number, **news}
                         for number, reader in readers + ended
                         if reader is not None and (news := reader.news())],
                'ended': [number for number, _ in ended]}


class Reader:
    """One connection, from its preface on."""

    def __init__(self, process, connection):
        self._process = process
        self._connection = connection
        self._begun = time.monotonic()
        self._storage = self._source = self._hello = None
        #: Of the loads; None until its hello was taken.
        self._answering = None
        #: Bytes of blobs that were sent; what the last report said.
        self._sent = 0
        self._reported = 0, 0, 0, 0

    def run(self):
        connection = self._connection
        connection.setblocking(True)
        set_options(connection, PATIENCE)
        # A send that makes no progress for so long fails.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO,
                              struct.pack('@ll', PATIENCE, 0))
        if self._exactly(len(frames.PREFACE)) != frames.PREFACE:
            raise Gone('its preface is that of another version')
        if self._process.tls is not None:
            self._connection = self._process.tls.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False)
            self._connection.do_handshake()
            self._connection.sendall(self._process.greeting)
        self._meet()
        self._serve()

    def end_if_over(self):
        """Called again and again by another thread."""
        if self._answering is None:
            if time.monotonic() > self._begun + HELLO_WITHIN:
                self._shut(socket.SHUT_RDWR)
        elif self._source.is_retired:
            # An idle reader would keep a file that a pack has replaced.  An
            # answer goes on.
            self._shut(socket.SHUT_RD)
            if self._storage.source is self._source:
                self._storage.look()

    def _shut(self, ways):
        with contextlib.suppress(OSError):  # it has ended
            socket.socket.shutdown(self._connection, ways)

    def close(self):
        self._connection.close()

    def news(self):
        """What was done here since the last call; None: nothing."""
        answering = self._answering
        if answering is None:
            return None
        now = (answering.loads, answering.requests, answering.received,
               answering.sent + self._sent)
        before, self._reported = self._reported, now
        if now == before:
            return None
        loads, requests, received, sent = map(operator.sub, now, before)
        return {'storage': self._storage.name,
                'mark': self._hello.mark.hex(), 'loads': loads,
                'requests': requests, 'received': received, 'sent': sent}

    # The hello

    def _meet(self):
        """Take the hello, and say welcome."""
        inbox = frames.Inbox()
        inbox.longest = LONGEST
        while (body := inbox.next_body()) is None:
            inbox.add(self._received(LONGEST))
        try:
            version = frames.agreed_version(body)
        except frames.NoCommonVersion as error:
            self._refuse(frames.OTHER_VERSION, str(error))
        self._hello = hello = frames.taken(body)
        if (hello.__class__ is not frames.HelloOfAReader
                or hello.magic != frames.MAGIC):
            raise frames.PeerError(f'{hello!r:.100} is not the hello of a'
                                   ' reader')
        if hello.instance != self._process.instance:
            self._refuse(frames.OTHER_INSTANCE,
                         'the server was restarted: open a stream')
        name = hello.storage.decode('utf-8', 'replace')
        self._storage = self._process.storages.get(name)
        if self._storage is None:
            self._refuse(frames.UNKNOWN_STORAGE,
                         f'no storage {name[:100]!r} is read here')
        self._storage.was_asked.wait(FILES_WITHIN)
        self._source = source = self._storage.source
        if source is None:
            self._refuse(frames.TOO_MANY, 'there is no map of the file now')
        self._connection.sendall(frames.frame(frames.Welcome(
            0, version, self._process.instance, frames.NO_TID, b'')))
        self._answering = self._answered_by(source, inbox.rest())

    def _refuse(self, reason, text):
        self._connection.sendall(
            frames.frame(frames.Refused(0, reason, text.encode())))
        raise Gone(text)

    def _answered_by(self, source, received):
        if self._process.uses_twins:
            return Answering(self._connection, source, LONGEST, received)
        return core.Answering(
            self._connection.fileno(), source, LONGEST, received)

    def _received(self, most):
        data = self._connection.recv(most)
        if not data:
            raise Gone('its client has closed it')
        return data

    def _exactly(self, size):
        """So many bytes, and none behind them: those may be of TLS."""
        data = b''
        while len(data) < size:
            data += self._received(size - len(data))
        return data

    # Requests

    def _serve(self):
        while (body := self._answering.run()) is not None:
            message = frames.taken(body)
            if message.__class__ is not frames.GetBlob or not message.number:
                raise frames.PeerError(f'{message!r:.100} of a reader')
            self._get_blob(message)
        self._storage.look()
        raise Gone('the map of the file is retired')

    def _get_blob(self, message):
        blobs = self._storage.blobs
        path = blobs and blobs.path(message.oid, message.serial)
        file = None
        if path is not None:
            with contextlib.suppress(OSError):
                file = open(path, 'rb', buffering=0)
        if file is None:
            self._send(frames.Elsewhere(message.number))
            return
        with file:  # from here on, an error ends the reader
            self._send_blob(file, message)

    def _send_blob(self, file, message):
        size = os.fstat(file.fileno()).st_size
        if size < message.offset:
            self._send(frames.Elsewhere(message.number))
            return
        self._send(frames.BlobSize(message.number, size))
        file.seek(message.offset)
        left = message.answer(size)
        while left:
            piece = file.read(min(left, PIECE))
            if not piece:
                raise Gone('the file of a blob has become shorter')
            left -= len(piece)
            self._send(frames.BlobChunk(message.number, piece))

    def _send(self, message):
        data = frames.frame(message)
        try:
            self._connection.sendall(data)
        except OSError as error:
            raise Gone(f'its client does not read: {error}') from error
        self._sent += len(data)


def _context(configuration):
    """The TLS of this configuration file; None: there is none.

    It is read here once more: nothing of an SSLContext can be handed over, and
    a password that a function asks for is in no file.
    """
    if configuration is None:
        return None
    from .runzeo import Options
    options = Options()
    options.realize(['-C', configuration])
    return options.ssl


def _end_with(pid):
    """Let the system kill this process when the server ends, however it does:
    also if this process hangs, or is stopped."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), 'prctl')
    if os.getppid() != pid:  # it ended before that
        os._exit(1)


def main(pid):
    _end_with(pid)
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr,
        format=f'%(asctime)s reader process {os.getpid()} of {pid}:'
               ' %(levelname)s %(message)s')
    threading.stack_size(STACK)
    parent = ParentProcess(pid)
    job = parent.job()
    process = Process(job, parent.report)
    process.serve(socket.socket(fileno=job['door']))
    os._exit(0)  # threads may still be sending
