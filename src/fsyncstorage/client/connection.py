"""A ZODB connection that sees when a commit can be made in one trip.

Only the connection knows the transaction.  If the connection is its only
resource, its vote may commit (onetrip).  In doubt, a commit goes in two trips.
Over a storage that is not ours, it always does: there, this class does what
ZODB's own does.

It is not enough that this connection votes last.  The vote of another database
is lost if that loses its connection, or after its timeout.  If this happens
while ours votes, the finish of the other one fails with an error after which
`attempts()` retries, and ours would be committed twice.

In two trips the same can happen the other way round: our finish fails after
others have committed.  Then the error is one that is not retried
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
from ZODB.DB import TransactionalUndo
from ZODB.mvccadapter import MVCCAdapterInstance
from ZODB.POSException import ConflictError

from ..errors import OutcomeUnknown

# The status of a transaction whose resources vote and finish.
COMMITTING = 'Committing'

# Resources that commit when they finish.
OF_ZODB = ZODB.Connection.Connection, TransactionalUndo


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
    """Called when `resource` votes: does no other resource commit anything
    before this one has finished?

    They finish in the order in which they vote.  A connection or an undo of
    ZODB commits nothing before it finishes.  For other resources this is not
    known: SQL may be committed in its vote.
    """
    resources = getattr(transaction, '_resources', [None])
    voted = getattr(transaction, '_voted', {})
    return all(each is resource
               or isinstance(each, OF_ZODB) and id(each) not in voted
               for each in resources)


class Connection(ZODB.Connection.Connection):

    # As it was at its last vote.
    _others_finish_later = False

    def _client(self):
        """The storage, if it is ours and no wrapper is in between."""
        adapter = self._storage
        if adapter.__class__ is not MVCCAdapterInstance:
            return None
        storage = adapter._storage
        # (Of its class: a wrapper passes on the attributes of what it wraps.)
        return (storage if hasattr(type(storage), 'finish_with_vote')
                else None)

    def tpc_vote(self, transaction):
        client = self._client()
        self._others_finish_later = others_finish_later(self, transaction)
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
        if not in_one_trip:
            return
        if client.finished_as(transaction.data(self)) is None:
            # ZEO gave up.  What the client has resolved last was not voted.
            raise ConflictError(
                'resolved again and again, and always changed by others')
        if not client.knows_resolved(transaction.data(self)):
            self._drop_modified()

    def _drop_modified(self):
        """Forget the objects that this transaction has changed: each may be
        stored with another state than it has here."""
        self._cache.invalidate(self._modified)

    def tpc_finish(self, transaction):
        try:
            super().tpc_finish(transaction)
        except TransientError as error:
            # This database has not committed, and alone could be retried.
            if self._client() is None or self._others_finish_later:
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
        """Raise if it is committed.  Its objects then are as committed."""
        client = self._client()
        if client is None or transaction is None:
            return
        try:
            tid = client.finished_as(transaction.data(self))
        except KeyError:  # its commit was not begun
            return
        if tid is not None:
            error = client.too_late(tid)  # logged, whatever happens next
            # Perhaps nobody took from the vote what the server has resolved.
            self._drop_modified()
            try:
                self.tpc_finish(transaction)
            except Exception as failed:
                raise error from failed
            raise error
