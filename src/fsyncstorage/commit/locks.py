"""Which transaction holds which objects, and which one is next.

An *owner* is a transaction that is being voted.  It asks once for all objects
that it needs: those it writes, for itself alone, and those it only read, which
it may share with other readers.  It gets all of them at once, or waits and
holds nothing.  So within one storage owners cannot wait for each other in a
circle.  Over several storages they cannot either, because all transactions
vote in the same order of storages.

For each object, the waiting owners queue in the order in which they asked.  If
an owner cannot have all of its objects yet, a later owner that can may pass
it, at most `MOST_PASSED` times.  (Otherwise one slow transaction would delay
all owners that want an object of a waiting owner, and so on.)

An owner can also ask to be *alone*: it waits until all that asked before it
are done, and all that ask after it wait for it.

No threads, no clock, no I/O here: the caller makes one call at a time, and
wakes the owners that `let_go` returns.  If several owners wait for an object
that stays taken, a call looks only at the first of them.
"""

import typing
from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Iterator

#: A waiting owner lets this many later owners pass.
MOST_PASSED = 8

Owner = Hashable

_Oids = frozenset[bytes]
_NONE: _Oids = frozenset()


class _Wish:
    """What an owner waits for."""

    __slots__ = 'owner', 'written', 'read', 'oids', 'alone', 'passed'

    def __init__(self, owner: Owner, written: _Oids = _NONE,
                 read: _Oids = _NONE, alone: bool = False) -> None:
        self.owner = owner
        self.written = written
        self.read = read
        self.oids = written | read
        self.alone = alone
        self.passed = 0

    def excludes(self, other: '_Wish', oid: bytes) -> bool:
        """Does one of the two need this object for itself alone?"""
        return oid in self.written or oid in other.written


#: Wishes in the order in which they were made.
_Wishes = dict[_Wish, None]

_T = typing.TypeVar('_T')


class Locks:

    def __init__(self) -> None:
        # The objects that each owner writes, and those it only reads.
        self._granted: dict[Owner, tuple[_Oids, _Oids]] = {}
        self._waiting: dict[Owner, _Wish] = {}
        # For each object: the owner that writes it, or the owners that read
        # it; and the wishes that wait for it.
        self._writers: dict[bytes, Owner] = {}
        self._readers: dict[bytes, dict[Owner, None]] = {}
        self._queues: dict[bytes, _Wishes] = {}
        #: The wish that is alone, or asks to be; and all that came after it.
        self._alone: _Wish | None = None
        self._behind: _Wishes = {}

    def holds(self, owner: Owner) -> bool:
        return owner in self._granted

    def knows(self, owner: Owner) -> bool:
        """Does the owner hold something, or wait?"""
        return owner in self._granted or owner in self._waiting

    def ask(self, owner: Owner, written: Iterable[bytes],
            read: Iterable[bytes] = ()) -> bool:
        """Does the owner have all of these objects now?  Else it waits.

        If it asks again, its first call counts."""
        if owner in self._granted or owner in self._waiting:
            return owner in self._granted
        written = frozenset(written)
        read = frozenset(read) - written if read else _NONE
        if (not self._queues and self._alone is None
                and self._writers.keys().isdisjoint(written)
                and (not read or self._writers.keys().isdisjoint(read))
                and (not self._readers
                     or self._readers.keys().isdisjoint(written))):  # mostly
            self._grant(owner, written, read)
            return True
        return self._join(_Wish(owner, written, read))

    def ask_alone(self, owner: Owner) -> bool:
        """Is the owner alone now?  Else it waits.  It may ask again."""
        if owner in self._granted or owner in self._waiting:
            return owner in self._granted
        return self._join(_Wish(owner, alone=True))

    def _join(self, wish: _Wish) -> bool:
        """Let the wish wait; return whether it is served at once."""
        self._waiting[wish.owner] = wish
        if self._alone is not None:
            self._behind[wish] = None
            return False
        return self._come(wish)

    def _come(self, wish: _Wish) -> bool:
        """Put the wish last in the queues; return whether it is served now."""
        if wish.alone:
            self._alone = wish
            return self._serve_alone()
        for oid in wish.oids:
            self._queues.setdefault(oid, {})[wish] = None
        return self._serve(wish)

    # Letting go

    def let_go(self, owner: Owner) -> list[Owner]:
        """Free all that the owner holds, and end its wait.

        Return the owners that are served because of that."""
        if owner in self._granted:
            written, read = self._granted.pop(owner)
            for oid in written:
                del self._writers[oid]
            if read:
                self._leave(owner, read, self._readers)
            if not self._queues and self._alone is None:  # mostly
                return []
            oids = written | read
        elif owner in self._waiting:
            wish = self._waiting.pop(owner)
            oids = wish.oids
            self._behind.pop(wish, None)
            self._leave(wish, oids, self._queues)
        else:
            return []
        if self._alone is not None and self._alone.owner == owner:
            self._alone = None
            return self._serve_those_behind()
        return self._serve_those_at(oids)

    @staticmethod
    def _leave(one: _T, oids: _Oids, where: dict[bytes, dict[_T, None]]
               ) -> None:
        for oid in oids:
            # A wish that came after an owner alone stands in no queue.
            if oid in where:
                where[oid].pop(one, None)
                if not where[oid]:
                    del where[oid]

    # Serving

    def _serve_those_at(self, oids: Iterable[bytes]) -> list[Owner]:
        """Serve owners after another owner let go of these objects, or stopped
        waiting for them."""
        served, in_vain = [], set()
        for oid in oids:
            for wish in list(self._queues.get(oid, ())):
                if wish in in_vain:
                    continue  # nothing was freed since it was tried
                if self._is_taken(oid, wish):
                    break  # they are served when its holder lets go
                if self._serve(wish):
                    served.append(wish.owner)
                else:
                    in_vain.add(wish)
        if self._alone is not None and self._serve_alone():
            served.append(self._alone.owner)
        return served

    def _serve_those_behind(self) -> list[Owner]:
        """Admit the wishes that came after the owner that was alone, up to the
        next one that asks to be alone."""
        served = []
        while self._behind and self._alone is None:
            wish = next(iter(self._behind))
            del self._behind[wish]
            if self._come(wish):
                served.append(wish.owner)
        return served

    def _serve(self, wish: _Wish) -> bool:
        for oid in wish.oids:
            if self._is_taken(oid, wish):
                return False  # the usual case, checked before the queues
        passed = set()
        for oid in wish.oids:
            for other in self._before(oid, wish):
                if other.passed >= MOST_PASSED:
                    return False
                passed.add(other)
        for other in passed:
            other.passed += 1
        self._leave(wish, wish.oids, self._queues)
        self._grant(wish.owner, wish.written, wish.read)
        del self._waiting[wish.owner]  # last: it is always in one of the two
        return True

    def _is_taken(self, oid: bytes, wish: _Wish) -> bool:
        """Is the object held by an owner that cannot share it with this wish?
        """
        return oid in self._writers or (
            oid in wish.written and oid in self._readers)

    def _before(self, oid: bytes, wish: _Wish) -> Iterator[_Wish]:
        """The wishes that this one would pass at this object."""
        for other in self._queues[oid]:
            if other is wish:
                return
            if other.excludes(wish, oid):
                yield other

    def _serve_alone(self) -> bool:
        wish = self._alone
        assert wish is not None
        if self._granted:  # else none that came before can wait
            return False
        self._grant(wish.owner, _NONE, _NONE)
        del self._waiting[wish.owner]
        return True

    def _grant(self, owner: Owner, written: _Oids, read: _Oids) -> None:
        self._granted[owner] = written, read
        for oid in written:
            self._writers[oid] = owner
        for oid in read:
            self._readers.setdefault(oid, {})[owner] = None

    # After an interrupt

    def repair(self) -> None:
        """After an interrupted change: make all else anew from `_granted` and
        `_waiting`.

        This may serve owners, but does not return them to be woken.
        """
        waiting = [wish for wish in self._waiting.values()
                   if wish.owner not in self._granted]
        self._waiting.clear()
        self._writers.clear()
        self._readers.clear()
        self._queues.clear()
        self._behind.clear()
        if self._alone is not None and self._alone.owner not in self._granted:
            self._alone = None
        for owner, (written, read) in list(self._granted.items()):
            self._grant(owner, written, read)
        for wish in waiting:
            self._join(wish)
