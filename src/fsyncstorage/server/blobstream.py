"""Blob files on their way to a stock client.

Reader threads read the files, and the loop sends them in pieces, as fast as
the client takes them.  The loop waits neither for the disk nor for the client.
Other answers may leave between the pieces.  At most `MOST_STREAMS` files of a
client are open at a time; its other files wait.
"""

import collections

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

    def __init__(self, streams, load_blob, oid, serial, done):
        self._connection = streams.connection
        self._readers = streams.readers
        self._ended = streams.ended
        self._name = oid, serial
        self._done = done
        self._file = None
        self._readers.submit(self._opened, lambda: open(
            load_blob(oid, serial), 'rb', buffering=0))

    def _opened(self, file, error):
        if error is not None:
            self._ended()
            self._done(None, error)
            return
        self._file = file
        self._connection.async_('receiveBlobStart', *self._name)
        self._read()

    def _read(self):
        self._readers.submit(self._send, self._file.read, READ_AT_ONCE)

    def _send(self, piece, error):
        connection = self._connection
        if error is None and piece and not connection.closed:
            connection.async_('receiveBlobChunk', *self._name, piece)
            connection.when_writable(self._read)
            return
        self._file.close()
        self._ended()
        if error is not None:
            # The client cannot be told that a stream ends early.
            connection.abort()
        elif not connection.closed:
            connection.async_('receiveBlobStop', *self._name)
            self._done(None, None)
