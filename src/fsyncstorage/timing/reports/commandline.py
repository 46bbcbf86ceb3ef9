"""The command `fsync-time report`: the results of a directory, as one page.

It measures nothing: it reads the JSON files, computes their results again, and
shows their tables and pictures.  Pictures need matplotlib.
"""

import functools
import importlib.util
import io
import os
import pathlib
import sys

from ..disk import disktables
from ..options import arguments
from ..results import document as documents
from ..results import tables
from ..results.questions import QUESTIONS
from . import page
from . import pictures

DESCRIPTION = """\
Gather the results of a directory, the files that --json wrote, into one page
of HTML, report.html, with their tables and pictures. The page needs no network
and no other file.
"""


def add_to(commands):
    parser = commands.add_parser(
        'report', help='one page of HTML from the results in a directory',
        description=DESCRIPTION)
    parser.add_argument(
        'directory', metavar='DIR', type=arguments.directory,
        help='where the JSON files are')
    parser.set_defaults(
        run=lambda options: write(options.directory, show, QUESTIONS))


def write(directory, show, questions):
    """Write the page, `report.html` in the directory; return the exit code.

    `show` is called with the name of a document, the document and a console,
    and prints its tables; the questions are those that pictures answer.
    """
    found = list(_documents(directory))
    if not found:
        _complain(f'there are no results in {directory}')
        return 1
    if not drawing():
        _complain('there are no pictures, because matplotlib is not'
                  ' installed: pip install "fsyncstorage[plots]"')
    output = os.path.join(directory, 'report.html')
    try:
        documents.write(output, html(found, show, questions))
    except OSError as error:
        _complain(error)
        return 1
    print(output)
    return 0


def html(found, show, questions):
    """The page of documents: `found` are pairs of a name and a document."""
    return page.page([
        ((name, f'{name}: {_subject(document)}'), page.section(
            name, f'{_subject(document)}. Took part: ' + '; '.join(
                f'{contestant}: {summary}' for contestant, summary
                in document['contestants'].items()) + '.',
            _pictures(document, questions),
            functools.partial(show, name, document)))
        for name, document in found])


def _documents(directory):
    """Yields pairs of a name and a document, for each file of results."""
    for path in sorted(pathlib.Path(directory).glob('*.json')):
        try:
            document = documents.load(path)
            if not isinstance(document, dict) or (
                    document.get('format') != documents.FORMAT):
                raise ValueError(
                    'it is no result of this version of fsync-time')
        except (OSError, ValueError) as error:
            _complain(f'{path.name} is left out: {error}')
        else:
            yield path.stem, document


def _complain(message):
    print(f'fsync-time report: {message}', file=sys.stderr)


def _subject(document):
    ended = '' if document['complete'] else ', interrupted'
    return f'{document["command"]}, {document["began"][:10]}{ended}'


def _pictures(document, questions):
    """Yields pairs: a picture as SVG, and its description."""
    if draws := drawing():
        for picture in pictures.of(document, questions):
            file = io.BytesIO()
            draws.save(picture, 'svg', file)
            yield (file.getvalue(),
                   f'{picture.question.words} {picture.conditions}')


def show(name, document, console):
    by = disktables if document['command'] == 'disk' else tables
    by.show(document, console)


def drawing():
    """The module that draws pictures; None without matplotlib, an extra."""
    if importlib.util.find_spec('matplotlib') is None:
        return None
    from . import drawing
    return drawing
