"""Which transaction has which objects, and which one is next.

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

A thread can wait for its turn, and an event loop can be called back.  The
mutex is a leaf: a thread that holds it does not wait, read or write, and calls
nothing but functions that wake a thread or notify an event loop.  If several
owners wait for an object that stays taken, a call looks only at the first of
them.
"""

import threading
import time
import typing
from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Iterator

from ..histogram import Histogram
from .interrupts import WholeOrStopped
from .wakeable import Sleeper

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


class Turns:

    def __init__(self, stop: Callable[[BaseException], object]) -> None:
        """`stop` stops writing, after an interrupt."""
        self._mutex = threading.Lock()
        self._stop_writing = stop
        self._whole_or_stopped = WholeOrStopped(self._stop)
        # The objects that each owner writes, and those it only reads.
        self._granted: dict[Owner, tuple[_Oids, _Oids]] = {}
        self._waiting: dict[Owner, _Wish] = {}
        # For each object: the owner that writes it, or the owners that read
        # it; and the wishes that wait for it.
        self._writers: dict[bytes, Owner] = {}
        self._readers: dict[bytes, dict[Owner, None]] = {}
        self._queues: dict[bytes, _Wishes] = {}
        # The wish that is alone, or asks to be; and all that came after it.
        self._alone: _Wish | None = None
        self._behind: _Wishes = {}
        # For each owner, the function that wakes or notifies its waiter, and
        # since when it waits.  The function may be called twice.
        self._waiters: dict[Owner, tuple[Callable[[], object], float]] = {}
        #: How long the owners waited that were served in the end.
        self.waits = Histogram()
        self._ended = False

    @property
    def waiting(self) -> int:
        """How many threads and loops wait for their objects."""
        return len(self._waiters)

    # Asking and waiting

    def ask(self, owner: Owner, written: Iterable[bytes],
            read: Iterable[bytes] = ()) -> bool:
        """Does the owner have all of these objects now?  Else it waits.

        If it asks again, its first call counts."""
        with self._mutex, self._whole_or_stopped:
            if self._ended or owner in self._granted or owner in self._waiting:
                return owner in self._granted
            written = frozenset(written)
            read = frozenset(read) - written if read else _NONE
            if (not self._queues and self._alone is None
                    and self._writers.keys().isdisjoint(written)
                    and (not read or self._writers.keys().isdisjoint(read))
                    and (not self._readers or self._readers.keys().isdisjoint(
                        written))):  # mostly
                self._grant(owner, written, read)
                return True
            return self._join(_Wish(owner, written, read))

    def ask_alone(self, owner: Owner) -> bool:
        """Is the owner alone now?  Else it waits.  It may ask again."""
        with self._mutex, self._whole_or_stopped:
            if self._ended or owner in self._granted or owner in self._waiting:
                return owner in self._granted
            return self._join(_Wish(owner, alone=True))

    def wait(self, owner: Owner, seconds: float | None = None) -> bool:
        """Wait until the owner is served; return false if it never will be, or
        was not within this time.

        It never will be if an abort in another thread has let go of its
        objects, or if the storage is closed, or has stopped writing after an
        interrupt.
        """
        sleeper = Sleeper()
        if self.call_when_served(owner, sleeper.wake):
            sleeper.sleep(seconds)
        with self._mutex:
            return not self._ended and owner in self._granted

    def call_when_served(self, owner: Owner,
                         function: Callable[[], object]) -> bool:
        """Call the function when the owner is served, or if it never will be.

        If one of these is true already, return False, and call nothing.
        """
        with self._mutex:
            if self._ended or owner not in self._waiting:
                return False
            self._waiters[owner] = function, time.monotonic()
            return True

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

    def let_go(self, owner: Owner) -> None:
        """Free all that the owner holds, and end its wait."""
        with self._mutex, self._whole_or_stopped:
            if self._ended:
                return  # nobody is served any more
            if owner in self._granted:
                written, read = self._granted.pop(owner)
                for oid in written:
                    del self._writers[oid]
                if read:
                    self._leave(owner, read, self._readers)
                oids = written | read if read else written
            elif owner in self._waiting:
                wish = self._waiting.pop(owner)
                oids = wish.oids
                self._behind.pop(wish, None)
                self._leave(wish, oids, self._queues)
                self._wake(owner)  # another thread may wait for its turn
            else:
                return
            if self._queues or self._alone is not None:  # rarely
                self._serve_others(owner, oids)

    def end(self) -> None:
        """Serve no owner any more."""
        with self._mutex:
            self._end()

    def _stop(self, interrupt: BaseException) -> None:
        """Nobody knows any more who has what.  The mutex is held."""
        self._stop_writing(interrupt)
        self._end()

    def _end(self) -> None:
        self._ended = True
        for owner in list(self._waiters):
            self._wake(owner)

    def _wake(self, owner: Owner) -> None:
        if owner in self._waiters:
            function, since = self._waiters[owner]
            function()
            # Only now: after an interrupt before, `_end` calls it again.
            del self._waiters[owner]
            if owner in self._granted:
                self.waits.add(time.monotonic() - since)

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

    def _serve_others(self, owner: Owner, oids: _Oids) -> None:
        """This owner let go of these objects, or stopped waiting for them."""
        if self._alone is not None and self._alone.owner == owner:
            self._alone = None
            self._serve_those_behind()
        else:
            self._serve_those_at(oids)

    def _serve_those_at(self, oids: _Oids) -> None:
        in_vain = set()
        for oid in oids:
            for wish in list(self._queues.get(oid, ())):
                if wish in in_vain:
                    continue  # nothing was freed since it was tried
                if self._is_taken(oid, wish):
                    break  # they are served when its holder lets go
                if not self._serve(wish):
                    in_vain.add(wish)
        if self._alone is not None:
            self._serve_alone()

    def _serve_those_behind(self) -> None:
        """Admit the wishes that came after the owner that was alone, up to the
        next one that asks to be alone."""
        while self._behind and self._alone is None:
            wish = next(iter(self._behind))
            del self._behind[wish]
            self._come(wish)

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
        del self._waiting[wish.owner]
        self._grant(wish.owner, wish.written, wish.read)
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
        del self._waiting[wish.owner]
        self._grant(wish.owner, _NONE, _NONE)
        return True

    def _grant(self, owner: Owner, written: _Oids, read: _Oids) -> None:
        self._granted[owner] = written, read
        for oid in written:
            self._writers[oid] = owner
        for oid in read:
            self._readers.setdefault(oid, {})[owner] = None
        if self._waiters:
            self._wake(owner)
