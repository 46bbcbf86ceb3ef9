"""The body of a response: pieces of a file, in bounded memory.

WSGI servers close a body, whether it was read or not; the body then closes its
file.  A file that ends too early is an error: the server then closes the
connection, so that no client mistakes a part for the whole.
"""

import secrets

from .ranges import content_range

# Bytes.  With smaller pieces, switching between threads costs more than to
# send them.
PIECE = 1 << 18


class Body:
    """The ranges of a file, each behind its head."""

    def __init__(self, file, ranges, heads=None, tail=b''):
        self._file = file
        heads = heads or [b''] * len(ranges)
        self._pieces = _pieces(file, ranges, heads, tail)

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


class Multipart:
    """The heads and the length of a `multipart/byteranges` body."""

    def __init__(self, ranges, size, type_):
        boundary = secrets.token_hex(16)
        self.content_type = f'multipart/byteranges; boundary={boundary}'
        self.heads = [
            f'\r\n--{boundary}\r\nContent-Type: {type_}\r\nContent-Range:'
            f' {content_range(*each, size)}\r\n\r\n'.encode()
            for each in ranges]
        self.tail = f'\r\n--{boundary}--\r\n'.encode()
        self.length = (sum(stop - start for start, stop in ranges)
                       + sum(map(len, self.heads)) + len(self.tail))


def _pieces(file, ranges, heads, tail):
    for head, (start, stop) in zip(heads, ranges):
        if head:
            yield head
        file.seek(start)
        while start < stop:
            piece = file.read(min(PIECE, stop - start))
            if not piece:
                raise OSError(f'{file!r} ends at {start}, not at {stop}')
            yield piece
            start += len(piece)
    if tail:
        yield tail
