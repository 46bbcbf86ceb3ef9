"""A blob for Zope's publisher to send: a stream iterator.

A method returns it; the publisher sends it when the connection is closed, or
has gone to another request.  So it has asked for everything before, and reads
from a file only::

    def download(self, REQUEST):
        REQUEST.RESPONSE.setHeader('Content-Type', 'application/pdf')
        return BlobIterator(self.blob)

Zope sends nothing (204) if no type is set.  It has the length from `len`.

It needs Zope.
"""

from zope.interface import implementer
from ZPublisher.Iterators import IStreamIterator

from .bodies import PIECE
from .source import Source


@implementer(IStreamIterator)
class BlobIterator:

    def __init__(self, blob):
        self._file, self._size = Source.of(blob).open()
        self.read = self._file.read
        self.close = self._file.close

    def __len__(self):
        return self._size

    def __iter__(self):
        return self

    def __next__(self):
        piece = self.read(PIECE)
        if not piece:
            raise StopIteration
        return piece
