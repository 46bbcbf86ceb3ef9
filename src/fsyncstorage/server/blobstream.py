"""Blob files on their way to a client.

Reader threads read the files, and the loop sends them in pieces, as fast as
the client takes them.  The loop waits neither for the disk nor for the client.
Other answers may leave between the pieces.  At most `MOST_STREAMS` files of a
client are open at a time; its other files wait.

`blob` says what is sent, by these methods:

open()       in a thread: the file, and how many of its bytes are wanted
begin()      it is open; its first piece follows, if it has any
piece(data)
end(error)   all has been sent; or it could not be opened
"""

import collections
import os

from . import quiet
from .door import MOST_STREAMS

logger = quiet.get_logger(__name__)

READ_AT_ONCE = 1 << 18


class BlobStreams:
    """The streams of one client."""

    def __init__(self, connection, readers):
        self.connection = connection
        self.readers = readers
        self._waiting = collections.deque()
        self._open = 0

    def add(self, blob):
        self._waiting.append(blob)
        self._start()

    def _start(self):
        while self._waiting and self._open < MOST_STREAMS:
            self._open += 1
            BlobStream(self, self._waiting.popleft())

    def ended(self):
        self._open -= 1
        if not self.connection.closed:
            self._start()


class BlobStream:

    def __init__(self, streams, blob):
        self._connection = streams.connection
        self._readers = streams.readers
        self._ended = streams.ended
        self._blob = blob
        self._file = None
        self._left = 0
        self._readers.submit(self._opened, self._open)

    def _open(self):
        """In a thread.  The first piece is read in the same step: most blobs
        are short."""
        self._file, self._left = self._blob.open()
        return self._read()

    def _read(self):
        try:
            return self._file.read(min(READ_AT_ONCE, self._left))
        finally:
            if self._connection.closed:  # perhaps nobody takes the result
                self._file.close()

    def _opened(self, piece, error):
        if self._file is None:
            self._ended()
            self._blob.end(error)
            return
        if error is None and not self._connection.closed:
            self._blob.begin()
        self._send(piece, error)

    def _send(self, piece, error):
        connection = self._connection
        if error is None and piece and not connection.closed:
            self._left -= len(piece)
            self._blob.piece(piece)
            if self._left:
                connection.when_writable(self._go_on)
                return
        self._file.close()
        self._ended()
        if connection.closed:
            return
        if error is None and not self._left:
            self._blob.end(None)
            return
        # The client cannot be told that a blob ends early.
        logger.error('%s: disconnected: a blob could not be read to its end:'
                     ' %s', connection.session.log_label,
                     error or 'its file has become shorter')
        connection.abort()

    def _go_on(self):
        if self._connection.closed:  # no thread may do the job any more
            self._send(b'', None)
        else:
            self._readers.submit(self._send, self._read)


class ZeoBlob:
    """How a client of stock is told."""

    def __init__(self, connection, load, oid, serial, done):
        """`load(oid, serial)` returns the path of the file."""
        self._connection = connection
        self._load = load
        self._name = oid, serial
        self._done = done

    def open(self):
        file = open(self._load(*self._name), 'rb', buffering=0)
        return file, os.fstat(file.fileno()).st_size

    def begin(self):
        self._connection.say('receiveBlobStart', *self._name)

    def piece(self, data):
        self._connection.say('receiveBlobChunk', *self._name, data)

    def end(self, error):
        if error is None:
            self._connection.say('receiveBlobStop', *self._name)
        self._done(None, error)
