"""The results in the JSON format of pyperf, so that it can compare two runs.

pyperf compares times, and takes the shorter one for the better: what is
counted by the second becomes the seconds that one takes.  Each sample is a run
of its own; warm-ups stay warm-ups.
"""

import json

from . import document as documents

_VERSION = '1.0'


def save(document, path):
    documents.write(
        path, json.dumps(converted(document), indent=1) + '\n')


def converted(document):
    machine = document['machine']
    return {
        'version': _VERSION,
        'metadata': {
            'unit': 'second',
            'loops': 1,
            'cpu_count': machine['cpus'],
            'cpu_model_name': machine['cpu_model'],
            'platform': f'{machine["system"]} {machine["architecture"]}',
            'file_system': machine['file_system'],
            'added': document['added'],
        },
        'benchmarks': list(_benchmarks(document)),
    }


def _benchmarks(document):
    for number, race in enumerate(document['races']):
        for contestant in document['contestants']:
            samples = [
                sample for sample in document['samples']
                if sample['race'] == number
                and sample['contestant'] == contestant]
            for figure in race['compared']:
                runs = [_run(document, sample, value) for sample in samples
                        if (value := _seconds(sample, figure))]
                # The warm-up alone is no result.
                if any('values' in run for run in runs):
                    yield {
                        'metadata': {
                            'name': _name(race, contestant, figure)},
                        'runs': runs}


def _run(document, sample, seconds):
    measured = (
        {'values': [seconds]} if sample['round']
        else {'warmups': [[1, seconds]]})
    return {'metadata': {'date': document['began']}, **measured}


def _seconds(sample, figure):
    """None for what is not about time."""
    value = sample['figures'].get(figure)
    if value and figure.endswith('_per_second'):
        return 1 / value
    return value if figure.endswith('seconds') else None


def _name(race, contestant, figure):
    """As unique as a result, and the same in every run of its kind."""
    settings = ' '.join(
        f'{name}={value}' for name, value in race['settings'].items()
        if name not in documents.AMOUNTS)
    what = figure.removesuffix('_per_second')
    return f'{contestant}: {race["workload"]} {what} ({settings})'
