"""Transactions whose vote finishes them, too: *one trip*.

A transaction that has only one resource may be committed by its vote: no other
resource can refuse it.  The storage sees only its own part of a transaction.
So the connection decides (connection), and calls `finish_with_vote` before it
votes.  Then the vote asks the server for both, and its answer is completed as
that of a finish is.  `tpc_finish` returns the tid that came with the answer,
and `tpc_abort` is too late.

Over the ZEO connection, every transaction goes in two trips.
"""

import logging

from ZEO.ClientStorage import ClientStorage
from ZODB.POSException import StorageTransactionError

logger = logging.getLogger(__name__)


class Trip:
    """What a vote needs in order to finish."""

    #: What tpc_finish is given.
    f = None

    def __init__(self, written):
        self.written = written


class OneTrip(ClientStorage):

    def finish_with_vote(self, txn, tpc_finish):
        """Let the vote of this transaction finish it, too.

        The caller promises that no other resource votes, and that it votes
        next.  `tpc_finish` is the function that it will call after the vote.
        This method calls it once before: it must pass to our own `tpc_finish`
        the `f` that the vote is to call.

        False: this transaction goes in two trips, and nothing was called.
        """
        written = self._check_trans(txn, 'finish_with_vote')
        committing = self._server.committing(id(txn))
        if committing is None:
            return False
        committing.trip = Trip(written)
        tpc_finish(txn)
        return True

    def finished_as(self, txn):
        """Its tid, if it is committed and tpc_finish was not called since;
        otherwise None."""
        committing = self._committing(txn)
        if committing is None or committing.finishing is None:
            return None
        return committing.finishing.tid

    def knows_resolved(self, txn):
        """Did the vote that has committed it return all the oids whose
        conflicts the server has resolved?"""
        return self._committing(txn).finishing.resolved is not None

    def refuse_repeating(self, txn, error):
        """Raise another error, after which nobody retries, if it is committed.
        """
        if self.finished_as(txn) is not None:
            self._committing(txn).finishing.refuse_repeating(error)

    def _committing(self, txn):
        """None: it was not begun, or is over, or has no commit channel."""
        if self._written(txn) is None:
            return None
        return self._server.committing(id(txn))

    def tpc_finish(self, txn, f=lambda tid: None):
        committing = self._committing(txn)
        if committing is None or committing.trip is None:
            return super().tpc_finish(txn, f)
        if committing.trip.f is None:
            committing.trip.f = f
            return None
        tid = self.finished_as(txn)
        if tid is None:
            raise StorageTransactionError('finished before its vote')
        written = self._written(txn)
        self.tpc_end(txn)
        self._iterator_gc()
        self._update_blob_cache(written, tid)
        return tid

    def tpc_abort(self, txn, timeout=None):
        tid = self.finished_as(txn)
        if tid is not None:
            self.tpc_end(txn)
            raise self.too_late(tid)
        super().tpc_abort(txn, timeout)

    def too_late(self, tid):
        """Log that this transaction cannot be aborted; return the error."""
        logger.critical(
            '%s: a transaction is aborted that is already committed, as %s:'
            ' it stays committed', self.__name__, tid.hex())
        return StorageTransactionError(
            f'too late to abort: it is committed, as {tid.hex()}')
