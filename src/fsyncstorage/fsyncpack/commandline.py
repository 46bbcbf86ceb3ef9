"""The command line of `fsync-pack`.

Exit codes: 0 done, 2 it cannot be done, 130 interrupted, 141 nobody reads the
output.  Errors are one line.
"""

import argparse
import contextlib
import importlib
import json
import logging
import sys
import threading
import time
from concurrent import futures

import zc.lockfile
from ZEO.Exceptions import ClientDisconnected
from ZEO.Exceptions import ServerException
from ZODB.FileStorage.format import CorruptedError
from ZODB.POSException import POSError
from ZODB.POSException import POSKeyError
from ZODB.POSException import Unsupported
from ZODB.serialize import referencesf

from ..check import terminal
from ..check.terminal import CannotRun
from ..check.terminal import CommandParser
from ..check.terminal import exit_code
from ..check.terminal import needing_rich
from ..check.terminal import printable
from ..check.terminal import progress_bar
from ..check.terminal import size_in_words
from ..check.terminal import without_blanks
from ..format.classes import BLOB
from . import target

DESCRIPTION = """\
Pack a Data.fs that no process has open, or ask a ZEO server to pack: free what
is not needed at the pack time.
"""

EPILOG = """\
ADDRESS is host:port, or the path of a unix socket.  Progress, --status,
--cancel and --dry-run need fsync-runzeo; any ZEO server can be asked to pack.

exit status: 0 done; 2 it could not be done.
"""

#: The only words for a progress that a server may send.
PHASES = 'check', 'references', 'mark', 'count', 'copy', 'swap'

#: What is said of the ends of a pack that have no figures.
ENDS = {
    'nothing': 'nothing can be freed',
    'cancelled': 'the pack was cancelled, and nothing was changed',
    None: 'packed',  # by a server that is not ours
}

DAY = 24 * 3600
#: Seconds between two looks at the progress.
EVERY = 1.0
# The end of the progress bar.
_WHOLE = 1000


def main(argv=None):
    arguments = parser()
    options = arguments.parse_args(argv)
    options.address = target.address_of(options.path)
    if options.days is not None and (options.status or options.cancel):
        arguments.error('--days is for a pack, or a dry run')
    if options.address is not None and (options.blobs or not options.gc):
        arguments.error('--blobs and --no-gc are for a file; a server has its'
                        ' own configuration')
    if options.address is None and (options.status or options.cancel):
        arguments.error('--status and --cancel ask a server: they need its'
                        ' ADDRESS')
    # Our storage's warnings are shown.  A client's are errors here, anyway.
    shown = logging.StreamHandler(sys.stderr)
    shown.addFilter(lambda record: options.address is None
                    and record.name.startswith('fsyncstorage'))
    logging.getLogger().addHandler(shown)
    try:
        return exit_code(run, options, arguments.prog)
    finally:
        logging.getLogger().removeHandler(shown)


def parser():
    made = CommandParser(
        prog='fsync-pack', description=DESCRIPTION, epilog=EPILOG)
    made.add_argument(
        'path', metavar='ADDRESS|DATA.FS', help='what is packed')
    made.add_argument(
        '--days', metavar='N', type=number_of_days,
        help='keep what was current in the last N days; without it, only'
             ' what is current now stays, which is asked for on a terminal')
    what = made.add_mutually_exclusive_group()
    what.add_argument(
        '--dry-run', action='store_true',
        help='say what a pack would free, and what it would need; nothing is'
             ' changed, and the file may be in use')
    what.add_argument(
        '--status', action='store_true',
        help='say how far the pack of a server is')
    what.add_argument(
        '--cancel', action='store_true', help='end the pack of a server')
    made.add_argument(
        '--json', action='store_true',
        help='write the report as JSON to standard output')
    made.add_argument(
        '--storage', metavar='NAME', default='1',
        help='which storage of the server (1)')
    made.add_argument(
        '--blobs', metavar='DIR',
        help='the blob directory of the file: blobs that are not needed go,'
             ' too')
    made.add_argument(
        '--no-gc', dest='gc', action='store_false',
        help='of the file, keep objects that nothing refers to: needed where'
             ' another database refers to them')
    return made


def number_of_days(text):
    days = float(text)  # or ValueError
    if not 0 <= days <= time.time() / DAY:
        raise argparse.ArgumentTypeError(
            f'{printable(text)} is not a number of days, from 0 on')
    return days


def ask_what_is_to_stay(options):
    """Before a pack that somebody types without --days.  (A script has no
    terminal, and is not asked; nor is one who writes --days 0.)"""
    is_pack = not (options.dry_run or options.status or options.cancel)
    if options.days is None and is_pack and (
            sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        print(f'{printable(options.path)}: all earlier revisions go, and no'
              ' transaction can be undone any more; --days N keeps those of'
              ' the last N days, and --dry-run says what goes.',
              file=sys.stderr)
        print('Pack? [y/N] ', end='', file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ('y', 'yes'):
            raise CannotRun('nothing was changed')


def run(options):
    if options.dry_run and not options.json:
        with needing_rich('fsync-pack'):
            importlib.import_module('rich')
    ask_what_is_to_stay(options)
    try:
        with (target.file_opened(options) if options.address is None
              else target.server_asked(options)) as storage:
            found = done(storage, options)
        with terminal.output():
            show({'path': options.path, **found}, options)
    except (POSError, CorruptedError, ValueError,
            zc.lockfile.LockError) as error:
        raise CannotRun(f'{options.path}: {reason(error)}') from None
    except (ArithmeticError, AttributeError, KeyError, TypeError) as error:
        if options.address is None:
            raise
        raise CannotRun(
            f'{options.path}: the server answers what this command does not'
            f' understand ({error!r})') from None
    return 0


def reason(error):
    if isinstance(error, POSKeyError):
        return (f'an object refers to {error}, which is not there; nothing was'
                ' changed, and fsync-check --refs shows where')
    match error.args:
        case [_, [*_, said]] if isinstance(error, ServerException):
            return str(said)  # the last argument of an error of the server
    return str(error) or type(error).__name__


def done(storage, options):
    """Do what the options ask for; return what must be reported."""
    packs = storage.packs
    if options.status:
        return packs.status()
    if options.cancel:
        return cancel(packs)
    when = time.time() - (options.days or 0) * DAY
    if options.dry_run:
        return look_on(begun(packs.forecast, when),
                       lambda: packs.status()['forecast'])
    return pack(storage, when, options)


def begun(function, *arguments):
    """The Future of a call in a thread, which may be left alone."""
    future = futures.Future()

    def work():
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future


def look_on(work, ask):
    """Wait for the work, and return its result.

    `ask()` returns the progress, or None.  It is called at most once a second,
    since the answer may come from a server.
    """
    with progress_bar(_WHOLE, {phase: phase for phase in PHASES}) as tell:
        while not futures.wait([work], EVERY).done:
            found = ask()
            if found and found['phase'] in PHASES:
                tell(found['phase'], int(found['share'] * _WHOLE))
    return work.result()


def pack(storage, when, options):
    packs, is_a_file = storage.packs, options.address is None
    is_told = is_a_file or tells(packs)
    work = begun(storage.pack, when, referencesf)
    try:
        look_on(work, lambda: is_told and packs.status()['pack'])
    except KeyboardInterrupt:
        said = 'the pack goes on; --cancel ends it'
        if is_a_file:
            while not futures.wait([work], EVERY).done:
                with contextlib.suppress(POSError):  # it has not begun yet
                    packs.cancel()
            said = f'the pack has ended: {last_of(packs)["outcome"]}'
        print(f'{options.path}: {said}', file=sys.stderr)
        raise
    except ClientDisconnected:
        raise CannotRun(
            f'{options.path}: the connection was lost; the server goes on to'
            ' pack, if it runs (--status tells)') from None
    if not is_told:
        return {'outcome': None}
    last = last_of(packs)
    return {name: last.get(name)
            for name in ('outcome', 'before', 'after', 'seconds')}


def tells(packs):
    """Does this server tell how far a pack is?"""
    try:
        packs.status()
    except Unsupported:
        return False
    return True


def last_of(packs):
    """Figures of the last pack; one that was refused is not noted, nor is one
    of an empty storage."""
    return packs.status()['last'] or {'outcome': 'nothing'}


def cancel(packs):
    packs.cancel()
    while packs.status()['pack']:
        time.sleep(EVERY)
    last = packs.status()['last']
    if last is None or last['outcome'] != 'cancelled':
        raise CannotRun(f'it was too late: {last["outcome"]}' if last else
                        'the server was restarted: no pack is under way')
    return {'outcome': 'cancelled'}


def show(found, options):
    if options.json:
        json.dump(found, sys.stdout, indent=1)
        print()
        return
    lines = (of_forecast if options.dry_run
             else of_status if options.status else of_pack)
    for line in list(lines(found)):  # an error must come before any output
        print(printable(line))
    if options.dry_run and found['rows']:
        show_table(found)


def of_pack(found):
    outcome = found['outcome']
    yield (f'{found["path"]}: '
           + (_packed(found) if outcome == 'packed' else ENDS[outcome]))


def _packed(found):
    return (f'packed from {size_in_words(found["before"])} to'
            f' {size_in_words(found["after"])} in'
            f' {duration(found["seconds"])}')


def of_status(found):
    pack, last = found['pack'], found['last']
    yield f'{found["path"]}: ' + (
        f'a pack is under way, in the phase {pack["phase"]!r};'
        f' {pack["share"]:.0%} in {duration(pack["seconds"])}'
        if pack else 'no pack is under way')
    if last:
        outcome = last['outcome']
        yield f'the last one ended {duration(last["ago"])} ago' + (
            f': {_packed(last)}' if outcome == 'packed'
            else ': nothing could be freed' if outcome == 'nothing'
            else f', and nothing was changed: {outcome}')
    if found['forecast']:
        yield 'a dry run is under way'


def of_forecast(found):
    """The lines of a forecast, above the table."""
    old, freed = found['old_size'], found['freed']
    yield (f'{found["path"]}: a pack would free {size_in_words(freed)} of'
           f' {size_in_words(old)}, which is {100 * freed / old:.1f} %, and'
           f' take about {duration(found["seconds"])}')
    if found['objects']:
        yield (f'{found["objects"]:,} objects go that nothing in this file'
               ' refers to')
    if found['blobs'] is not None:
        yield (f'{found["blobs"]:,} blobs with'
               f' {size_in_words(found["blob_bytes"])} would go')
    elif any(row['class'] == BLOB for row in found['rows']):
        yield ('Blobs are among what would go, and their files would stay: no'
               ' blob directory was given (--blobs for a file, blob-dir for a'
               ' server)')
    needed, free = found['needed'], found['free']
    if needed:
        yield f'It needs room for {size_in_words(needed)}' + (
            '' if free is None else f', and {size_in_words(free)} are free'
            if needed <= free else f'. ONLY {size_in_words(free)} ARE FREE')


def show_table(found):
    from rich.console import Console

    from ..check.info.tables import Report
    console = Console(highlight=False)
    report = Report(found, console)
    with without_blanks(console):
        names = 'class', 'objects', 'records', 'bytes'
        table = report.table('What would be freed, by class', *names)
        for row in found['rows']:
            report.row(table, *map(row.get, names))
        table.add_row('(headers of transactions)', '', '',
                      f'{found["transactions"]:,}')
        report.row(table, 'together', found['objects'], found['records'],
                   found['freed'])
        console.print(table)


def duration(seconds):
    return (f'{seconds:.1f} s' if seconds < 120
            else f'{seconds / 60:.0f} min')
