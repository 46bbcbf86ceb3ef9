"""The command `fsync-time report`: the results of a directory, as one page.

It measures nothing: it reads the JSON files, makes their results anew, and
shows their tables and pictures.  Pictures need matplotlib.
"""

import argparse
import importlib.util
import io
import os
import pathlib
import sys

from .. import arguments
from .. import document as documents
from .. import tables
from ..blobs import tables as blobtables
from ..disk import tables as disktables
from ..zeo import command as zeo
from ..zeo import tables as zeotables
from . import page
from . import pictures

DESCRIPTION = """\
Gather the results of a directory, the files that --json wrote, into one page
of HTML with their tables and pictures. The page needs no network and no other
file.
"""

TITLE = 'What was measured'

INTRODUCTION = (
    'Results of fsync-time. What counts are the ratios, and how they change'
    ' with the cost of a sync. A ratio with ~ is not carried by what was'
    ' measured: the noise alone may have made it.')

#: By the command that measured.
_SHOWS = {
    'blobs': blobtables.show,
    'commits': tables.show_commits,
    'disk': disktables.show,
    'zeo': zeotables.show,
}
#: By workload, when that was a script.
_SHOWS_OF_SCRIPTS = {
    'blob-read': blobtables.show,
    'blob-write': blobtables.show,
    **dict.fromkeys(zeo.WORKLOADS, zeotables.show),
}


def add_to(commands):
    parser = commands.add_parser(
        'report',
        help='one page of HTML from the results in a directory',
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        'directory', metavar='DIR', type=arguments.directory,
        help='where the JSON files are')
    parser.add_argument(
        '--output', metavar='FILE', type=arguments.new_file,
        help='write the page to this file (default: report.html in DIR)')
    parser.set_defaults(run=run)


def run(options):
    output = options.output or os.path.join(options.directory, 'report.html')
    return write(options.directory, output, _show, pictures.QUESTIONS)


def write(directory, output, show, questions):
    """Returns the exit code.

    `show` is called with the name of a document, it, and a console, and prints
    its tables; the questions are those that pictures answer.
    """
    found = dict(_documents(directory))
    if not found:
        print(f'fsync-time report: there are no results in {directory}',
              file=sys.stderr)
        return 1
    if not _can_draw():
        print('fsync-time report: without pictures, for matplotlib is not'
              ' installed: pip install "fsyncstorage[plots]"', file=sys.stderr)
    try:
        documents.write(output, html(found, show, questions))
    except OSError as error:
        print(f'fsync-time report: {error}', file=sys.stderr)
        return 1
    print(output)
    return 0


def html(found, show, questions):
    """The page of these documents, by name."""
    sheet = page.Sheet()
    for name, document in found.items():
        documents.summarise(document)
        sheet.heading(name, name)
        _show_all(name, document, sheet, show, questions)
    return page.page(TITLE, '\n'.join([
        page.contents(TITLE, INTRODUCTION, {
            name: f'{name}: {_subject(document)}'
            for name, document in found.items()}),
        sheet.html()]))


def _documents(directory):
    """By name, those of the files that are results."""
    for path in sorted(pathlib.Path(directory).glob('*.json')):
        try:
            document = documents.load(path)
        except (OSError, ValueError) as error:
            print(f'fsync-time report: {path.name} is left out: {error}',
                  file=sys.stderr)
            continue
        if isinstance(document, dict) and (
                document.get('format') == documents.FORMAT):
            yield path.stem, document
        else:
            print(f'fsync-time report: {path.name} is left out: it is no'
                  f' result of fsync-time, or of another version',
                  file=sys.stderr)


def _subject(document):
    ended = '' if document['complete'] else ', interrupted'
    return f'{document["command"]}, {document["began"][:10]}{ended}'


def _show_all(name, document, sheet, show, questions):
    sheet.print(f'{_subject(document)}. Took part: ' + '; '.join(
        f'{name}: {summary}'
        for name, summary in document['contestants'].items()) + '.')
    if _can_draw():
        # An extra, and large.
        from . import drawing
        for picture in pictures.of(document, questions):
            file = io.BytesIO()
            drawing.save(picture, {'svg': file})
            sheet.picture(
                file.getvalue(), f'{picture.question} {picture.conditions}')
    show(name, document, sheet)


def _show(name, document, console):
    show = _SHOWS.get(document['command']) or _SHOWS_OF_SCRIPTS.get(
        document['races'][0]['workload'], tables.show_figures)
    show(document, console)


def _can_draw():
    return importlib.util.find_spec('matplotlib') is not None
