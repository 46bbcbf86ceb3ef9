"""What clients did between two answers, the busiest first.

A rate is the difference of two counts, divided by the difference of the ages
of the client.  So it does not matter how long the answers were under way.  For
a client that was not in the answer before, the rates are not known yet.

Clients that hold objects for long come first, even if they do little else;
then clients that wait for objects, as the first ones may be the reason.
"""

from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

from .asking import Answer

# Seconds: no commit should hold its objects for longer.
LONG = 1.0

#: The counts of a client: each has a rate.
COUNTED = ('messages', 'received', 'sent', 'loads', 'commits', 'conflicts')

Client = dict[str, Any]


class Row(NamedTuple):

    storage: str
    client: Client
    #: By the names of the counts, per second.  None: they are not known yet.
    rates: dict[str, float] | None

    @property
    def transaction(self) -> dict[str, Any] | None:
        """The one that has held its objects for longest; if none holds any,
        one that waits."""
        return next(iter(self.client['transactions']), None)

    @property
    def held(self) -> float:
        """Seconds for which this transaction has held its objects."""
        first = self.transaction
        return first['seconds'] if first and first['holds'] else 0.0

    @property
    def waited(self) -> float:
        return max((each['seconds'] for each in self.client['transactions']
                    if not each['holds']), default=0.0)


def rows(now: Answer, before: Answer) -> list[Row]:
    known = {(name, client['number']): client for name, client in _all(before)}
    found = [Row(name, client, _rates(client, known.get(
        (name, client['number'])))) for name, client in _all(now)]
    return sorted(found, key=_order, reverse=True)


def _all(answer: Answer) -> Iterator[tuple[str, Client]]:
    for name, storage in answer.items():
        for client in storage['clients']:
            yield name, client


def _rates(now: Client, before: Client | None) -> dict[str, float] | None:
    if before is None or before['address'] != now['address']:
        # (After a restart, the server may give the same number to another.)
        return None
    seconds = now['seconds'] - before['seconds']
    if seconds <= 0:
        return None
    return {name: max(0, now[name] - before[name]) / seconds
            for name in COUNTED}


def _order(row: Row) -> tuple[float, ...]:
    return (row.held if row.held >= LONG else 0.0,
            row.waited if row.waited >= LONG else 0.0,
            row.rates['messages'] if row.rates is not None else 0.0,
            row.client['messages'])


def total(found: list[Row], name: str) -> float:
    """The sum of all rates that are known."""
    return sum(row.rates[name] for row in found if row.rates is not None)
