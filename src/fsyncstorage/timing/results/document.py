"""The result of a run: one dict, which is the JSON file.

It has all samples.  Tables and pages are made from it alone.
"""

import datetime
import json
import pathlib
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

from . import estimates

Document = dict[str, Any]

FORMAT = 'fsync-time 1'

#: Settings that say how long a sample lasts, not what is done in it.
AMOUNTS = ('transactions', 'seconds')


def new(command: str, races: Sequence[Any], contestants: Iterable[Any],
        rounds: int, baseline: str, machine: dict[str, Any],
        added: str = '') -> Document:
    return {
        'format': FORMAT,
        'command': command,
        'began': datetime.datetime.now(datetime.timezone.utc).isoformat(
            timespec='seconds'),
        'complete': False,
        'machine': machine,
        'added': added,
        'contestants': {one.name: one.summary for one in contestants},
        'rounds': rounds,
        'baseline': baseline,
        'races': [
            {'workload': race.workload, 'settings': race.settings,
             'compared': list(race.compared)} for race in races],
        # Those of round 0 are a warm-up, and in no result.
        'samples': [],
    }


def result(document: Document, race: int, contestant: str,
           figure: str) -> dict[str, Any] | None:
    """What the samples give; None when there are none."""
    found = values(document, race, contestant, figure)
    if not found:
        return None
    return {
        **estimates.spread(found.values()),
        'ratio': ratio(document, race, contestant, figure),
    }


def ratio(document: Document, race: int, contestant: str,
          figure: str) -> dict[str, Any] | None:
    """How many times the baseline; None when one of them was not measured."""
    return estimates.ratio(
        values(document, race, contestant, figure),
        values(document, race, document['baseline'], figure))


def values(document: Document, race: int, contestant: str,
           figure: str) -> dict[int, float]:
    """The figure in each round but the warm-up; {} when it is not known."""
    return {
        sample['round']: sample['figures'][figure]
        for sample in document['samples']
        if sample['race'] == race and sample['contestant'] == contestant
        and sample['round'] > 0
        and sample['figures'].get(figure) is not None}


def grouped(document: Document, workload: str, inside: Collection[str | None]
            ) -> list[tuple[dict[str, Any], list[int]]]:
    """Groups of races that differ in the settings `inside` alone.

    Returns pairs: the settings that a group shares, and the numbers of races.
    """
    found: dict[Any, tuple[dict[str, Any], list[int]]] = {}
    for number, race in enumerate(document['races']):
        if race['workload'] == workload:
            shared = {name: value for name, value in race['settings'].items()
                      if name not in inside}
            _, numbers = found.setdefault(
                frozenset(shared.items()), (shared, []))
            numbers.append(number)
    return list(found.values())


def write(path: str, text: str) -> None:
    """Write a file whole or not at all."""
    unfinished = pathlib.Path(f'{path}.unfinished')
    try:
        unfinished.write_text(text, encoding='utf-8')
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def save(document: Document, path: str) -> None:
    """JSON with a line for each sample: short, and easy to compare."""
    parts = []
    for key, value in document.items():
        text = json.dumps(value)
        if isinstance(value, list):
            text = '[\n' + ',\n'.join(map(json.dumps, value)) + '\n]'
        parts.append(f'{json.dumps(key)}: {text}')
    write(path, '{\n' + ',\n'.join(parts) + '\n}\n')


def load(path: str) -> Document:
    return json.loads(pathlib.Path(path).read_text(encoding='utf-8'))
