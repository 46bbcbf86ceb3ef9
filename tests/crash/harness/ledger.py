"""What was stored, and what was promised about it.

`Ledger` knows the content of each transaction, from the outside: what went
into the storage, never what came out.  (One exception: what a pack keeps of
old transactions is its own affair, and is taken from it when it returns.)

`Standing` follows the marks of a log: what had been asked and promised when
the power went.
"""

import copy
import typing

from fsyncstorage.commit import policies

from . import events


class Transaction(typing.NamedTuple):

    tid: bytes
    records: dict   # oid -> data, or None where a creation was undone
    blobs: dict     # oid -> content


class Pack:

    def __init__(self, limit):
        self.limit = limit  # the last tid before the pack time
        self.kept = None    # of the transactions up to there


class Ledger:

    def __init__(self):
        self.transactions = {}  # by tid
        self.asking = set()     # tids of those that ask to be durable
        self.named = set()      # tids of those that have a commit id
        self.packs = []

    def copy(self):
        other = Ledger()
        other.transactions.update(self.transactions)
        other.asking |= self.asking
        other.named |= self.named
        other.packs += self.packs
        return other

    def oids(self):
        return {oid for transaction in self.transactions.values()
                for oid in transaction.records}


UNDECIDED_PACK = 'a pack happened that did not return'
REVERTED_PACK = 'a pack that returned did not happen'


class History(typing.NamedTuple):
    """What a file may contain, and how that could be."""

    state: str | None   # one of the above, or None: as expected
    pack: int | None    # the number of that pack, or of the last one
    transactions: list


class Standing:

    def __init__(self):
        self.finishing = {}     # tid -> time, in order; without the revoked
        self.acknowledged = {}  # tid -> time
        self.published = set()
        self.kept = set()
        self.kept_blobs = set()     # tids of their transactions
        self.gone_blobs = set()     # (oid, tid)
        self.now = 0.0
        self.packs_begun = []
        self.packs_done = []
        #: Of the log of a quorum: how many records it has, and the number and
        #: the bytes of the last one that was sent.
        self.landed = 0
        self.sent = 0, b''

    def after(self, event):
        """The next event of the log happened."""
        match event:
            case events.Finishing(tid, at):
                self.finishing[tid] = at
            case events.Revoked(tid):
                for known in (self.finishing, self.acknowledged):
                    known.pop(tid, None)
                self.published.discard(tid)
            case events.Published(tid):
                self.published.add(tid)
            case events.Acknowledged(tid, at):
                self.acknowledged[tid] = at
                self.now = max(self.now, self.finishing[tid])
            case events.Passed(at):
                self.now = at
            case events.Kept(tids, with_blobs):
                self.kept.update(tids)
                if with_blobs:
                    self.kept_blobs.update(tids)
            case events.BlobsGone(keys):
                self.gone_blobs.update(keys)
            case events.Sent():
                self.sent = event
            case events.Landed(number):
                self.landed = number
            case events.PackBegun(number):
                self.packs_begun.append(number)
            case events.PackDone(number):
                self.packs_done.append(number)
            case events.PackRevoked(number):
                self.packs_begun.remove(number)

    def marks(self):
        """The events that lead here."""
        for tid, at in self.finishing.items():
            yield events.Finishing(tid, at)
            if tid in self.published:
                yield events.Published(tid)
            if tid in self.acknowledged:
                yield events.Acknowledged(tid, self.acknowledged[tid])
        yield events.Kept(frozenset(self.kept), with_blobs=False)
        yield events.Kept(frozenset(self.kept_blobs))
        yield events.BlobsGone(frozenset(self.gone_blobs))
        yield events.Passed(self.now)
        yield from map(events.PackBegun, self.packs_begun)
        yield from map(events.PackDone, self.packs_done)

    def copy(self):
        other = Standing()
        for name, value in vars(self).items():
            setattr(other, name, copy.copy(value))
        return other

    def obligations(self):
        """Two standings that agree in this judge every image alike."""
        return (tuple(self.finishing), len(self.acknowledged),
                len(self.published), len(self.kept), len(self.kept_blobs),
                len(self.gone_blobs), self.now,
                len(self.packs_begun), len(self.packs_done),
                self.landed, self.sent[0])

    def owed(self, policy):
        """The tids that must be there."""
        if policy == 'stock':
            return set(self.acknowledged)
        if policies.POLICIES[policy].promises:
            return self.acknowledged.keys() | self.published
        return self.kept

    def at_stake(self, tids):
        """Seconds since the oldest of these was acknowledged."""
        lost = [self.acknowledged[tid] for tid in tids
                if tid in self.acknowledged]
        return self.now - min(lost) if lost else 0.0

    def histories(self, ledger):
        """What the file may contain, up to where it was cut off."""
        done = self.packs_done[-1] if self.packs_done else None
        yield History(None, done, self._with_pack(ledger, done))
        for number in self.packs_begun:
            if (number not in self.packs_done
                    and ledger.packs[number].kept is not None):
                yield History(UNDECIDED_PACK, number,
                              self._with_pack(ledger, number))
        if done is not None:
            for number in [None] + self.packs_done[:-1]:
                yield History(REVERTED_PACK, done,
                              self._with_pack(ledger, number))

    def _with_pack(self, ledger, number):
        transactions = [ledger.transactions[tid] for tid in self.finishing]
        if number is None:
            return transactions
        pack = ledger.packs[number]
        return pack.kept + [transaction for transaction in transactions
                            if transaction.tid > pack.limit]
