"""The command line of `fsync-pack`.

Exit codes: 0 done, 2 it cannot be done, 130 interrupted, 141 nobody reads the
output.  Errors are one line.
"""

import argparse
import contextlib
import json
import logging
import math
import sys
import threading
import time

import zc.lockfile
from ZEO.Exceptions import ClientDisconnected
from ZODB.FileStorage.format import CorruptedError
from ZODB.POSException import POSError
from ZODB.serialize import referencesf

from ..check import terminal
from ..check.terminal import CannotRun
from ..check.terminal import CommandParser
from ..check.terminal import exit_code
from ..check.terminal import printable
from ..check.terminal import progress_bar
from . import target
from . import words

DESCRIPTION = """\
Pack a Data.fs that no process has open, or ask a ZEO server to pack: free what
is not needed at the pack time.
"""

EPILOG = """\
ADDRESS is host:port, or the path of a unix socket.  Progress, --status,
--cancel and --dry-run need fsync-runzeo; any ZEO server can be asked to pack.

exit status: 0 done; 2 it could not be done.
"""

STAGES = {
    'check': 'checking the file',
    'references': 'reading references',
    'mark': 'finding what is reachable',
    'count': 'counting what is freed',
    'copy': 'copying',
    'swap': 'swapping the files',
}

DAY = 24 * 3600
#: Seconds between two looks at the progress.
EVERY = 1.0
# The end of the progress bar.
_WHOLE = 1000
# Seconds within which a cancelled pack must have ended.
END_WITHIN = 60


def main(argv=None):
    arguments = parser()
    options = arguments.parse_args(argv)
    options.address = target.address_of(options.path)
    _refuse_what_does_not_fit(arguments, options)
    # ZEO also logs errors; without a handler, Python would print them.
    silent = logging.NullHandler()
    logging.getLogger().addHandler(silent)
    try:
        return exit_code(run, options, arguments.prog)
    finally:
        logging.getLogger().removeHandler(silent)


def parser():
    made = CommandParser(
        prog='fsync-pack', description=DESCRIPTION, epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument(
        'path', metavar='ADDRESS|DATA.FS', help='what is packed')
    made.add_argument(
        '--days', metavar='N', type=number_of_days,
        help='keep what was current in the last N days (0)')
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
    if not (math.isfinite(days) and 0 <= days <= time.time() / DAY):
        raise argparse.ArgumentTypeError(
            f'{printable(text)} is not a number of days, from 0 on')
    return days


def _refuse_what_does_not_fit(arguments, options):
    if options.days is not None and (options.status or options.cancel):
        arguments.error('--days is for a pack, or a dry run')
    if options.address is not None and (options.blobs or not options.gc):
        arguments.error('--blobs and --no-gc are for a file; a server has its'
                        ' own configuration')
    if options.address is None and (options.status or options.cancel):
        arguments.error('--status and --cancel ask a server: they need its'
                        ' ADDRESS')


def run(options):
    try:
        with _opened(options) as storage:
            found = done(storage, options)
        with terminal.output():
            show({'path': options.path, **found}, options)
    except (POSError, CorruptedError, ValueError,
            zc.lockfile.LockError) as error:
        raise CannotRun(f'{options.path}: {words.of_error(error)}') from None
    except (ArithmeticError, AttributeError, KeyError, TypeError) as error:
        if options.address is None:
            raise
        raise CannotRun(
            f'{options.path}: the server answers what this command does not'
            f' understand ({error!r})') from None
    return 0


def done(storage, options):
    """Do what the options ask for; return what must be reported."""
    if options.status:
        return storage.packs.status()
    if options.cancel:
        return cancel(storage)
    if options.dry_run:
        return forecast(storage, pack_time(options))
    return pack(storage, options)


@contextlib.contextmanager
def _opened(options):
    if options.address is None:
        with target.file_opened(options) as storage:
            yield storage
        return
    with target.server_asked(options, options.address) as storage:
        if storage.isReadOnly() and not options.status:
            raise CannotRun(f'{options.path}: the server is read-only')
        yield storage


def pack_time(options):
    return time.time() - (options.days or 0) * DAY


class Work(threading.Thread):

    def __init__(self, function):
        super().__init__(daemon=True)
        self._function = function
        self._result = self.error = None
        self.is_over = threading.Event()
        self.start()

    def run(self):
        try:
            self._result = self._function()
        except BaseException as error:
            self.error = error
        finally:
            self.is_over.set()

    def result(self):
        self.is_over.wait()
        if self.error is not None:
            raise self.error
        return self._result


def look_on(work, ask):
    """Wait for the work, and return its result.

    `ask()` returns the progress, or None.  It is called at most once a second,
    since the answer may come from a server.
    """
    with progress_bar(_WHOLE, STAGES) as tell:
        while not work.is_over.wait(EVERY):
            found = ask()
            if found and found['phase'] in STAGES:
                tell(found['phase'], int(found['share'] * _WHOLE))
    return work.result()


def forecast(storage, when):
    packs = storage.packs
    return look_on(Work(lambda: packs.forecast(when)),
                   lambda: packs.status()['forecast'])


def pack(storage, options):
    is_told = options.address is None or storage.packs.are_offered
    work = Work(lambda: storage.pack(pack_time(options), referencesf))
    try:
        look_on(work, lambda: is_told and storage.packs.status()['pack'])
    except KeyboardInterrupt:
        if options.address is None:
            cancel_own(storage, work)
            if last_of(storage)['outcome'] == 'packed':
                print(f'{options.path}: it was too late: packed',
                      file=sys.stderr)
        else:
            print(f'{options.path}: the pack goes on; --cancel ends it',
                  file=sys.stderr)
        raise
    except ClientDisconnected:
        raise CannotRun(
            f'{options.path}: the connection was lost; the server goes on to'
            ' pack, if it runs (--status tells)') from None
    if not is_told:
        return {'outcome': None}
    last = last_of(storage)
    return {name: last.get(name)
            for name in ('outcome', 'before', 'after', 'seconds')}


def last_of(storage):
    """Figures of the last pack.

    A pack that was refused is not noted, nor is one of an empty storage.
    """
    return storage.packs.status()['last'] or {'outcome': 'nothing'}


def cancel_own(storage, work):
    """End the pack of the file before the command ends."""
    while not work.is_over.is_set():
        with contextlib.suppress(POSError):  # it has not begun, or has ended
            storage.packs.cancel()
        work.is_over.wait(EVERY)


def cancel(storage):
    packs = storage.packs
    packs.cancel()
    end = time.monotonic() + END_WITHIN
    while packs.status()['pack']:
        if time.monotonic() > end:
            raise CannotRun('the pack was asked to end, and goes on; --status'
                            ' tells more')
        time.sleep(EVERY)
    last = packs.status()['last']
    if last is None:
        raise CannotRun('the server was restarted: no pack is under way, and'
                        ' the server does not know how the last one ended')
    outcome = last['outcome']
    if outcome != 'cancelled':
        raise CannotRun(f'it was too late: {outcome}')
    return {'outcome': outcome}


def show(found, options):
    if options.json:
        json.dump(found, sys.stdout, indent=1)
        print()
    elif options.dry_run:
        words.show_forecast(found)
    else:
        lines = (words.of_status(found) if options.status
                 else [f'{options.path}: the pack was cancelled, and nothing'
                       ' was changed'] if options.cancel
                 else words.of_pack(found))
        for line in list(lines):  # an error must come before any output
            print(printable(line))


if __name__ == '__main__':
    sys.exit(main())
