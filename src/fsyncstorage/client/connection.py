"""The connection that sees when a commit can be made in one trip.

Only the connection knows the transaction.  If it is the only resource of it,
its vote may commit (onetrip).  In doubt, a commit goes in two trips, and over
a storage that is not ours, always: there, this class does what ZODB's own
does.

It is not enough to be the last one to vote.  What another database has voted
is lost with its connection, or after its timeout.  If that happens while ours
votes, its finish fails with an error after which `attempts()` tries again, and
ours would be committed twice.

In two trips the same can happen the other way round: our finish fails after
others have committed.  Then the error is one that is not tried again
(OutcomeUnknown).

`FsyncClient` makes this the class of connections when a database takes it
(`use_our_connection`), unless another one was chosen, which may be derived
from this one.

The underscore names of ZODB were read from ZODB 6.4, those of transaction from
transaction 5.1; tests/upstream/test_stock_hooks.py fails when they move.
"""

import ZODB.Connection
from transaction import Transaction
from transaction.interfaces import TransientError
from ZODB.mvccadapter import MVCCAdapterInstance
from ZODB.POSException import StorageTransactionError

from ..errors import OutcomeUnknown
from .onetrip import OneTrip

# The status of a transaction whose resources vote and finish.
COMMITTING = 'Committing'


def use_our_connection():
    """Let databases that are opened from now on have our connections."""
    if ZODB.DB.klass is ZODB.Connection.Connection:
        ZODB.DB.klass = Connection


def is_alone(resource, transaction):
    """Is it the only resource of a transaction that commits?"""
    if transaction.__class__ is not Transaction:
        return False
    # (With a release that has other names: two trips.)
    resources = getattr(transaction, '_resources', ())
    return (getattr(transaction, 'status', None) == COMMITTING
            and len(resources) == 1 and resources[0] is resource)


def others_finish_later(resource, transaction):
    """Has no other resource of a transaction that commits finished already?

    A connection of ZODB finishes in the order of the keys, and nothing of it
    is committed before.  Of other resources nobody knows: SQL may be committed
    in its vote.
    """
    if transaction.__class__ is not Transaction:
        return False
    others = [each for each in getattr(transaction, '_resources', [None])
              if each is not resource]
    return all(isinstance(each, ZODB.Connection.Connection)
               and each.sortKey() > resource.sortKey() for each in others)


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
        in_one_trip = (
            client is not None and is_alone(self, transaction)
            and client.finish_with_vote(
                transaction.data(self), self._storage.tpc_finish))
        try:
            super().tpc_vote(transaction)
        except TransientError as error:
            if client is not None:
                client.refuse_repeating(transaction.data(self), error)
            raise
        if in_one_trip and client.finished_as(transaction.data(self)) is None:
            # ZEO gives up when too many conflicts of the client were resolved.
            raise StorageTransactionError('the vote has not committed it')

    def tpc_finish(self, transaction):
        try:
            super().tpc_finish(transaction)
        except TransientError as error:
            # This one has not committed, and could be repeated alone.
            if (self._client() is None
                    or others_finish_later(self, transaction)):
                raise
            raise OutcomeUnknown(
                f'this database could not finish the transaction ({error}),'
                f' and others that take part in it may have. Look for what'
                f' they have changed before you repeat it') from error

    def abort(self, transaction):
        self._refuse_too_late(transaction)
        super().abort(transaction)

    def tpc_abort(self, transaction):
        self._refuse_too_late(transaction)
        super().tpc_abort(transaction)

    def _refuse_too_late(self, transaction):
        """Raise if it is committed; its objects are as they were committed."""
        client = self._client()
        if client is None or transaction is None:
            return
        try:
            tid = client.finished_as(transaction.data(self))
        except KeyError:  # its commit was not begun
            return
        if tid is not None:
            error = client.too_late(tid)  # logged, whatever comes
            try:
                self.tpc_finish(transaction)
            finally:
                raise error
