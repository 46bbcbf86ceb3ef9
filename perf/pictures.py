"""Draws the recorded results, and makes a page of them; measures nothing.

The pictures go to `pictures/` below the results, into a directory named after
the JSON file that they were made from; the page, which has all of the results,
is `report.html`.  Needs matplotlib.
"""

import argparse
import pathlib
import sys

import running
from fsyncstorage.timing import document as documents
from fsyncstorage.timing import main
from fsyncstorage.timing.reports import drawing

#: Campaigns with something to compare over threads, clients or sizes.
DRAWN = (
    'blobs_2004', 'claims', 'files', 'fsync_2004', 'zeo_2009', 'zeo_server')


def draw(results):
    for name in DRAWN:
        path = results / f'{name}.json'
        if not path.exists():
            continue
        document = documents.load(path)
        documents.summarise(document)
        drawing.save_all(
            document, results / 'pictures' / path.stem, ['png'])


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        'results', nargs='?', default=running.RESULTS, type=pathlib.Path,
        metavar='DIR', help='where the JSON files are (default: perf/results)')
    options = parser.parse_args()
    draw(options.results)
    sys.exit(main.main(['report', str(options.results)]))
