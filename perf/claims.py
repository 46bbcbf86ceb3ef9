"""What the project claims, against what was measured.

A claim is about a figure of one contestant in one race, or about the ratio of
this figure to that of another contestant: the ratio of the medians, with an
interval for the true ratio, as far as the rounds show it.
"""

import dataclasses

from rich import box
from rich.table import Table

from fsyncstorage.timing.results import document as documents
from fsyncstorage.timing.results import estimates
from fsyncstorage.timing.results import wording


@dataclasses.dataclass
class Claim:

    words: str
    workload: str
    settings: dict          # of the race
    contestant: str
    figure: str = 'txn_per_second'
    against: str | None = None
    #: The settings of the other's race, and its figure; None: the same.
    against_settings: dict | None = None
    against_figure: str | None = None
    #: The other is compared as if its figure were larger by this.
    plus: float = 0.0
    at_least: float | None = None
    under: float | None = None

    def found(self, document):
        """The ratio, or the figure, with its range; {} if not measured."""
        own = self._values(
            document, self.settings, self.contestant, self.figure)
        if self.against is None:
            return estimates.spread(own.values()) if own else {}
        other = self._values(
            document, self.against_settings or self.settings, self.against,
            self.against_figure or self.figure)
        ratio = estimates.ratio(own, {
            number: value + self.plus for number, value in other.items()})
        return {'median': ratio['of_medians'], **ratio} if ratio else {}

    def measured(self, document):
        return self.found(document).get('median')

    def _values(self, document, settings, contestant, figure):
        for number, race in enumerate(document['races']):
            if race['workload'] == self.workload and (
                    settings.items() <= race['settings'].items()):
                return documents.values(document, number, contestant, figure)
        return {}

    def holds(self, document):
        measured = self.measured(document)
        return measured is not None and (
            measured >= self.at_least if self.under is None
            else measured < self.under)

    def put(self, value):
        if self.against is None:
            value *= 1e3  # and not finer than a microsecond
            return (f'{value:.3f} ms' if value < 1
                    else f'{wording.number(value)} ms')
        return wording.times(value)

    def claimed(self):
        if self.under is not None:
            return f'under {self.put(self.under)}'
        return f'at least {self.put(self.at_least)}'


def show(claims, document, console):
    """Return whether all of them hold."""
    table = Table(box=box.HORIZONTALS, pad_edge=False)
    table.add_column('claim')
    for heading in ('claimed', 'measured', 'interval', 'in rounds'):
        table.add_column(heading, justify='right')
    table.add_column('holds')
    for claim in claims:
        found = claim.found(document)
        table.add_row(
            claim.words, claim.claimed(),
            claim.put(found['median']) if found else '-',
            _range(claim, found.get('interval')),
            _range(claim, [found.get('min'), found.get('max')]),
            'yes' if claim.holds(document) else 'NO')
    if claims:
        console.print(table)
    return all(claim.holds(document) for claim in claims)


def _range(claim, ends):
    if ends is None or None in ends:
        return ''
    return '-'.join(map(claim.put, ends))
