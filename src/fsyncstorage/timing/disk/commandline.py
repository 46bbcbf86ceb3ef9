"""The command `fsync-time disk`: what one sync costs here, and what follows.

The ways to sync are measured alone, and the policies with the storages,
because commits share syncs, and the rest of a commit takes time, too.
"""

import dataclasses
import os

from ..commits import committing
from ..options import arguments
from ..options import contestants
from ..running import measurement
from . import disktables
from . import probing

#: As usual, and with --quick.
ROUNDS = 3, 1
SYNC_SECONDS, COMMITS_SECONDS = (0.3, 0.1), (0.6, 0.2)

COMMITTERS = 1, 4, 16

#: The policies are compared with what most sites run now.
STORAGES = tuple(
    one for one in contestants.CONTESTANTS.values()
    if one.name == 'filestorage' or one.name.startswith('fsync:'))

DESCRIPTION = """\
Measure what one sync costs on this disk, and say what that means.

A file in a new directory in PATH is written and synced in each way that the
system offers. Then small transactions are committed with each policy, for less
than a second each. The verdict says whether this can be a disk at all, how
many commits a second to expect, and which settings to choose.
"""


def add_to(commands):
    parser = commands.add_parser(
        'disk', help='what one sync costs here, and which policy to choose',
        description=DESCRIPTION)
    parser.add_argument(
        'directory', nargs='?', default=os.curdir, type=arguments.directory,
        metavar='PATH',
        help='a directory on the disk (default: the current one); what is'
             ' made in it is always removed')
    parser.add_argument(
        '--quick', action='store_true',
        help='a rough answer in some twenty seconds, not in a minute or two')
    arguments.add_output(parser)
    parser.set_defaults(run=run)


def run(options):
    options.contestants = [*probing.WAYS, *STORAGES]
    options.rounds = ROUNDS[options.quick]
    return measurement.run(
        options, 'disk', races(options.quick), disktables.show)


def races(quick):
    return [
        probing.race(seconds=SYNC_SECONDS[quick]),
        *(dataclasses.replace(
            committing.race(threads=committers, shared=False,
                            seconds=COMMITS_SECONDS[quick], sync_latency=0.0),
            suits=STORAGES.__contains__) for committers in COMMITTERS),
    ]
