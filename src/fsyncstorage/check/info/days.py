"""Figures by day.

The tids come from the file, so the number of days is bounded: the last ones
are kept, and earlier ones count under `OTHERS`, so that totals stay right.
"""

from ...format.classes import OTHERS

# When there are twice as many, the earlier half is left out.
MOST_DAYS = 20_000


class Days:
    """For each day, a number: [transactions, records, bytes]."""

    def __init__(self):
        self.rows = {}
        self._first = 0

    def add(self, day, records, size):
        if day < self._first:
            day = OTHERS
        elif day not in self.rows and len(self.rows) >= 2 * MOST_DAYS:
            self._leave_out_the_earlier_half()
        _add(self.rows.setdefault(day, [0, 0, 0]), [1, records, size])

    def _leave_out_the_earlier_half(self):
        others = self.rows.pop(OTHERS, [0, 0, 0])
        days = sorted(self.rows)
        for day in days[:-MOST_DAYS]:
            _add(others, self.rows.pop(day))
        self._first = days[-MOST_DAYS]
        self.rows[OTHERS] = others


def _add(row, more):
    for each, number in enumerate(more):
        row[each] += number
