"""The command `fsync-time disk`: what one sync costs here, and what follows.

The ways to sync are measured alone, and the policies with the storages,
because commits share syncs, and the rest of a commit takes time, too.

In each way to sync, a record is appended to a file, as a commit does, and made
durable; both together are timed, because O_DSYNC does both in one call.  The
first way is the one that FsyncStorage takes on this system.
"""

import dataclasses
import fcntl
import functools
import os
import typing

from rich.text import Text

from fsyncstorage.commit.policies import POLICIES
from fsyncstorage.datafile import disk

from . import arguments
from . import commits
from . import verdict
from .contestants import CONTESTANTS
from .results import tables
from .results.document import result
from .results.document import values
from .results.questions import SYNCS
from .results.wording import number
from .running import crew
from .running import sampling
from .running.sampling import Race

#: As usual, and with --quick.
ROUNDS = 3, 1
SYNC_SECONDS, COMMITS_SECONDS = (0.3, 0.1), (0.6, 0.2)

COMMITTERS = 1, 4, 16

#: The policies are compared with what most sites run now.
STORAGES = tuple(
    one for one in CONTESTANTS.values()
    if one.name == 'filestorage' or one.name.startswith('fsync:'))

DESCRIPTION = """\
Measure what one sync costs on this disk, and say what that means.

A file in a new directory in PATH is written and synced in each way that the
system offers. Then small transactions are committed with each policy, for less
than a second each. The verdict says whether this can be a disk at all, how
many commits a second to expect, and whether the figures can be trusted.
"""

COMMITS_KEY = (
    'Measured with the storages themselves: small transactions, each committer'
    ' in a thread and with objects of its own; medians of the rounds.\n')

#: The number of the race between the ways to sync.
OF_SYNCS = 0

#: A small commit writes about as much.
RECORD = b'x' * 1000

#: In a sample; a file system in memory would fill the memory with more.
MOST_SYNCS = 10_000


@dataclasses.dataclass(frozen=True)
class Way:
    name: str
    summary: str
    #: Called with a descriptor and a position.
    write: typing.Callable
    #: The file is opened with these, too.
    flags: int = 0


def _and(sync):

    def write(fd, position):
        disk.write(fd, RECORD, position)
        sync(fd)

    return write


def _twice(fd, position):
    """As `durability two-sync` does: sync the data, then one byte of them."""
    _and(disk.sync)(fd, position)
    disk.write(fd, RECORD[:1], position)
    disk.sync(fd)


def _ways():
    if hasattr(fcntl, 'F_FULLFSYNC'):  # macOS
        yield Way('F_FULLFSYNC', 'fsync that empties the drive\'s cache, too',
                  _and(disk.sync))
    if hasattr(os, 'fdatasync'):
        yield Way('fdatasync', 'the data, and the size of the file',
                  _and(os.fdatasync))
    yield Way('fsync', 'the data and all that is known of the file',
              _and(os.fsync))
    if hasattr(os, 'O_DSYNC'):
        yield Way('O_DSYNC', 'each write is synced by itself',
                  _and(lambda fd: None), os.O_DSYNC)
    yield Way('two syncs', 'the data, then one byte, as two-sync does',
              _twice)


WAYS = tuple(_ways())


def add_to(commands):
    parser = commands.add_parser(
        'disk', help='what one sync costs here, and what follows',
        description=DESCRIPTION)
    parser.add_argument(
        'directory', nargs='?', default=os.curdir, type=arguments.directory,
        metavar='PATH',
        help='a directory on the disk (default: the current one); what is'
             ' made in it is always removed')
    parser.add_argument(
        '--quick', action='store_true',
        help='a rough answer in some twenty seconds, not in a minute or two')
    parser.add_argument('--json', **arguments.OUTPUT['--json'])
    parser.set_defaults(run=run)


def run(options):
    options.contestants = [*WAYS, *STORAGES]
    options.rounds = ROUNDS[options.quick]
    return sampling.run(options, 'disk', races(options.quick), show)


def races(quick):
    return [
        Race('sync', {'seconds': SYNC_SECONDS[quick]}, measure,
             ('p50_seconds', 'p99_seconds', 'max_seconds'),
             suits=WAYS.__contains__),
        *(dataclasses.replace(
            commits.race(threads=committers, shared=False,
                         seconds=COMMITS_SECONDS[quick], sync_latency=0.0),
            suits=STORAGES.__contains__) for committers in COMMITTERS),
    ]


def measure(way, directory, *, seconds):
    """Time one way in an empty directory; return its figures."""
    fd = disk.open(os.path.join(directory, 'Data.fs'),
                   os.O_RDWR | os.O_CREAT | way.flags)
    try:
        syncs = crew.timed(
            (functools.partial(way.write, fd, number * len(RECORD))
             for number in range(MOST_SYNCS)), seconds).durations
    finally:
        os.close(fd)
    return {'syncs': len(syncs), **crew.times(syncs)}


def show(document, console):
    tables.show_machine(document, console)
    tables.show_answers(document, console, SYNCS)
    tables.show_key(document, console)
    console.print(Text(f'FsyncStorage takes {document["baseline"]}.\n'))
    disk, noise, no_disk = verdicts(document)
    if disk:
        console.print(Text(f'{disk}\n', 'bold'))
    tables.show_table(
        console, 'What that means: commits a second, by committers',
        _commits_table(document, no_disk))
    console.print(Text(COMMITS_KEY, 'dim'))
    if disk:
        console.print(Text(f'{noise or verdict.ADVICE}\n', 'bold'))


def verdicts(document):
    """What is said of the disk and of the noise, and whether it is no disk.

    Without all of the figures there is no verdict.
    """
    if not document['complete']:
        return None, None, None
    machine = document['machine']
    where = machine['file_system'], result(
        document, OF_SYNCS, document['baseline'], 'p50_seconds')['median']
    noise = verdict.of_noise(
        machine['load_average'] / machine['cpus'],
        {policy: [values(document, race, f'fsync:{policy}', 'txn_per_second')
                  .values() for race in _commits(document).values()]
         for policy in POLICIES})
    return (verdict.of_disk(*where, noise), noise, verdict.is_no_disk(*where))


def _commits_table(document, no_disk):
    races = _commits(document)
    may_lose = {f'fsync:{name}': policy.may_lose
                for name, policy in POLICIES.items()}
    table = tables.new_table('policy', *map(str, races))
    table.add_column('a power cut may take back')
    for name in document['contestants']:
        cells = [_rate(document, race, name) for race in races.values()]
        if any(cells):
            table.add_row(
                name, *cells, 'anything: this is no disk' if no_disk
                else may_lose.get(name, ''))  # stock is there to compare
    return table


def _commits(document):
    """The numbers of the races with commits, by number of committers."""
    return {
        race['settings']['threads']: number
        for number, race in enumerate(document['races'])
        if number != OF_SYNCS}


def _rate(document, race, contestant):
    found = result(document, race, contestant, 'txn_per_second')
    return number(found['median']) if found else ''
