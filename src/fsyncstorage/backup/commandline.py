"""The command line of `fsync-backup`.

Exit codes: 0 done, and all is sound; 1 damage, a gap, or another history in
the store; 2 it could not be done, or not be told; 130 interrupted; 141 nobody
reads the output.  Errors are one line.
"""

import argparse
import contextlib
import dataclasses
import io
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

from ..check import commandline as fsynccheck
from ..check import terminal
from ..check.terminal import CannotRun
from ..check.terminal import CommandParser
from ..check.terminal import exit_code
from ..check.terminal import printable
from ..check.terminal import progress_bar
from . import head as heads
from . import points
from . import running
from . import timeline
from .content import Changed
from .copied import NotRestored
from .follow import follow
from .head import Damaged
from .layout import Database
from .layout import checked_database
from .opening import opened
from .prefix import DurablePrefix
from .prefix import Unreachable
from .prune import prune
from .restore import restore
from .segment import NotShipped
from .store import Missing
from .store import Store
from .store import StoreError
from .timeline import History
from .uploader import Stopped
from .uploader import Uploader
from .verification import Found
from .verification import verify

DESCRIPTION = """\
Ship a Data.fs that is in use, and its blobs, to a store; restore them.
"""

EPILOG = """\
STORE is a directory, or s3://BUCKET/PREFIX, gs://BUCKET/PREFIX,
az://CONTAINER/PREFIX.  POINT is a time in UTC, like 2027-01-31T14:30:00, or a
tid of 16 hexadecimal digits.

exit status: 0 done, and all is sound; 1 damage, a gap, or another history in
the store; 2 it could not be done.
"""

#: A writer that was not seen for so many seconds is an alarm.
LATE = 180.0
_DAY = 86_400.0

_STAGES = {'bytes': 'reading segments'}


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser()
    options = arguments.parse_args(argv)
    options.path = getattr(options, 'data', options.store)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter('%(asctime)s %(message)s'))
    handler.addFilter(lambda record: record.name.startswith('fsyncstorage'))
    logger = logging.getLogger()
    logger.addHandler(handler)
    try:
        code: int = exit_code(run, options, arguments.prog)
        return code
    finally:
        logger.removeHandler(handler)


def parser() -> argparse.ArgumentParser:
    made = CommandParser(
        prog='fsync-backup', description=DESCRIPTION, epilog=EPILOG)
    commands = made.add_subparsers(
        dest='command', metavar='COMMAND', required=True)

    def command(name: str, help: str, *paths: str) -> argparse.ArgumentParser:
        one: argparse.ArgumentParser = commands.add_parser(
            name, help=help, description=help, epilog=EPILOG)
        for path in paths:
            one.add_argument({'STORE': 'store', 'DATA.FS': 'data',
                              'DIR': 'directory'}[path], metavar=path)
        one.add_argument('--database', metavar='NAME', default='main',
                         type=_checked(checked_database),
                         help='its name in the store (main)')
        if 'DATA.FS' in paths:
            one.add_argument('--blobs', metavar='DIR',
                             help='the directory of its blobs')
        if name not in ('run', 'follow'):
            one.add_argument('--json', action='store_true',
                             help='write the report as JSON')
        if name in ('status', 'verify', 'restore', 'drill', 'follow',
                    'promote'):
            one.add_argument('--timeline', metavar='N', type=int,
                             help='which one, if there are several (the'
                                  ' newest; a restore asks)')
        return one

    run = command('run', 'ship what is durable, each second',
                  'DATA.FS', 'STORE')
    run.add_argument('--once', action='store_true',
                     help='ship what is durable now, and end')
    run.add_argument('--new-timeline', metavar='WHY',
                     help='go on with this file, which differs from what was'
                          ' shipped')
    command('list', 'say which timelines there are', 'STORE')
    command('status', 'is the backup going on, and is anything lost?', 'STORE')
    command('verify', 'is all there, and is it what was shipped?',
            'STORE').add_argument('--deep', action='store_true',
                                  help='read every byte')
    command('restore', 'make a Data.fs and its blobs again', 'STORE',
            'DATA.FS').add_argument('--to', metavar='POINT',
                                    type=_checked(points.tid_of),
                                    help='as it was then (the newest)')
    command('drill', 'restore the newest into a new place in DIR, check it'
            ' with fsync-check, and remove it', 'STORE', 'DIR')
    command('follow', 'keep a copy of the site here, seconds behind it, until'
            ' its timeline has ended', 'STORE', 'DATA.FS')
    command('promote', 'end the newest timeline, so that its site ships'
            ' nothing more; then restore it, and run --new-timeline', 'STORE')
    removing = command('prune', 'remove what no point needs that is kept',
                       'STORE')
    removing.add_argument('--keep', metavar='DAYS', required=True,
                          type=_checked(_days),
                          help='keep each point of so many days')
    removing.add_argument('--dry-run', action='store_true',
                          help='only say how much that is')
    return made


def _checked(convert: Callable[[str], Any]) -> Callable[[str], Any]:
    """For an argument; what is wrong with it is told in one line."""
    def converted(text: str) -> Any:
        try:
            return convert(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(printable(str(error))) from None

    return converted


def _days(text: str) -> float:
    if not 0 <= float(text) < 100_000:
        raise ValueError(f'{text!r} is no number of days')
    return float(text)


def run(options: argparse.Namespace) -> int:
    try:
        store = opened(options.store)
        return COMMANDS[options.command](
            options, store, Database(options.database))
    except (Damaged, Stopped, NotShipped) as error:
        print(f'fsync-backup: {printable(str(error))}', file=sys.stderr)
        return 1
    except (StoreError, NotRestored, Unreachable, Changed) as error:
        raise CannotRun(str(error)) from None


# The commands: each returns the exit code

def ship(options: argparse.Namespace, store: Store, database: Database) -> int:
    uploader = Uploader(store, database, DurablePrefix(
        options.data, options.blobs), options.new_timeline)
    if options.once:
        running.once(uploader)
    else:
        logging.getLogger('fsyncstorage').setLevel(logging.INFO)
        with _told_to_end() as stop:
            running.run(uploader, stop)
    return 0


@contextlib.contextmanager
def _told_to_end() -> Iterator[threading.Event]:
    """An event that signals set."""
    told = threading.Event()
    with (_signalled(signal.SIGTERM, lambda *_: told.set()),
          _signalled(signal.SIGINT, lambda *_: told.set())):
        yield told


def _terminated() -> contextlib.AbstractContextManager[None]:
    """SIGTERM interrupts, as Ctrl-C does: what is half done is removed."""
    return _signalled(signal.SIGTERM, signal.default_int_handler)


@contextlib.contextmanager
def _signalled(number: signal.Signals, handler: Any) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def show_list(options: argparse.Namespace, store: Store,
              database: Database) -> int:
    found = [_about(History(store, database, number + 1))
             for number in range(timeline.newest(store, database))]
    if not found:
        raise CannotRun(f'{store.name} has no backup of a database'
                        f' {database.name!r}')
    _show(options, {'database': database.name, 'timelines': found}, (
        f'timeline {each["timeline"]}: {_of_list(each)}' for each in found))
    return 0


def _about(history: History) -> dict[str, Any]:
    begin, store, last = history.begins[-1], history.store, None
    beat = timeline.read_heartbeat(store, begin.names)
    found = {'timeline': begin.names.number, 'why': begin.why,
             'created': begin.created, 'parent': begin.parent or None,
             'objects': 0, 'size': 0, 'tid': None, 'time': None,
             'put': None, 'heartbeat': beat and beat['time'],
             'drill': timeline.read_drill(store, begin.names)}
    for last in store.list(begin.names.log):
        pass
    if last is not None:
        with contextlib.suppress(Missing):  # a prune removes it
            head = heads.unpack(
                store.front(last.key, heads.SIZE), timeline.IN_LOG)
            found |= {'objects': begin.names.sequence(last.key) + 1,
                      'size': head.end, 'put': last.time}
            if head.kind != heads.END:
                found |= {'tid': head.tid.hex(),
                          'time': points.time_of(head.tid)}
    return found


def _of_list(found: dict[str, Any]) -> str:
    words = (f'{found["size"]:,} bytes in {found["objects"]:,} objects'
             if found['objects'] else 'nothing of it is there')
    if found['tid']:
        words += f', up to {found["time"]} (tid {found["tid"]})'
    if found['heartbeat']:
        ago = max(time.time() - found['heartbeat'], 0)
        words += f'; its writer was seen {ago:,.0f} s ago'
    if found['drill']:
        days = max(time.time() - found['drill'], 0) / _DAY
        words += f'; a drill was sound {days:,.1f} days ago'
    if found['parent']:
        words += f'; it leaves timeline {found["parent"]}'
    return f'{words} ({found["why"]})'


def show_status(options: argparse.Namespace, store: Store,
                database: Database) -> int:
    history = _chosen(options, store, database)
    found, packs = _about(history), history.packs()
    wrong = [*_wrong(found, packs)]
    oldest = [points.named(pack.tid) for sequence, pack in packs
              if sequence == history.first()]
    _show(options, {**found, 'oldest': oldest[0] if oldest else None,
                    'packs': len(packs), 'problems': wrong}, [
        _of_list(found), *(f'its oldest point is {each}' for each in oldest),
        *wrong])
    return 1 if wrong else 0


def _wrong(found: dict[str, Any],
           packs: list[tuple[int, heads.Head]]) -> Iterator[str]:
    seen = found['heartbeat']
    if seen is None or time.time() - seen > LATE:
        yield f'its writer was not seen for {LATE:.0f} s'
    for _, pack in packs:
        if pack.time > pack.tid:
            yield (f'what was between {points.named(pack.tid)} and'
                   f' {points.named(pack.time)} was packed before it was'
                   ' shipped')


def remove(options: argparse.Namespace, store: Store,
           database: Database) -> int:
    # Days before the writer was seen: so neither a clock that is ahead, nor a
    # writer that has died, takes points away.
    names = database.timeline(timeline.newest(store, database))
    beat = timeline.read_heartbeat(store, names)
    now = min(time.time(), beat['time']) if beat else time.time()
    since = max(now - options.keep * _DAY, 0.0)  # (there is no older tid)
    found = prune(store, database, points.tid_of_time(since), since,
                  options.dry_run)
    _show(options, found._asdict(), [
        f'{found.objects:,} objects with {found.size:,} bytes'
        + (' are not needed' if options.dry_run else ' were removed')])
    return 0


def check(options: argparse.Namespace, store: Store,
          database: Database) -> int:
    history = _chosen(options, store, database)
    with _progress(history) as tell:
        found = verify(history, options.deep, tell)
    if not (found.last or found.problems):
        raise CannotRun(f'{store.name}: nothing was shipped yet')
    first, last = (tid and tid.hex() for tid in (found.first, found.last))
    _show(options, {**dataclasses.asdict(found), 'first': first,
                    'last': last}, _of_check(found))
    return 1 if found.problems else 0


def _of_check(found: Found) -> Iterator[str]:
    yield from found.problems
    yield (f'{found.segments:,} segments with {found.size:,} bytes, and'
           f' {found.blobs:,} blobs with {found.size_of_blobs:,}'
           + (f', and {found.bases:,} bases of {found.packs:,} packs'
              if found.packs else '')
           + (f', up to {points.named(found.last)}' if found.last else ''))
    if found.missing:
        yield (f'{found.missing:,} blobs were missing when they should be'
               ' shipped')
    if found.problems:
        yield f'{len(found.problems):,} wrong: see above'


def make_again(options: argparse.Namespace, store: Store,
               database: Database) -> int:
    history = _chosen(options, store, database)
    with _terminated(), _progress(history) as tell:
        found = restore(history, options.data, options.blobs, options.to, tell)
    _show(options, {**found._asdict(), 'tid': found.tid.hex(),
                    'time': points.time_of(found.tid)}, [
        f'{options.data}: {found.size:,} bytes and {found.blobs:,} blobs, as'
        f' of {points.named(found.tid)}', *(
            [f'{found.missing:,} blobs were missing when they should be'
             ' shipped'] if found.missing else [])])
    return 0


def drill(options: argparse.Namespace, store: Store,
          database: Database) -> int:
    history = _chosen(options, store, database)
    last = history.last()
    needed = sum(entry.size for entry in store.list(database.blobs)) + (
        history.head(last[0]).end if last else 0)
    free = shutil.disk_usage(options.directory).free
    if free < needed:
        raise CannotRun(f'a drill needs {needed:,} bytes in'
                        f' {options.directory}, and {free:,} are free')
    with _terminated(), tempfile.TemporaryDirectory(
            prefix='drill-', dir=options.directory) as directory:
        path, said = os.path.join(directory, 'Data.fs'), io.StringIO()
        with _progress(history) as tell:
            found = restore(history, path, path + '.blobs', None, tell)
        with contextlib.redirect_stdout(said):
            code: int = fsynccheck.main([path, '--blobs', path + '.blobs'])
    if not code:
        timeline.put_note(
            store, history.names.drill, heads.DRILL, time=time.time())
    _show(options, {**found._asdict(), 'tid': found.tid.hex(),
                    'is_sound': not code}, [
        *said.getvalue().splitlines(),
        f'{found.size:,} bytes and {found.blobs:,} blobs were restored,'
        f' as of {points.named(found.tid)}, and are'
        + (' damaged' if code else ' sound')])
    return code


def stay_behind(options: argparse.Namespace, store: Store,
                database: Database) -> int:
    history = _chosen(options, store, database)
    logging.getLogger('fsyncstorage').setLevel(logging.INFO)
    with _told_to_end() as stop:
        tid = follow(history, options.data, options.blobs, stop)
    if tid is not None:
        with terminal.output():
            print(f'timeline {history.names.number} has ended; {options.data}'
                  f' has all of it, up to {points.named(tid)}')
    return 0


def promote(options: argparse.Namespace, store: Store,
            database: Database) -> int:
    history = _chosen(options, store, database)
    history.end()
    number = history.names.number
    _show(options, {'timeline': number}, [
        f'timeline {number} has ended, and who writes to it stops; its site'
        ' must not be used any more'])
    return 0


COMMANDS = {'run': ship, 'list': show_list, 'status': show_status,
            'verify': check, 'restore': make_again, 'drill': drill,
            'follow': stay_behind, 'promote': promote, 'prune': remove}


def _chosen(options: argparse.Namespace, store: Store,
            database: Database) -> History:
    newest = timeline.newest(store, database)
    if not newest:
        raise CannotRun(f'{store.name} has no backup of a database'
                        f' {database.name!r}')
    if options.command == 'restore' and options.timeline is None and (
            newest > 1):
        raise CannotRun(f'there are {newest} timelines: name one with'
                        ' --timeline (list shows them)')
    number = options.timeline or newest
    if not 1 <= number <= newest:
        raise CannotRun(f'there is no timeline {number}')
    return History(store, database, number)


@contextlib.contextmanager
def _progress(history: History) -> Iterator[Callable[[int], object]]:
    """A function that is told of positions."""
    beat = timeline.read_heartbeat(history.store, history.names)
    with progress_bar(beat['position'] if beat else 1, _STAGES) as tell:
        yield lambda position: tell('bytes', position)


def _show(options: argparse.Namespace, found: dict[str, Any],
          lines: Iterable[str]) -> None:
    with terminal.output():
        if options.json:
            json.dump(found, sys.stdout, indent=1)
            print()
        else:
            for line in lines:
                print(printable(line))


if __name__ == '__main__':
    sys.exit(main())
