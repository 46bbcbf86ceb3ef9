"""A blob file on its way to a stock client.

It is read by reader threads and sent in pieces, as fast as the client takes
them; the loop waits for neither.  Others get their answers between the pieces.
"""

PIECE = 1 << 18


class BlobStream:

    def __init__(self, connection, readers, oid, serial, done):
        self._connection = connection
        self._readers = readers
        self._name = oid, serial
        self._done = done
        self._file = None

    def start(self, load_blob):
        self._readers.submit(self._opened, _open_blob, load_blob, self._name)

    def _opened(self, file, error):
        if error is not None:
            self._done(None, error)
            return
        self._file = file
        self._connection.async_('receiveBlobStart', *self._name)
        self._read()

    def _read(self):
        self._readers.submit(self._send, self._file.read, PIECE)

    def _send(self, piece, error):
        connection = self._connection
        if error is not None:
            self._file.close()
            # The client cannot be told that a stream ends early.
            connection.abort()
        elif connection.closed:
            self._file.close()
        elif piece:
            connection.async_('receiveBlobChunk', *self._name, piece)
            connection.when_writable(self._read)
        else:
            self._file.close()
            connection.async_('receiveBlobStop', *self._name)
            self._done(None, None)


def _open_blob(load_blob, name):
    return open(load_blob(*name), 'rb', buffering=0)
