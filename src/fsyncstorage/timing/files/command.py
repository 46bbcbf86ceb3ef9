"""The command `fsync-time files`: what it takes to send a file to a browser.

By size, through nginx and without it, beside nginx on a plain file.
"""

import argparse
import functools

from .. import arguments
from .. import custom
from .. import loops
from .. import pinning
from .. import session
from . import loader
from . import nginx
from . import sites
from . import tables
from . import work

#: Those of the notes of 2004.
DEFAULT_SIZES = [5 << 10, 50 << 10, 500 << 10, 5000 << 10, 50000 << 10]
QUICK_SIZES = [5 << 10, 5000 << 10]

LEAST_SIZE, LARGEST_SIZE = 1 << 10, 2 << 30

#: Requests of a sample, if these do not come to too many bytes.
REQUESTS, QUICK_REQUESTS = 2000, 500
VOLUME, QUICK_VOLUME = 1 << 30, 500 << 20
COLD_VOLUME, QUICK_COLD_VOLUME = 500 << 20, 50 << 20

DESCRIPTION = f"""\
Measure how many files a second a browser can be sent, by size.

Each sample starts what it needs on an empty directory (a ZEO server, an
application, nginx), each in a process of its own, and stops it afterwards.
Requests come {work.AT_ONCE} at a time over HTTP, from ab where it is\
 installed, else from
threads in Python:

  warm   all for one file, which was sent before
  cold   each for another file, which the blob cache does not have; only over
         ZEO

The tables also have the time until the first byte of a cold file, and the
memory of each process. Cold files come to {COLD_VOLUME >> 20} MB, or are\
 three at least; the
disk needs room for them three times.
"""

EPILOG = """\
examples:
  fsync-time files --quick
  fsync-time files nginx x-accel:fsync-client waitress:zeo --sizes 500KB,1024MB
"""


def add_to(commands):
    parser = commands.add_parser(
        'files',
        help='how fast files go from a blob to a browser, by size',
        description=DESCRIPTION,
        epilog=f'{_contestants_help()}\n\n{EPILOG}',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_common(parser, sites.CONTESTANTS)
    parser.add_argument(
        '--sizes', metavar='SIZE,...', type=functools.partial(
            arguments.sizes, least=LEAST_SIZE, most=LARGEST_SIZE),
        help='of the files (default: 5KB,50KB,500KB,5000KB,50000KB, or'
             ' 5KB,5000KB with --quick)')
    parser.set_defaults(run=lambda options: run(parser, options))


def run(parser, options):
    options.contestants = arguments.able(parser, options, _obstacle)
    arguments.complete(parser, options)
    if options.sizes is None:
        options.sizes = QUICK_SIZES if options.quick else DEFAULT_SIZES
    return session.run(
        options, 'files', races, tables.show, added=added)


def races(options, sync_seconds):
    return [work.race(size=size, **common(options.quick))
            for size in options.sizes]


def common(quick):
    """Settings of all races."""
    return {
        'requests': QUICK_REQUESTS if quick else REQUESTS,
        'volume': QUICK_VOLUME if quick else VOLUME,
        'cold_volume': QUICK_COLD_VOLUME if quick else COLD_VOLUME,
        'loop': loops.installed()[-1],  # as ZEO does
        'pin': pinning.FREE,
    }


def added(options):
    """Sentences: by what it was measured."""
    yield f'Requests came from {loader.name()}.'
    if version := nginx.version():
        yield f'nginx was {version}.'


def _obstacle(contestant):
    if isinstance(contestant, custom.CustomStorage):
        return 'a storage of your own takes no part here'
    return contestant.missing()


def _contestants_help():
    """Without that of storages of the user."""
    return arguments.contestants_help(
        sites.CONTESTANTS).removesuffix(f'\n\n{custom.HELP}')
