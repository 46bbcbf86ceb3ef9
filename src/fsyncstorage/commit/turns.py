"""Which transaction has which objects, and which one is next.

An *owner* is a transaction that is being voted, or a pack, for which the file
is an object, too (storage.commits).  It asks once for all objects that it
needs: those it writes, exclusively, and those it only read, which it may share
with other readers.  It gets all of them at once, or waits and holds nothing.
So within one storage owners cannot wait for each other in a circle.  Over
several storages they cannot either, because all transactions vote in the same
order of storages.

Waiting owners stand in one queue, in the order in which they asked.  If an
owner cannot have all of its objects yet, a later owner that can may pass it,
at most `MOST_PASSED` times.  (Otherwise one slow transaction would delay all
owners that want an object of a waiting owner, and so on.)

An owner can also ask to be *alone*: it waits until all that asked before it
are done, and all that ask after it wait for it.

A thread can wait for its turn, and an event loop can be called back.  The
mutex is a leaf: a thread that holds it does not wait, read or write, and calls
nothing but functions that wake a thread or notify an event loop.
"""

import threading
import time
from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Iterable

from ..histogram import Histogram
from .interrupts import WholeOrStopped
from .wakeable import Sleeper

#: A waiting owner lets this many later owners pass.
MOST_PASSED = 8

Owner = Hashable

_Oids = frozenset[bytes]
_NONE: _Oids = frozenset()


class _Wish:
    """What an owner has, or waits for."""

    __slots__ = 'owner', 'written', 'read', 'alone', 'passed', 'wake', 'since'

    def __init__(self, owner: Owner, written: _Oids, read: _Oids,
                 alone: bool) -> None:
        self.owner = owner
        self.written = written
        self.read = read
        self.alone = alone
        #: How many later owners have passed it.
        self.passed = 0
        #: Wakes or notifies its waiter, if there is one; it may be called
        #: twice.  And since when that waits.
        self.wake: Callable[[], object] | None = None
        self.since = 0.0

    @property
    def oids(self) -> _Oids:
        return self.written | self.read if self.read else self.written

    def excludes(self, other: '_Wish') -> bool:
        """Does one of the two need an object exclusively that the other one
        needs, too?"""
        return not (self.written.isdisjoint(other.written)
                    and self.written.isdisjoint(other.read)
                    and self.read.isdisjoint(other.written))


class Turns:

    def __init__(self, stop: Callable[[BaseException], object]) -> None:
        """`stop` stops writing, after an interrupt."""
        self._mutex = threading.Lock()
        self._stop_writing = stop
        self._whole_or_stopped = WholeOrStopped(self._stop)
        self._granted: dict[Owner, _Wish] = {}
        #: In the order in which they asked.
        self._waiting: dict[Owner, _Wish] = {}
        #: What the granted ones write, and how many of them read each object;
        #: and the one that is alone.
        self._written: set[bytes] = set()
        self._read: dict[bytes, int] = {}
        self._alone: _Wish | None = None
        #: How long the owners waited that were served in the end.
        self.waits = Histogram()
        self._ended = False

    @property
    def waiting(self) -> int:
        """How many threads and loops wait for their objects."""
        with self._mutex:
            return sum(wish.wake is not None
                       for wish in self._waiting.values())

    # Asking and waiting

    def ask(self, owner: Owner, written: Iterable[bytes],
            read: Iterable[bytes] = (), alone: bool = False) -> bool:
        """Does the owner have all of these objects now, or is it `alone`?
        Else it waits.

        If it asks again, its first call counts."""
        written = frozenset(written)
        wish = _Wish(
            owner, written, frozenset(read) - written if read else _NONE,
            alone)
        with self._mutex, self._whole_or_stopped:
            if not (self._ended or owner in self._granted
                    or owner in self._waiting):
                if not self._waiting and (
                        not self._granted or self._is_free(wish)):  # mostly
                    self._grant(wish)
                else:
                    self._waiting[owner] = wish
                    self._serve(wish.oids)
            return owner in self._granted

    def ask_alone(self, owner: Owner) -> bool:
        return self.ask(owner, (), alone=True)

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
            wish = self._waiting.get(owner)
            if self._ended or wish is None:
                return False
            wish.wake, wish.since = function, time.monotonic()
            return True

    # Letting go

    def let_go(self, owner: Owner) -> None:
        """Free all that the owner holds, and end its wait."""
        with self._mutex, self._whole_or_stopped:
            if self._ended:
                return  # nobody is served any more
            wish = self._granted.pop(owner, None)
            if wish is not None:
                self._written -= wish.written
                if wish.read:
                    self._read_no_more(wish.read)
                if wish.alone:
                    self._alone = None
            else:
                wish = self._waiting.pop(owner, None)
                if wish is None:
                    return
                if wish.wake is not None:
                    wish.wake()  # another thread may wait for its turn
            if self._waiting:  # rarely
                self._serve(None if wish.alone else wish.oids)

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
        for wish in *self._waiting.values(), *self._granted.values():
            if wish.wake is not None:
                wish.wake()

    # Serving.  (The mutex is held.)

    def _serve(self, freed: _Oids | None) -> None:
        """Grant what can be granted now that these objects were freed, or are
        wanted by others no more; None: it may be any."""
        earlier: list[_Wish] = []
        for wish in list(self._waiting.values()):
            if wish.alone:
                if not earlier and self._is_free(wish):
                    self._grant(wish)
                return  # all that asked after it wait for it
            # (No union: that would take long for each of many that wait.)
            is_concerned = (
                freed is None or not (wish.written or wish.read)
                or not freed.isdisjoint(wish.written)
                or not freed.isdisjoint(wish.read))
            if (is_concerned and self._is_free(wish)
                    and self._may_pass(wish, earlier)):
                self._grant(wish)
                if freed is not None:
                    freed -= wish.written
                    if not freed:
                        return  # so a crowd at one object costs little
            else:
                earlier.append(wish)

    def _is_free(self, wish: _Wish) -> bool:
        """Can it be had beside all that was granted?"""
        if wish.alone:
            return not self._granted
        return (self._alone is None
                and self._written.isdisjoint(wish.written)
                and (not wish.read or self._written.isdisjoint(wish.read))
                and (not self._read
                     or self._read.keys().isdisjoint(wish.written)))

    @staticmethod
    def _may_pass(wish: _Wish, earlier: list[_Wish]) -> bool:
        passed = [each for each in earlier if each.excludes(wish)]
        if any(each.passed >= MOST_PASSED for each in passed):
            return False
        for each in passed:
            each.passed += 1
        return True

    def _grant(self, wish: _Wish) -> None:
        self._granted[wish.owner] = wish
        self._written |= wish.written
        for oid in wish.read:
            self._read[oid] = self._read.get(oid, 0) + 1
        if wish.alone:
            self._alone = wish
        self._waiting.pop(wish.owner, None)
        if wish.wake is not None:
            wish.wake()
            # Only now: after an interrupt before, `_end` calls it again.
            wish.wake = None
            self.waits.add(time.monotonic() - wish.since)

    def _read_no_more(self, oids: _Oids) -> None:
        for oid in oids:
            self._read[oid] -= 1
            if not self._read[oid]:
                del self._read[oid]
