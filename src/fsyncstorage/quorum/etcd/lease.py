"""The lease: which node holds it, and since when nobody has renewed it.

The lease is one value under one key, and every change of it is a swap on that
value.  The holder renews it with a new value that has a higher count.  Another
node takes it when it has seen the same value for as long as the value says, by
its own clock.  The holder counts from before it asked to put that value, so
for the holder the time expires first.

The leases of etcd are not used for this.  An etcd leader that was cut off, or
stuck in a sync, went on to answer that it had renewed a lease, while the other
members had a new leader and let the lease expire (etcd issue 15247, fixed in
3.5.13).  They are counted in whole seconds, at least two.  A new leader gives
each lease its full time again, so a takeover would wait longer.  And they
would be three more calls to rely on, while a swap needs only what the log
needs anyway.

Each member compares by itself, with the data that it has.  A member that has
lost its last writes takes a swap that all others refuse, and says that it has
succeeded; or it refuses a swap that all others have taken.  So after each swap
other members are asked what is there now, and what most of them show counts
(`agreed`).  This costs one small question a renewal.

`Lease` knows what its owner has seen; it asks nothing itself.
"""

import os
import struct
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import replace

from ..history.record import Damaged
from ..log.interface import HOLDER
from ..log.interface import Unanswered
from ..log.interface import clock

# Term, count, milliseconds, owner.
_VALUE = struct.Struct('>QQI16s')
_OWNER = 16
_LONGEST = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Value:
    term: int
    #: No two values of one term are equal.
    count: int
    milliseconds: int
    #: New for each Lease, which recognises its own values by it.
    owner: bytes
    #: Empty if it was given back.
    holder: bytes

    def packed(self) -> bytes:
        return _VALUE.pack(
            self.term, self.count, self.milliseconds, self.owner) + self.holder


FREE = Value(0, 0, 0, bytes(_OWNER), b'')


def parse(raw: bytes | None) -> Value:
    """(None: nobody has ever had the lease.)"""
    if raw is None:
        return FREE
    if not _VALUE.size <= len(raw) <= _VALUE.size + HOLDER:
        raise Damaged('a lease of another length')
    term, count, milliseconds, owner = _VALUE.unpack_from(raw)
    return Value(term, count, milliseconds, owner, raw[_VALUE.size:])


T = typing.TypeVar('T')


def agreed(said: T, others: Iterable[T], needed: int) -> T:
    """The value that `needed` members show: one has said `said`, and others
    are asked until that many agree."""
    shown = [said]
    for value in others:
        shown.append(value)
        if shown.count(value) >= needed:
            return value
    raise Unanswered('the members do not show the same lease')


class Seen(typing.NamedTuple):
    value: Value
    since: float


class Lease:

    def __init__(self, clock: typing.Callable[[], float] = clock) -> None:
        self._clock = clock
        self._owner = os.urandom(_OWNER)
        self._count = 0
        #: What was there at the last look.
        self.seen: Seen | None = None

    def see(self, value: Value) -> None:
        """The value was there after it was asked for: it is at least as old.
        """
        if self.seen is None or self.seen.value != value:
            self.seen = Seen(value, self._clock())

    def wanted(self, holder: bytes, seconds: float,
               may_take: typing.Callable[[], bool] = lambda: True
               ) -> Value | None:
        """The value to put in place of the one that was seen, or None."""
        if not 0 < len(holder) <= HOLDER:
            raise ValueError(f'a holder of {len(holder)} bytes')
        milliseconds = round(seconds * 1000)
        if not 0 < milliseconds <= _LONGEST:
            raise ValueError(f'a lease of {seconds} seconds')
        assert self.seen is not None
        value = self.seen.value
        kept = value.owner == self._owner and value.holder == holder
        is_free = value.holder in (b'', holder) or self._over()
        if not kept and not (is_free and may_take()):
            return None
        if kept:
            # If the answer is lost, the holder believes in the time before.
            milliseconds = max(milliseconds, value.milliseconds)
        self._count += 1
        return Value(value.term + (not kept), self._count, milliseconds,
                     self._owner, holder)

    def _over(self) -> bool:
        assert self.seen is not None
        passed = self._clock() - self.seen.since
        return passed >= self.seen.value.milliseconds / 1000

    def given_back(self, holder: bytes) -> Value | None:
        """The same for a holder that gives it back; None if it does not have
        the lease."""
        assert self.seen is not None
        value = self.seen.value
        if value.holder != holder:
            return None
        self._count += 1
        return replace(
            value, count=self._count, owner=self._owner, holder=b'')
