"""Transactions and their records, one call for each: the server has the
iterator, and closes it when it has ended, or is no longer wanted here."""

import weakref

from ZEO.Exceptions import ClientDisconnected
from ZODB.BaseStorage import DataRecord
from ZODB.BaseStorage import TransactionRecord


class _Iterator:

    def __init__(self, call, start, next_one, *arguments):
        self._call = call
        self._next_one = next_one
        self._number = call(start, *arguments)
        self._close = weakref.finalize(self, _close, call, self._number)
        self._close.atexit = False

    def __iter__(self):
        return self

    def __next__(self):
        if not self._close.alive:
            raise StopIteration
        found = self._call(self._next_one, self._number)
        if found is None:  # the server has closed it
            self._close.detach()
            raise StopIteration
        return self._made(found)

    def close(self):
        self._close()


def _close(call, number):
    try:
        call('iterator_gc', [number])
    except ClientDisconnected:
        pass  # it has gone with the connection


class Transactions(_Iterator):

    def __init__(self, call, start, stop):
        super().__init__(call, 'iterator_start', 'iterator_next', start, stop)

    def _made(self, found):
        return _Transaction(self._call, self._number, *found)


class _Transaction(TransactionRecord):

    def __init__(self, call, iterator, tid, status, user, description,
                 extension):
        super().__init__(tid, status, user, description, extension)
        self._call = call
        self._iterator = iterator

    def __iter__(self):
        return _Records(self._call, 'iterator_record_start',
                        'iterator_record_next', self._iterator, self.tid)


class _Records(_Iterator):

    def _made(self, found):
        return DataRecord(*found)
