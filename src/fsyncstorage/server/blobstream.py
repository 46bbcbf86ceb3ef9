"""Blob files on their way to a stock client.

Reader threads read the files, and the loop sends them in pieces, as fast as
the client takes them.  The loop waits neither for the disk nor for the client.
Other answers may leave between the pieces.  At most `MOST_STREAMS` files of a
client are open at a time; its other files wait.
"""

import collections
import os

from .door import MOST_STREAMS

READ_AT_ONCE = 1 << 18


class BlobStreams:
    """The streams of one client."""

    def __init__(self, connection, readers):
        self.connection = connection
        self.readers = readers
        self._waiting = collections.deque()
        self._open = 0

    def add(self, *stream):
        self._waiting.append(stream)
        self._start()

    def _start(self):
        while self._waiting and self._open < MOST_STREAMS:
            self._open += 1
            BlobStream(self, *self._waiting.popleft())

    def ended(self):
        self._open -= 1
        if not self.connection.closed:
            self._start()


class BlobStream:

    def __init__(self, streams, open_one, blob):
        """`open_one` returns the file, in a thread.  `blob` says what is sent,
        with three methods: `begin(file)`, which returns how many bytes are
        wanted, `piece(data)`, and `end(error)`."""
        self._connection = streams.connection
        self._readers = streams.readers
        self._ended = streams.ended
        self._blob = blob
        self._file = None
        self._readers.submit(self._opened, open_one)

    def _opened(self, file, error):
        if error is not None:
            self._ended()
            self._blob.end(error)
            return
        self._file = file
        self._left = self._blob.begin(file)
        self._read()

    def _read(self):
        self._readers.submit(
            self._send, self._file.read, min(READ_AT_ONCE, self._left))

    def _send(self, piece, error):
        connection = self._connection
        if error is None and piece and not connection.closed:
            self._left -= len(piece)
            self._blob.piece(piece)
            connection.when_writable(self._read)
            return
        self._file.close()
        self._ended()
        if error is not None or self._left:
            # The client cannot be told that a stream ends early.
            connection.abort()
        elif not connection.closed:
            self._blob.end(None)


class ZeoBlob:
    """How a client of stock is told."""

    def __init__(self, connection, oid, serial, done):
        self._connection = connection
        self._name = oid, serial
        self._done = done

    def begin(self, file):
        self._connection.say('receiveBlobStart', *self._name)
        return os.fstat(file.fileno()).st_size

    def piece(self, data):
        self._connection.say('receiveBlobChunk', *self._name, data)

    def end(self, error):
        if error is None:
            self._connection.say('receiveBlobStop', *self._name)
        self._done(None, error)
