"""The connection that sees when a commit can be made in one trip.

Only the connection knows the transaction.  If all other resources of it have
voted, this one is the last, and its vote may commit (onetrip).  In doubt, a
commit goes in two trips, and over a storage that is not ours, always: there,
this class does what ZODB's own does.  The order of the resources is never
changed: a client that orders them in its own way would deadlock with others.

`FsyncClient` makes this the class of connections when a database takes it
(`use_our_connection`), unless another one was chosen, which may be derived
from this one.

The underscore names of ZODB were read from ZODB 6.4, those of transaction from
transaction 5.1; tests/upstream/test_stock_hooks.py fails when they move.
"""

import ZODB.Connection
from transaction._transaction import Status
from transaction._transaction import Transaction
from ZODB.mvccadapter import MVCCAdapterInstance

from .onetrip import OneTrip


def use_our_connection():
    """Let databases that are opened from now on have our connections."""
    if ZODB.DB.klass is ZODB.Connection.Connection:
        ZODB.DB.klass = Connection


def is_last_to_vote(resource, transaction):
    """Have all others voted?  Then they were before it in the order, and
    nobody votes behind it."""
    if (transaction.__class__ is not Transaction
            or transaction.status is not Status.COMMITTING):
        return False
    resources, voted = transaction._resources, transaction._voted
    others = [each for each in resources if each is not resource]
    return (len(others) == len(resources) - 1
            and all(id(each) in voted for each in others))


class Connection(ZODB.Connection.Connection):

    def _client(self):
        """The storage, if it is ours and nothing is between us."""
        adapter = self._storage
        if adapter.__class__ is not MVCCAdapterInstance:
            return None
        storage = adapter._storage
        return storage if isinstance(storage, OneTrip) else None

    def tpc_vote(self, transaction):
        client = self._client()
        if client is not None and is_last_to_vote(self, transaction):
            client.finish_with_vote(
                transaction.data(self), self._storage.tpc_finish)
        super().tpc_vote(transaction)

    def abort(self, transaction):
        self._refuse_too_late(transaction)
        super().abort(transaction)

    def tpc_abort(self, transaction):
        self._refuse_too_late(transaction)
        super().tpc_abort(transaction)

    def _refuse_too_late(self, transaction):
        """Raise if it is committed; its objects are as they were committed."""
        client = self._client()
        if client is None:
            return
        try:
            tid = client.finished_as(transaction.data(self))
        except KeyError:  # its commit was not begun
            return
        if tid is not None:
            self.tpc_finish(transaction)
            raise client.too_late(tid)
