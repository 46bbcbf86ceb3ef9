"""The body of a response: pieces of a file, in bounded memory.

WSGI servers close a body, whether it was read or not; the body then closes its
file.  A file that ends too early is an error: the server then closes the
connection, so that no client mistakes a part for the whole.
"""

# Bytes.  With smaller pieces, switching between threads costs more than to
# send them.
PIECE = 1 << 18


class Body:
    """A range of a file."""

    def __init__(self, file, start, stop):
        self._file = file
        self._pieces = _pieces(file, start, stop)

    def __iter__(self):
        return self._pieces

    def close(self):
        self._pieces.close()
        self._file.close()


class InPieces:
    """A file for the server to send, which returns at most a PIECE at a time.

    Waitress reads as much as the system may buffer, which can be megabytes for
    each reader, and then reads again what it could not send of it.
    """

    def __init__(self, file):
        self._file = file

    def __getattr__(self, name):
        return getattr(self._file, name)

    def read(self, size=-1):
        return self._file.read(min(size, PIECE))  # -1: all


def _pieces(file, start, stop):
    file.seek(start)
    while start < stop:
        piece = file.read(min(PIECE, stop - start))
        if not piece:
            raise OSError(f'{file!r} ends at {start}, not at {stop}')
        yield piece
        start += len(piece)
