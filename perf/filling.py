"""Storages that have many objects."""

from ZODB.Connection import TransactionMetaData
from ZODB.utils import p64
from ZODB.utils import z64

AT_ONCE = 100  # objects in a transaction
OBJECT_SIZE = 1000


def fill(storage, first, number):
    """Make this number of objects in the storage, from an oid on."""
    for begin in range(first, first + number, AT_ONCE):
        store(storage, range(begin, begin + AT_ONCE))


def store(storage, numbers):
    """Commit new data of the objects with these numbers."""
    transaction = TransactionMetaData()
    storage.tpc_begin(transaction)
    for number in numbers:
        try:
            serial = storage.getTid(p64(number))
        except KeyError:
            serial = z64
        storage.store(p64(number), serial, b'x' * OBJECT_SIZE, '', transaction)
    storage.tpc_vote(transaction)
    storage.tpc_finish(transaction)
