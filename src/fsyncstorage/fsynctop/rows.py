"""What clients did between two answers, the busiest first.

A rate is what was counted, divided by the time by which the client has become
older: so it does not matter how long the answers were under way.  Of a client
that was not there before, the rates are not known yet.

Those that hold objects for long come first, however little else they do, and
then those that wait for them: all others may be waiting because of the first.
"""

from collections.abc import Iterator
from typing import NamedTuple

from .asking import Client
from .asking import Storage
from .asking import Transaction

# Seconds: no commit should hold its objects for longer.
LONG = 1.0

#: What is counted, and so has a rate.
COUNTED = ('messages', 'received', 'sent', 'loads', 'commits', 'conflicts')


class Rates(NamedTuple):
    """Each a second."""

    messages: float
    received: float
    sent: float
    loads: float
    commits: float
    conflicts: float


class Row(NamedTuple):

    storage: str
    client: Client
    #: None: it is not known yet.
    rates: Rates | None

    @property
    def transaction(self) -> Transaction | None:
        """The one that holds its objects for longest, or else waits."""
        return next(iter(self.client.transactions), None)

    @property
    def held(self) -> float:
        """Seconds for which it has held objects."""
        first = self.transaction
        return first.seconds if first is not None and first.holds else 0.0

    @property
    def waited(self) -> float:
        return max((each.seconds for each in self.client.transactions
                    if not each.holds), default=0.0)


Answer = dict[str, Storage]


def rows(now: Answer, before: Answer) -> list[Row]:
    known = {(name, client.number): client for name, client in _all(before)}
    found = [Row(name, client, _rates(client, known.get(
        (name, client.number)))) for name, client in _all(now)]
    return sorted(found, key=_order, reverse=True)


def _all(answer: Answer) -> Iterator[tuple[str, Client]]:
    for name, storage in answer.items():
        for client in storage.clients:
            yield name, client


def _rates(now: Client, before: Client | None) -> Rates | None:
    if before is None or before.address != now.address:
        return None  # (Another run of the server may give the same number.)
    seconds = now.seconds - before.seconds
    if seconds <= 0:
        return None
    return Rates(*(
        max(0, getattr(now, name) - getattr(before, name)) / seconds
        for name in COUNTED))


def _order(row: Row) -> tuple[float, ...]:
    return (row.held if row.held >= LONG else 0.0,
            row.waited if row.waited >= LONG else 0.0,
            row.rates.messages if row.rates is not None else 0.0,
            row.client.messages)


def total(found: list[Row], name: str) -> float:
    """Of all rates that are known."""
    return sum(getattr(row.rates, name) for row in found
               if row.rates is not None)
