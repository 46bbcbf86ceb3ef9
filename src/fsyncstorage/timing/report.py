"""The command `fsync-time report`: the results of a directory, as one page.

It measures nothing: it reads the JSON files, computes their results again, and
shows their tables.

The page is HTML that needs no other file, no network and no script.  Tables
look as in a terminal.  All texts from documents are escaped.  The page is
well-formed XML, too.
"""

import io
import os
import pathlib
from html import escape

from rich.console import Console

from . import arguments
from . import disk
from .results import document as documents
from .results import tables
from .running.sampling import complain

DESCRIPTION = """\
Gather the results of a directory, the files that --json wrote, into one page
of HTML, report.html, with their tables. The page needs no network and no other
file.
"""

#: Characters in a line: there is room for wide tables.
WIDTH = 170

_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>What was measured</title>
<style>
body {{ margin: 1rem auto; max-width: 62rem; font-family: sans-serif; }}
pre {{ overflow-x: auto; }}
</style>
</head>
<body>
<h1>What was measured</h1>
<p>Results of fsync-time. What counts are the ratios, and how they change with
the cost of a sync. A ratio with ~ may be the effect of noise alone.</p>
{sections}
</body>
</html>
"""

_SECTION = '<h2 id="{0}">{0}</h2>\n<p>{1}</p>\n{2}'
#: A table that is wider than the page scrolls sideways.
_PRINTED = '<pre tabindex="0">{code}</pre>'


def add_to(commands):
    parser = commands.add_parser(
        'report', help='one page of HTML from the results in a directory',
        description=DESCRIPTION)
    parser.add_argument(
        'directory', metavar='DIR', type=arguments.directory,
        help='where the JSON files are')
    parser.set_defaults(
        run=lambda options: write(options.directory, show))


def show(name, document, console):
    by = disk if document['command'] == 'disk' else tables
    by.show(document, console)


def write(directory, show):
    """Write the page, `report.html` in the directory; return the exit code.

    `show` is called with the name of a document, the document and a console,
    and prints its tables.
    """
    sections = [_section(name, document, show)
                for name, document in _documents(directory)]
    if not sections:
        complain('report', f'there are no results in {directory}')
        return 1
    output = os.path.join(directory, 'report.html')
    try:
        documents.write(output, _PAGE.format(sections='\n'.join(sections)))
    except OSError as error:
        complain('report', error)
        return 1
    print(output)
    return 0


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
            complain('report', f'{path.name} is left out: {error}')
        else:
            yield path.stem, document


def _section(name, document, show):
    """What `show` prints to a console."""
    console = Console(
        file=io.StringIO(), width=WIDTH, record=True, markup=False,
        highlight=False, color_system='truecolor', force_terminal=True)
    show(name, document, console)
    about = '; '.join(f'{contestant}: {summary}' for contestant, summary
                      in document['contestants'].items())
    return _SECTION.format(
        escape(name),
        escape(f'{document["command"]}, {document["began"][:10]}'
               f'{"" if document["complete"] else ", interrupted"}. {about}.'),
        console.export_html(code_format=_PRINTED, inline_styles=True))
