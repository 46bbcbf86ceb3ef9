"""Tables of figures that are durations: for campaigns of few races."""

import functools

from fsyncstorage.timing import document as documents
from fsyncstorage.timing import tables

UNITS = {'ms': 1e-3, 'us': 1e-6}


def show_in(unit):
    """What shows all figures of all races, in ms or in us."""
    return functools.partial(_show, unit)


def _show(unit, document, console):
    tables.show_machine(document, console)
    for number, race in enumerate(document['races']):
        settings = ', '.join(
            f'{name} {value}' for name, value in race['settings'].items())
        tables.show_table(console, f'{race["workload"]}: {settings}',
                          _table(unit, document, number, race))


def _table(unit, document, number, race):
    table = tables.new_table()
    for figure in race['compared']:
        table.add_column(f'{figure}, {unit}', justify='right')
    for contestant in document['contestants']:
        table.add_row(contestant, *(
            _cell(documents.result(document, number, contestant, figure), unit)
            for figure in race['compared']))
    return table


def _cell(found, unit):
    if found is None:
        return ''
    median, least, most = (
        f'{found[name] / UNITS[unit]:.4g}'
        for name in ('median', 'min', 'max'))
    return f'{median}\n{least}-{most}'
