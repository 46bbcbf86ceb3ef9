"""Transactions and their records, one call for each: the server has the
iterator, and closes it when it has ended, or is no longer wanted here.

An iterator ends with its stream: on the next one, its number may name another
iterator.
"""

import weakref

from ZODB.BaseStorage import DataRecord
from ZODB.BaseStorage import TransactionRecord

#: Numbers that the server is told together; it refuses very long lists.
MOST_AT_ONCE = 1000


class Server:
    """That of one stream."""

    def __init__(self, call_on, stream, abandoned):
        """`abandoned` has the streams and numbers of iterators that were not
        read to their ends.

        The garbage collector may add one at any time: also within the lock of
        the stream, or in the thread that reads there.  So it asks nothing, and
        the server is told when the next iterator starts.
        """
        self._call_on = call_on
        self._stream = stream
        self.abandoned = abandoned

    def call(self, method, *arguments):
        return self._call_on(self._stream, method, *arguments)

    def start(self, method, *arguments):
        """The number of a new iterator."""
        self._close_abandoned()
        return self.call(method, *arguments)

    def abandon(self, number):
        self.abandoned.append((self._stream, number))

    def _close_abandoned(self):
        """Those of earlier streams have gone with them."""
        numbers = []
        while self.abandoned:
            stream, number = self.abandoned.pop()
            if stream is self._stream:
                numbers.append(number)
        if numbers:  # of which the server has ended all but 100 itself
            self.call('iterator_gc', numbers[:MOST_AT_ONCE])


class _Iterator:

    def __init__(self, server, start, next_one, *arguments):
        self._server = server
        self._next_one = next_one
        self._number = server.start(start, *arguments)
        self._abandon = weakref.finalize(self, server.abandon, self._number)
        self._abandon.atexit = False

    def __iter__(self):
        return self

    def __next__(self):
        if not self._abandon.alive:
            raise StopIteration
        found = self._server.call(self._next_one, self._number)
        if found is None:  # the server has closed it
            self._abandon.detach()
            raise StopIteration
        return self._made(found)

    def close(self):
        self._abandon()


class Transactions(_Iterator):

    def __init__(self, server, start, stop):
        super().__init__(server, 'iterator_start', 'iterator_next', start,
                         stop)

    def _made(self, found):
        return _Transaction(self._server, self._number, *found)


class _Transaction(TransactionRecord):

    def __init__(self, server, iterator, tid, status, user, description,
                 extension):
        super().__init__(tid, status, user, description, extension)
        self._server = server
        self._iterator = iterator

    def __iter__(self):
        return _Records(self._server, 'iterator_record_start',
                        'iterator_record_next', self._iterator, self.tid)


class _Records(_Iterator):

    def _made(self, found):
        return DataRecord(*found)
