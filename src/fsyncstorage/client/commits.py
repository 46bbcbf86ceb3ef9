"""What commits call of the client's storage, and transactions in one trip.

A transaction that has only one resource may be committed by its vote: no other
resource can refuse it.  The storage sees only its own part of a transaction.
So the connection decides (client.connection), and calls `finish_with_vote`
before it votes.  Then the vote asks the server for both, and its answer is
completed as that of a finish is.  `tpc_finish` returns the tid that came with
the answer, and `tpc_abort` is too late.
"""

import logging

from ZODB.ConflictResolution import ConflictResolvingStorage
from ZODB.POSException import ConflictError
from ZODB.POSException import ReadOnlyError
from ZODB.POSException import StorageError
from ZODB.POSException import StorageTransactionError
from ZODB.utils import z64

from ..wire import frames
from .commit import Transaction

logger = logging.getLogger(__name__)

# Votes of one transaction whose conflicts this client resolves.
MOST_VOTES = 9


class _OneTrip:
    """What a vote needs in order to finish."""

    #: What tpc_finish is given.
    f = None


class Commits(ConflictResolvingStorage):

    # Begin and end

    def tpc_begin(self, txn, tid=None, status=' '):
        if self.isReadOnly():
            raise ReadOnlyError()
        if not hasattr(txn, 'data'):  # the record of a copied transaction
            data = {}
            txn.data, txn.set_data = data.__getitem__, data.__setitem__
        if self._transaction_of(txn) is not None:
            raise StorageTransactionError(
                'Duplicate tpc_begin calls for same transaction')
        # It may have to wait: a server may be taking over from another one.
        begin = Transaction.described(
            _bytes(txn.user), _bytes(txn.description), txn.extension, tid,
            status)
        txn.set_data(self, Transaction(self, self._stream(), begin))

    def _transaction_of(self, txn):
        """None: it was not begun here, or is over."""
        try:
            return txn.data(self)
        except KeyError:
            return None

    def _begun(self, txn, method):
        transaction = self._transaction_of(txn)
        if transaction is None:
            if self.isReadOnly():
                raise ReadOnlyError()
            raise StorageTransactionError(f'{method}: not begun here')
        return transaction

    def tpc_transaction(self):
        """Several may be open."""

    def tpc_abort(self, txn, timeout=None):
        transaction = self._transaction_of(txn)
        if transaction is None:
            return
        if not self._process.is_here:
            # It goes on in the process that has begun it, with its files.
            txn.set_data(self, None)
            return
        if transaction.tid is not None:
            self._end(txn, transaction)
            raise self.too_late(transaction.tid)
        try:
            transaction.abort()
        finally:
            self._end(txn, transaction)

    def _end(self, txn, transaction):
        txn.set_data(self, None)
        while transaction.blobs:
            _, path = transaction.blobs.pop()
            self._blobs.discard(path)

    # What a transaction stores

    def store(self, oid, serial, data, version, txn):
        assert not version
        self._begun(txn, 'store').store(oid, _serial(serial), data)

    def checkCurrentSerialInTransaction(self, oid, serial, txn):
        self._begun(txn, 'checkCurrentSerialInTransaction').add(
            frames.Check(0, oid, serial))

    def deleteObject(self, oid, serial, txn):
        transaction = self._begun(txn, 'deleteObject')
        transaction.written[oid] = None
        transaction.add(frames.Delete(0, oid, serial))

    def undo(self, transaction_id, txn):
        self._begun(txn, 'undo').add(frames.Undo(0, _bytes(transaction_id)))

    def restore(self, oid, serial, data, version, prev_txn, txn):
        assert not version
        transaction = self._begun(txn, 'restore')
        transaction.written[oid] = None
        transaction.add(
            frames.Restore(0, oid, serial, prev_txn or z64, data is not None,
                           data or b''), len(data or b''))

    def storeBlob(self, oid, serial, data, blobfilename, version, txn):
        assert not version
        transaction = self._begun(txn, 'storeBlob')
        if self.shared_blob_dir:
            self._needed_blobs().store(
                transaction, oid, _serial(serial), data, blobfilename)
            return
        # From now on the file is ours, and no longer at the caller's path.
        staged = self._needed_blobs().stage(blobfilename)
        transaction.blobs.append((oid, staged))
        with open(staged, 'rb') as file:
            transaction.add_blob(oid, _serial(serial), data, file)

    def copyTransactionsFrom(self, other, verbose=0):
        from ZODB.BaseStorage import copy
        copy(other, self, verbose)

    # Vote and finish

    def tpc_vote(self, txn):
        transaction = self._begun(txn, 'tpc_vote')
        try:
            return self._vote(transaction)
        except frames.PeerError as error:
            raise transaction.stream.not_understood(error) from error
        except ConflictError as error:
            # Perhaps this client has missed an invalidation, and has a state
            # in its cache that is none: then the next try does better.
            if getattr(error, 'oid', None) is not None:
                self._cache.drop([error.oid])
            raise

    def _vote(self, transaction):
        resolved = set()
        for _ in range(MOST_VOTES):
            conflicts = []
            for each in self._ask_for_vote(transaction):
                if isinstance(each, dict):
                    conflicts.append(each)
                else:
                    resolved.add(each)
                    transaction.written[each] = None
            if not conflicts:
                break
            for each in conflicts:
                resolved.add(self._resolve(transaction, each))
        else:
            raise ConflictError(
                'resolved again and again, and always changed by others')
        return list(resolved) or None

    def _ask_for_vote(self, transaction):
        if transaction.one_trip is None:
            return transaction.vote()
        return transaction.vote_and_finish(transaction.one_trip.f)

    def _resolve(self, transaction, conflict):
        """Store the state that resolves it; return the oid."""
        try:
            oid, data = conflict['oid'], conflict['data']
            committed, read = conflict['serials']
        except (KeyError, TypeError, ValueError) as error:
            raise frames.PeerError(
                f'a conflict that is none: {error!r}') from error
        transaction.store(oid, committed, self.tryToResolveConflict(
            oid, committed, read, data))
        return oid

    def tpc_finish(self, txn, f=lambda tid: None):
        transaction = self._begun(txn, 'tpc_finish')
        trip = transaction.one_trip
        if trip is not None and trip.f is None:
            trip.f = f  # called by `finish_with_vote`
            return None
        if trip is None:
            transaction.finish(f)
        elif transaction.tid is None:
            raise StorageTransactionError('finished before its vote')
        tid = transaction.tid
        while transaction.blobs:
            oid, path = transaction.blobs.pop()
            self._blobs.commit(oid, tid, path)
        self._end(txn, transaction)
        return tid

    # One trip

    def finish_with_vote(self, txn, tpc_finish):
        """Let the vote of this transaction finish it, too.

        The caller promises that no other resource votes, and that it votes
        next.  `tpc_finish` is the function that it will call after the vote.
        This method calls it once before: it must pass to our own `tpc_finish`
        the `f` that the vote is to call.

        False: this transaction goes in two trips, and nothing was called.
        """
        # The methods of a derived class would be called before the commit, or
        # could refuse it when it is already made.
        if (type(self).tpc_finish is not Commits.tpc_finish
                or type(self).tpc_vote is not Commits.tpc_vote):
            return False
        self._begun(txn, 'finish_with_vote').one_trip = _OneTrip()
        tpc_finish(txn)
        return True

    def finished_as(self, txn):
        """Its tid, if it is committed and tpc_finish was not called since;
        otherwise None."""
        transaction = self._transaction_of(txn)
        return None if transaction is None else transaction.tid

    def knows_resolved(self, txn):
        """Did the vote that has committed it return all the oids whose
        conflicts the server has resolved?"""
        return self._transaction_of(txn).resolved is not None

    def refuse_repeating(self, txn, error):
        """Raise another error, after which nobody retries, if it is committed.
        """
        tid = self.finished_as(txn)
        if tid is not None:
            raise StorageError(
                f'it is committed, as {tid.hex()}, and after that:'
                f' {error!r}') from error

    def too_late(self, tid):
        """Log that this transaction cannot be aborted; return the error."""
        logger.critical(
            '%s: a transaction is aborted that is already committed, as %s:'
            ' it stays committed', self.__name__, tid.hex())
        return StorageTransactionError(
            f'too late to abort: it is committed, as {tid.hex()}')

    # Called for a transaction (commit)

    def next_stream(self, stream, seconds):
        return self._failover.wait(seconds, beyond=stream)

    def committed(self, transaction, done):
        """Its Done has come; return what `f` has raised, or None."""
        self._sizes = done.length, done.size
        errors = []
        self._cache.committed(
            done.tid,
            [(oid, data, data is None)
             for oid, data in transaction.written.items()],
            lambda tid: errors.append(transaction.tell(tid)))
        return errors[0]

    def learned(self, transaction, tid):
        """Its Done was lost; it is announced.  Return what `f` has raised.

        If others have committed later, `f` has set the last tid of the
        connections back.  A transaction that began since may lack the changes
        of the others: so they get the last tid once more.
        """
        error = transaction.tell(tid)
        last = self.lastTransaction()
        if last > tid:
            self.tell(last, ())
            self.forget_objects()
        return error

    def tell(self, tid, oids):
        """Tell the connections of a transaction."""
        self.invalidateTransaction(tid, oids)

    def forget_objects(self):
        """Let all connections drop the objects that they hold."""
        self.invalidateCache()




def _serial(serial):
    """For a new object it is zeros, as bytes or text, or an empty value."""
    return _bytes(serial) if serial else z64


def _bytes(text):
    return text.encode() if isinstance(text, str) else text
