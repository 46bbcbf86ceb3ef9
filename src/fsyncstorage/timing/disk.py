"""The command `fsync-time disk`: what one sync costs here, and what follows.

The ways to sync are measured alone, and the policies with the storages,
because commits share syncs, and the rest of a commit takes time, too.

In each way to sync, a record is appended to a file, as a commit does, and made
durable; both together are timed, because O_DSYNC does both in one call.  The
first way is the one that FsyncStorage takes on this system.

No figure proves that a disk keeps what it confirms; only a power cut does.
But some figures prove that it does not.
"""

import dataclasses
import fcntl
import functools
import os
import typing
from statistics import median

from rich.text import Text

from fsyncstorage.commit.policies import POLICIES
from fsyncstorage.datafile import disk

from . import arguments
from . import commits
from .contestants import CONTESTANTS
from .results import tables
from .results.document import result
from .results.document import values
from .results.questions import COMMITS
from .results.questions import SYNCS
from .results.wording import duration
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

#: Seconds of one sync.  No device that keeps data is faster than this,
NO_DISK = 20e-6
#: and no device without a cache is faster than this.
NEEDS_CACHE = 200e-6

MEMORY = 'tmpfs', 'ramfs'

#: A sync costs something.  If commits with it are faster by this factor than
#: without, something else has slowed the latter.
_CONTRADICTION = 1.5

#: The same for each disk: what the figures show is what it costs.
ADVICE = (
    'Keep the defaults: durability group-commit loses nothing that was'
    ' acknowledged, and a lone committer does not wait for others. Choose'
    ' interval only for data that may lose the last sync-interval.')

#: The number of the race between the ways to sync, which is the first.
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
    console.print(Text(f'FsyncStorage takes {document["baseline"]}.\n'))
    said, noise, no_disk = verdicts(document)
    if said:
        console.print(Text(f'{said}\n', 'bold'))
    tables.show_answers(document, console, COMMITS)
    tables.show_key(document, console)
    if no_disk:
        return  # no policy keeps what it promises
    for name, policy in POLICIES.items():
        console.print(Text(
            f'{name}: a power cut may take back {policy.may_lose}.'))
    if said:
        console.print(Text(f'\n{noise or ADVICE}\n', 'bold'))


def verdicts(document):
    """What is said of the disk and of the noise, and whether it is no disk.

    Without all of the figures there is no verdict.
    """
    if not document['complete']:
        return None, None, None
    machine = document['machine']
    noise = of_noise(
        machine['load_average'] / machine['cpus'],
        {policy: [values(document, race, f'fsync:{policy}', 'txn_per_second')
                  .values() for race in range(1, len(document['races']))]
         for policy in POLICIES})
    where = machine['file_system'], result(
        document, OF_SYNCS, document['baseline'], 'p50_seconds')['median']
    return of_disk(*where, noise), noise, is_no_disk(*where)


def is_no_disk(file_system, sync):
    return file_system in MEMORY or sync < NO_DISK


def of_disk(file_system, sync, noise):
    """Can this disk keep what it confirms?  A few sentences.

    `sync` is the median, in seconds, in the way that FsyncStorage takes;
    `noise` is what `of_noise` says.
    """
    took = duration(sync)
    if file_system in MEMORY:
        return (
            f'This is no disk: {file_system} is memory. A power cut takes back'
            ' everything, whatever the policy. Measure the directory that will'
            ' hold Data.fs.')
    if is_no_disk(file_system, sync):
        return (
            f'This is no disk: none keeps data within {took}. Something'
            ' confirms syncs without making them: a virtual machine, a mount'
            ' option, a library. A power cut takes back acknowledged commits,'
            ' whatever the policy. Keep nothing here that matters.')
    if sync < NEEDS_CACHE:
        return (
            f'A sync takes {took}. That is honest only with a cache that a'
            ' power cut does not empty: capacitors in a server SSD, a battery'
            ' on a RAID controller, here or at the host of a virtual machine.'
            ' Without one, a power cut takes back acknowledged commits,'
            ' whatever the policy. Ask who runs the machine.')
    if noise:
        return (
            f'A sync took {took} while something else kept the machine busy.'
            ' That says nothing about the disk.')
    return (
        f'A sync takes {took}, as with a disk that waits until the data are'
        ' safe. Whether it tells the truth, only a power cut shows.')


def of_noise(load, commits):
    """Why the figures cannot be trusted; or None.

    `load` is the load average before the start, divided by the processors;
    `commits` are the rates of the rounds, by policy, in the same order of
    races for each.
    """
    rates = {policy: [median(each) for each in races]
             for policy, races in commits.items()}
    if load > 1:
        reason = 'More processes wanted to run than there are processors.'
    elif any(
            synced > _CONTRADICTION * not_synced
            for name, policy in POLICIES.items() if policy.promises
            for synced, not_synced in zip(rates[name], rates['none'])):
        reason = (
            'They contradict each other: commits that are synced were faster'
            ' than commits that are not.')
    else:
        return None
    return (
        f'Do not trust these figures. {reason} Measure again when nothing else'
        ' uses the machine and the disk. Until then choose the default,'
        ' durability group-commit.')
