"""The command line of `fsync-info`.

Exit codes: 0 all was read; 1 not all could be read, because the file is
damaged, or a part of the blob directory could not be read; 2 it cannot be
done; 130 interrupted; 141 nobody reads the output.  Errors are one line.
"""

import argparse
import contextlib
import json
from datetime import datetime
from datetime import timezone

from ZODB.utils import z64

from ...format.window import Window
from ..blobfiles import BlobFiles
from ..tails import NoDataFile
from ..terminal import CannotRun
from ..terminal import CommandParser
from ..terminal import exit_code
from ..terminal import needing_rich
from ..terminal import opened
from ..terminal import opened_blobs
from ..terminal import output
from ..terminal import printable
from ..terminal import progress_bar
from ..terminal import refuse_if_replaced
from ..terminal import was_replaced
from . import document
from . import moments
from .survey import Changed
from .survey import Survey

DESCRIPTION = """\
What takes the space in a Data.fs, now and in its history.  The file may be
open elsewhere, and be written meanwhile; nothing is locked and nothing is
changed.
"""

EPILOG = """\
exit status: 0 all was read; 1 the file is damaged, and what comes before the
damage is shown, or some of the blob directory could not be read; 2 it could
not be done.
"""

STAGES = {
    'transactions': 'reading transactions',
    'blobs': 'looking through the blob files',
}
MOST_ROWS = 1000


def main(argv=None):
    arguments = parser()
    return exit_code(run, arguments.parse_args(argv), arguments.prog)


def parser():
    made = CommandParser(
        prog='fsync-info', description=DESCRIPTION, epilog=EPILOG)
    made.add_argument('path', metavar='DATA.FS', help='the file to look into')
    made.add_argument(
        '--blobs', metavar='DIR',
        help='count the blob files in this blob directory, too')
    made.add_argument(
        '--since', metavar='TIME', type=time_since,
        help='only what was written since then: '
             + moments.EXAMPLES.replace('%', '%%') + '; times are UTC')
    made.add_argument(
        '--top', metavar='N', type=number_of_rows, default=10,
        help='the number of rows of a table (10)')
    made.add_argument(
        '--json', action='store_true',
        help='write the report as JSON to standard output')
    return made


def time_since(text):
    try:
        return moments.parse(text, datetime.now(timezone.utc))
    except ValueError as wrong:
        raise argparse.ArgumentTypeError(printable(str(wrong))) from None


def number_of_rows(text):
    # 20 digits leave room for leading zeros, and are quickly converted.
    if not (text.isdecimal() and len(text) <= 20
            and 1 <= int(text) <= MOST_ROWS):
        raise argparse.ArgumentTypeError(
            f'a number from 1 to {MOST_ROWS:,} is needed')
    return int(text)


def run(options):
    if not options.json:
        with needing_rich('fsync-info'):
            from . import tables
    helper = None if options.blobs is None else opened_blobs(options.blobs)
    with contextlib.closing(opened(options.path)) as file:
        try:
            made = look_into(options, file, helper)
        except (OSError, Changed) as error:
            refuse_if_replaced(options.path, file)
            if isinstance(error, Changed):
                raise CannotRun(
                    f'{options.path} was changed while it was read, and not'
                    ' by a commit') from None
            raise
        if helper:
            refuse_if_replaced(options.path, file)
        found = {
            'file': options.path,
            'since': options.since and f'{options.since:%Y-%m-%d %H:%M:%S}',
            'replaced': was_replaced(options.path, file), **made}
    with output():
        if options.json:
            print(json.dumps(found, indent=1))
        else:
            tables.show(found)
    blobs = found['blobs']
    return 1 if found['damage'] or blobs and blobs['unread']['count'] else 0


def look_into(options, file, helper):
    """The report, without the name of the file."""
    window = Window.of_file(file.fileno())
    since = moments.tid_of(options.since) if options.since else z64
    with progress_bar(window.end, STAGES) as tell:
        survey = Survey(window, since, helper is not None, tell)
        try:
            survey.read_transactions()
        except NoDataFile as error:
            raise CannotRun(f'{options.path}: {error}') from None
        blob_files = helper and BlobFiles(helper, survey)
        if blob_files:
            blob_files.read()
    return document.made(survey, options.top, blob_files)
