"""The command `fsync-time wsgi`: how many requests a web application takes.

One process with threads is compared with several processes of one thread each,
and the storages with each other.  It starts all servers, and stops them again.
"""

import argparse
import sys

from .. import arguments
from .. import custom
from .. import loops
from .. import pinning
from ..zeo import sites
from . import app
from . import loader
from . import servers
from . import tables

CONTESTANTS = {name: sites.CONTESTANTS[name]
               for name in ('zeo', 'fsync-client')}

#: Those of a post of 2009.
DEFAULT_WORKERS, DEFAULT_CONCURRENCY = 4, [1, 8]

SECONDS, QUICK_SECONDS = 3.0, 0.5

DESCRIPTION = f"""\
Measure how many requests a second a web application answers over ZEO: in one
process with threads, and in several processes with one thread each.

The application reads a page and {app.CHILDREN} objects in it, and\
 with --write changes a
counter that is the client's own. Both are in ZODB's cache as long as nobody
changes them. It runs under

  waitress    one process, N threads
  gunicorn    one process, N threads; and N processes, one thread

Each sample starts a ZEO server and a web server, and stops them afterwards.
Clients are processes of their own that make a connection for each request, and
share the processors of this machine with the servers.
"""

EPILOG = """\
examples:
  fsync-time wsgi --quick
  fsync-time wsgi --write 10 --concurrency 8 --workers 2
  fsync-time wsgi fsync-client --server gunicorn
"""


def add_to(commands):
    parser = commands.add_parser(
        'wsgi',
        help='how many requests a web application takes, by its processes and'
             ' threads',
        description=DESCRIPTION,
        epilog=f'{arguments.contestants_help(CONTESTANTS)}\n\n{EPILOG}',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_common(parser, CONTESTANTS)
    parser.add_argument(
        '--server', action='append', choices=list(servers.SERVERS),
        help='the web server; can be repeated (default: both)')
    parser.add_argument(
        '--workers', type=arguments.positive, default=DEFAULT_WORKERS,
        metavar='N',
        help='so many threads, or processes'
             f' (default: {DEFAULT_WORKERS})')
    parser.add_argument(
        '--concurrency', type=arguments.counts, metavar='N,...',
        default=DEFAULT_CONCURRENCY,
        help='so many requests at a time (default:'
             f' {",".join(map(str, DEFAULT_CONCURRENCY))})')
    parser.add_argument(
        '--write', type=_percent, default=0, metavar='PERCENT',
        help='so many of a hundred requests change something (default: 0)')
    parser.add_argument(
        '--seconds', type=arguments.seconds, metavar='TIME',
        help=f'how long a sample lasts (default: {SECONDS}, or'
             f' {QUICK_SECONDS} with --quick)')
    parser.set_defaults(run=lambda options: run(parser, options))


def run(parser, options):
    options.server = _installed(parser, options)
    options.contestants = arguments.able(
        parser, options, lambda contestant: contestant.missing())
    arguments.complete(parser, options)
    if options.seconds is None:
        options.seconds = QUICK_SECONDS if options.quick else SECONDS
    return custom.run(options, 'wsgi', races, tables.show)


def races(options, sync_seconds):
    return [
        loader.race(
            server=server, processes=processes, threads=threads,
            concurrency=concurrency, write=options.write,
            seconds=options.seconds, sync_latency=latency,
            loop=loops.installed()[-1],  # as ZEO does
            socket=False, pin=pinning.FREE)
        # Nothing is synced without writes.
        for latency in (options.sync_latency if options.write else [0.0])
        for concurrency in options.concurrency
        for server, processes, threads in layouts(options.workers)
        if server in options.server]


def layouts(workers):
    """Servers, each with its processes and the threads of one."""
    return dict.fromkeys([  # with one worker the last two are the same
        ('waitress', 1, workers),
        ('gunicorn', 1, workers),
        ('gunicorn', workers, 1)])


def _installed(parser, options):
    """Those of the servers that are there; the others are named."""
    found = []
    for name in dict.fromkeys(options.server or servers.SERVERS):
        if reason := servers.missing(name):
            print(f'{parser.prog}: {name} is left out: {reason}',
                  file=sys.stderr)
        else:
            found.append(name)
    if not found:
        parser.error('there is no web server: pip install waitress gunicorn')
    return found


def _percent(text):
    if not text.isdecimal() or int(text) > 100:
        raise argparse.ArgumentTypeError(
            f'must be a whole number from 0 to 100, not {text!r}')
    return int(text)
