"""A blob for Zope's publisher to send: a stream iterator.

A method returns it.  When the publisher sends it, the connection may be
closed, or used by another request.  So the iterator opens the file at once,
and later only reads from it::

    def download(self, REQUEST):
        REQUEST.RESPONSE.setHeader('Content-Type', 'application/pdf')
        return BlobIterator(self.blob)

Zope sends nothing (204) if no type is set.  It gets the length by `len`.

This module needs Zope.
"""

from zope.interface import implementer
from ZPublisher.Iterators import IStreamIterator

from .source import PIECE
from .source import InPieces
from .source import Source
from .source import is_complete


@implementer(IStreamIterator)
class BlobIterator:

    def __init__(self, blob):
        file, self._size = Source(blob).open()
        self.read = InPieces(file).read
        self.close = file.close
        if is_complete(file):
            # With these attributes, the WSGI server can send the file without
            # a thread of Zope, or the front server can send it (filter).
            self.seek, self.tell = file.seek, file.tell
            self.fileno, self.name = file.fileno, file.name

    def __len__(self):
        return self._size

    def __iter__(self):
        return self

    def __next__(self):
        piece = self.read(PIECE)
        if not piece:
            raise StopIteration
        return piece
